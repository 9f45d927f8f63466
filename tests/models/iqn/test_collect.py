"""What a random policy met before learning, the held-out worlds, and datasets of another config."""

import re
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quatrain.envs.treasurehunt import turns
from quatrain.envs.treasurehunt.world import make_world, spawn_items
from quatrain.errors import DatasetMismatch
from quatrain.models.iqn.collect import check, collect
from quatrain.models.iqn.treasurehunt import Dataset, held_out_envs
from tests.conftest import small

AGENTS, FRAME, HELD_OUT = 2, 125, 64
SEEDS = {"seeds": 2}
CONFIG = small("iqn", **SEEDS)


@lru_cache
def collected() -> Dataset:
    return collect(CONFIG, 11)


def test_seeds_have_worlds_and_actions_of_their_own():
    train = collected().train
    for of_both_seeds in (train.frames[:, 0], train.actions[:, 0]):
        assert not np.array_equal(*of_both_seeds)


def test_held_out_worlds_come_back_with_their_start_and_their_spawn_noise():
    check(CONFIG, collected())
    held_out = collected().held_out
    assert len(np.unique(held_out.keys, axis=0)) == HELD_OUT

    @jax.jit
    def begun() -> tuple[Any, ...]:
        world, zero = make_world(CONFIG.env), jnp.int32(0)
        envs = held_out_envs(CONFIG, held_out)
        keys = jax.random.wrap_key_data(jnp.asarray(held_out.keys))
        fresh = turns.start(world, keys, CONFIG.network.frames)
        grown = jax.vmap(world.begin_turn)(envs.state).items
        spawned = jax.vmap(lambda key: spawn_items(CONFIG.env, key, zero, zero))(keys)
        return envs.state[:-1], fresh.state[:-1], envs.history, grown, spawned

    state, fresh, history, grown, spawned = jax.device_get(begun())
    np.testing.assert_equal(tuple(state), tuple(fresh))
    assert history.shape == (AGENTS, HELD_OUT, 1, FRAME)
    for place, expected in enumerate(np.array(spawned)):
        expected[tuple(held_out.positions[place].T)] = 0
        np.testing.assert_array_equal(grown[place], expected)


def refused(why: str) -> Any:
    foreign = f"the dataset was not collected in the world of iqn.env: {why}"
    return pytest.raises(DatasetMismatch, match=f"^{re.escape(foreign)}; run `dvc repro`$")


FRAMES = "frames have the shape (2, 20, 2, 4, 125), not"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"seeds": 1}, f"{FRAMES} (1, 20, 2, 4, 125)"),
        ({"env": {"ground": "plain"}}, f"{FRAMES} (2, 20, 2, 4, 100)"),
        ({"collect": {"held_out_worlds": 5}}, "held_out/keys have the shape (64, 2), not (5, 2)"),
        ({"env": {"height": 7}}, "held_out/items have the shape (64, 6, 6), not (64, 7, 6)"),
        ({"env": {"wall_value": -2.0}}, "it has rewards that nothing pays"),
        ({"env": {"max_turns": 20}}, "it has ends at other turns"),
    ],
)
def test_a_dataset_of_another_config_is_refused(changes: dict[str, Any], why: str):
    with refused(why):
        check(small("iqn", **SEEDS | changes), collected())


@pytest.mark.parametrize(
    ("part", "column", "value", "why"),
    [
        ("train", "frames", 3, "it has frames outside 0..2"),
        ("train", "actions", 4, "it has actions outside 0..3"),
        ("held_out", "items", 2, "it has held-out items of an unknown kind"),
        ("held_out", "positions", 0, "it has held-out agents in walls"),
    ],
)
def test_a_dataset_with_impossible_values_is_refused(part: str, column: str, value: int, why: str):
    owner = getattr(collected(), part)
    array = getattr(owner, column).copy()
    array.flat[0] = value
    with refused(why):
        check(CONFIG, collected()._replace(**{part: owner._replace(**{column: array})}))
