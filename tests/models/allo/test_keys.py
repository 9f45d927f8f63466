"""Every key of params.yaml's section `allo` changes what is seen, walked or learned."""

from functools import cache, partial
from typing import Any

import jax
import numpy as np
import pytest

from quatrain.envs.grid.dynamics import draw_frequencies, make_grid, observe
from quatrain.frameworks.packing import flatten
from quatrain.models.allo import train as learner
from quatrain.models.allo.collect import Dataset, collect
from quatrain.models.allo.config import AlloConfig
from quatrain.models.allo.train import State, run_chunk
from quatrain.validation import overlaid
from tests.conftest import shapes_unchecked, small

allo = partial(small, "allo")
PLAIN: dict[str, Any] = {}
FOURIER = {"observation": "fourier", "fourier": {"scale": 6.0, "count": 5}}
TWO_ROOMS = {"rows": 1, "cols": 2, "height": 6, "width": 4, "extra_doors": 0, "seed": 0}
ROOMS = {"layout": "rooms", "rooms": TWO_ROOMS}
MAZE = {"layout": "maze", "maze": {"width": 7, "height": 9, "braid": 0.0, "seed": 0}}


def observed(env: dict[str, Any]) -> dict[str, np.ndarray]:
    config = allo(env=env).env
    grid, frequencies = make_grid(config.map), draw_frequencies(config, 0)
    return flatten(grid) | {"inputs": observe(config, grid, frequencies)}


def differ(item: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    assert item.keys() == other.keys()
    return not all(np.array_equal(item[name], other[name]) for name in item)


@pytest.mark.parametrize(
    ("base", "change"),
    [
        (PLAIN, {"layout": "maze9"}),
        (PLAIN, {"observation": "corner"}),
        (FOURIER, {"fourier": {"scale": 3.0}}),
        (FOURIER, {"fourier": {"count": 6}}),
        (ROOMS, {"rooms": {"width": 5}}),
        (ROOMS, {"rooms": {"seed": 1}}),
        (MAZE, {"maze": {"seed": 1}}),
        (MAZE, {"maze": {"braid": 1.0}}),
    ],
)
def test_a_key_of_the_map_changes_what_is_seen(base: dict[str, Any], change: dict[str, Any]):
    assert differ(observed(base), observed(overlaid(base, change)))


@cache
def dataset(**changes: Any) -> Dataset:
    env = {key: changes[key] for key in ("start", "max_episode_steps") if key in changes}
    sizes = {key: value for key, value in changes.items() if key not in env}
    sizes = {"held_out_fraction": 0.0, "steps_per_env": 30} | sizes
    return collect(allo(env={"layout": "obstacles"} | env, collect=sizes), 0)


@pytest.mark.parametrize(
    "change",
    [{"start": "layout"}, {"max_episode_steps": 7}, {"num_envs": 14}, {"steps_per_env": 31}],
    ids=str,
)
def test_a_key_of_walking_changes_what_is_walked(change: dict[str, Any]):
    assert differ(flatten(dataset().train), flatten(dataset(**change).train))


@cache
def program(config: AlloConfig) -> str:
    """The programs that make and train a learner, as text; they are not compiled."""
    walked, frequencies = dataset(), draw_frequencies(config.env, 0)
    inputs = config.world.inputs(config, walked, frequencies)
    arguments = (config, jax.random.key(0), frequencies, inputs)
    seeds = np.zeros((config.seeds, *frequencies.shape), np.float32)
    with shapes_unchecked():
        data = learner.make_data(config, State(*[None] * 7, input_constants=seeds), walked)
        state = jax.eval_shape(partial(learner._init_learners, config), *arguments[1:])
        lowered = (
            learner._init_learners.lower(*arguments),
            run_chunk.lower(config, config.train.record_every, state, data),
        )
    return "".join(each.as_text() for each in lowered)


FALLING = {"dual_init": -1.0}
RISING = {"lr_barrier": 0.1, "b_max": 3.0}


@pytest.mark.parametrize(
    ("base", "change"),
    [
        (PLAIN, {"discount": 0.3}),
        (PLAIN, {"discount": (0.3, 0.9)}),
        (PLAIN, {"batch_size": 33}),
        (PLAIN, {"learning_rate": 2e-3}),
        (PLAIN, {"lr_schedule": "constant"}),
        (PLAIN, {"lr_final": 0.5}),
        (PLAIN, {"graph_coef": 1.0}),
        (PLAIN, {"constraint": "three"}),
        (PLAIN, FALLING),
        (FALLING, {"dual_init_mask": "lower"}),
        (PLAIN, {"lr_dual": 0.01}),
        (PLAIN, {"dual_clip": 1e-6}),
        (PLAIN, {"b_init": 0.25}),
        (PLAIN, RISING),
        (RISING, {"b_max": 1.01}),
        (RISING, {"barrier_update": "positive_ema"}),
    ],
)
def test_a_key_of_learning_changes_the_program(base: dict[str, Any], change: dict[str, Any]):
    programs = {
        program(allo(env={"layout": "obstacles"}, train=train)) for train in (base, base | change)
    }
    assert len(programs) == 2
