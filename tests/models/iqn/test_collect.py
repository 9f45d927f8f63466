"""What a random policy met before learning, the held-out worlds, and datasets that belong to
another config.
"""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quatrain.envs.treasurehunt import turns
from quatrain.envs.treasurehunt.world import make_world, spawn_items
from quatrain.errors import DatasetMismatch
from quatrain.models.iqn.collect import Dataset, check, collect, held_out_envs
from tests import probes

SEEDS, TURNS, AGENTS, WORLDS, HELD_OUT = 2, 20, 3, 4, 6


@lru_cache
def collected() -> Dataset:
    return collect(probes.hunt(seeds=SEEDS), 11)


def test_sizes_and_types():
    train, held_out = collected()
    assert train.frames.shape == (SEEDS, TURNS, AGENTS, WORLDS, probes.FRAME)
    assert train.actions.shape == train.rewards.shape == (SEEDS, TURNS, AGENTS, WORLDS)
    assert (
        train.terminated.shape
        == train.truncated.shape
        == train.turn.shape
        == (SEEDS, TURNS, WORLDS)
    )
    assert [str(column.dtype) for column in train] == [
        "int8",
        "int8",
        "float32",
        "bool",
        "bool",
        "int16",
    ]
    assert held_out.keys.shape == (HELD_OUT, 2)
    assert held_out.positions.shape == (HELD_OUT, AGENTS, 2)
    assert held_out.items.shape == (HELD_OUT, 6, 6)
    assert [str(column.dtype) for column in held_out] == ["uint32", "int16", "int8"]
    check(probes.hunt(seeds=SEEDS), collected())


def test_it_ends_on_the_border_of_an_episode():
    train = collected().train
    assert train.truncated[:, -1].all()
    np.testing.assert_array_equal(train.turn[0, :, 0], [*range(10), *range(10)])


def test_every_action_is_as_likely_as_another_and_seeds_differ():
    actions = collected().train.actions
    counts = np.bincount(actions.ravel(), minlength=4)
    expected = actions.size / 4
    assert (
        (counts - expected) ** 2 / expected
    ).sum() < 16.3  # chi-square, 3 degrees of freedom, 1 in 1000
    assert not np.array_equal(actions[0], actions[1])


def test_held_out_worlds_are_none_of_those_trained_in():
    keys = collected().held_out.keys
    assert len(np.unique(keys, axis=0)) == HELD_OUT


def test_held_out_worlds_come_back_with_their_start_and_their_spawn_noise():
    config, held_out = probes.hunt(seeds=SEEDS), collected().held_out
    envs = held_out_envs(config, held_out)
    keys = jax.random.wrap_key_data(jnp.asarray(held_out.keys))
    fresh = turns.start(make_world(config.env.rules), keys, config.network.frames)
    for result, expected in zip(envs.state[:-1], fresh.state[:-1], strict=True):
        np.testing.assert_array_equal(result, expected)
    assert envs.history.shape == (AGENTS, HELD_OUT, 2, probes.FRAME)
    grown = jax.vmap(make_world(config.env.rules).begin_turn)(envs.state).items
    for world in range(HELD_OUT):
        expected = np.array(spawn_items(config.env.rules, keys[world], jnp.int32(0), jnp.int32(0)))
        expected[tuple(held_out.positions[world].T)] = 0
        np.testing.assert_array_equal(grown[world], expected)


def test_the_stored_start_counts_not_the_one_that_the_key_would_draw():
    config, held_out = probes.hunt(seeds=SEEDS), collected().held_out
    moved = held_out._replace(positions=held_out.positions[::-1])
    np.testing.assert_array_equal(held_out_envs(config, moved).state.positions, moved.positions)


def spoiled(column: str, value: float) -> Dataset:
    """With one entry changed."""
    part = "held_out" if column == "items" else "train"
    owner = getattr(collected(), part)
    array = getattr(owner, column).copy()
    array.flat[0] = value
    return collected()._replace(**{part: owner._replace(**{column: array})})


FOREIGN = r"the dataset was not collected in the world of iqn\.env: {}; run `dvc repro`"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"seeds": 3}, r"frames have the shape \(2, 20, 3, 4, 36\), not \(3, 20, 3, 4, 36\)"),
        (
            {"collect": {"turns": 10}},
            r"frames have the shape \(2, 20, 3, 4, 36\), not \(2, 10, 3, 4, 36\)",
        ),
        (
            {"env": {"agents": 2}},
            r"frames have the shape \(2, 20, 3, 4, 36\), not \(2, 20, 2, 4, 36\)",
        ),
        (
            {"env": {"worlds": 8}},
            r"frames have the shape \(2, 20, 3, 4, 36\), not \(2, 20, 3, 8, 36\)",
        ),
        (
            {"env": {"ground": "sand"}},
            r"frames have the shape \(2, 20, 3, 4, 36\), not \(2, 20, 3, 4, 45\)",
        ),
        (
            {"collect": {"held_out_worlds": 5}},
            r"held_out/keys have the shape \(6, 2\), not \(5, 2\)",
        ),
        ({"env": {"height": 7}}, r"held_out/items have the shape \(6, 6, 6\), not \(6, 7, 6\)"),
        ({"env": {"wall_value": -2.0}}, "it has rewards that nothing pays"),
        ({"env": {"max_turns": 20}}, "it has ends at other turns"),
    ],
)
def test_a_dataset_of_another_config_is_refused(changes: dict[str, Any], why: str):
    with pytest.raises(DatasetMismatch, match=FOREIGN.format(why)):
        check(probes.hunt(**({"seeds": SEEDS} | changes)), collected())


@pytest.mark.parametrize(
    ("column", "value", "why"),
    [
        ("frames", 3, "it has frames outside 0..2"),
        ("frames", -1, "it has frames outside 0..2"),
        ("actions", 4, "it has actions outside 0..3"),
        ("items", 2, "it has held-out items of an unknown kind"),
        ("rewards", 0.5, "it has rewards that nothing pays"),
        ("rewards", np.nan, "it has rewards that nothing pays"),
        ("truncated", True, "it has ends at other turns"),
    ],
)
def test_a_dataset_with_impossible_values_is_refused(column: str, value: float, why: str):
    with pytest.raises(DatasetMismatch, match=FOREIGN.format(why)):
        check(probes.hunt(seeds=SEEDS), spoiled(column, value))


def test_rewards_of_another_shape_are_refused():
    data = collected()
    with pytest.raises(
        DatasetMismatch, match=FOREIGN.format(r"rewards have the shape \(2, 20, 3, 1\), not .*")
    ):
        check(
            probes.hunt(seeds=SEEDS),
            data._replace(train=data.train._replace(rewards=data.train.rewards[..., :1])),
        )
