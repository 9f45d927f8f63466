"""The common start, held-out rollouts and the true field; datasets of another config."""

import itertools
import re
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from quatrain.envs.vector_field.fields import region_grid
from quatrain.envs.vector_field.world import step_mean
from quatrain.errors import DatasetMismatch
from quatrain.frameworks.packing import flatten
from quatrain.models.active_dynamics.collect import Dataset, check, collect, world_of
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.train import train as learn
from tests.conftest import small

SEED, REPLICATES, CHANNELS, WARMUP, HELD_OUT, STARTS = 11, 3, 7, 13, 10, 9
CONTROL = [[0.8, 0.3, -0.2], [-0.5, 0.9, 0.1]]
"""B of three numbers of an action."""
KINDS: dict[str, dict[str, Any]] = {
    "limit_cycle": {"kind": "limit_cycle"},
    "multi_attractor": {"kind": "multi_attractor", "parameters": {"nodes": 12}},
    "linear": {"kind": "linear", "matrix": [[-0.5, -1.0, 0.0], [1.0, -0.5, 0.2], [0.0, 0.1, -0.3]]},
}


def configured(kind: str = "limit_cycle", seeds: int = REPLICATES, **changes: Any) -> Any:
    """Returns a config with sizes that all differ; changes: of `collect` or `env`."""
    sizes = {"warmup": WARMUP, "held_out_rollouts": HELD_OUT, "starts": STARTS}
    collect = {name: changes.pop(name, size) for name, size in sizes.items()}
    env = {"field": KINDS[kind], "observation": {"channels": CHANNELS}} | changes
    network = {"rbf": {"side": 4, "length": 1.2}}
    return small("active_dynamics", seeds=seeds, env=env, collect=collect, network=network)


@cache
def collected(kind: str = "limit_cycle") -> Dataset:
    return collect(configured(kind), SEED)


# Random numbers.


def test_parts_share_no_random_numbers_and_do_not_depend_on_the_sizes_of_others():
    dataset = collected()
    train, held_out = dataset.train, dataset.held_out
    longer = collect(configured(warmup=17, seeds=4), SEED)
    np.testing.assert_equal(flatten(longer.held_out), flatten(held_out))
    np.testing.assert_equal(flatten(longer.emission), flatten(dataset.emission))
    wider = collect(configured(held_out_rollouts=12), SEED)
    np.testing.assert_equal(flatten(wider.train), flatten(train))
    other = collect(configured(), SEED + 1)
    assert not np.array_equal(other.emission.weight, dataset.emission.weight)
    assert not np.array_equal(other.held_out.start_actions, held_out.start_actions)
    random = held_out.rollouts.actions[: HELD_OUT // 2]
    for item, part in itertools.combinations((train.actions, random, held_out.start_actions), 2):
        assert len(np.intersect1d(item, part)) <= 2


# Transitions.


def stepped(config: ActiveDynamicsConfig, dataset: Dataset, *inputs: np.ndarray) -> np.ndarray:
    """Computes states one transition after states and actions, without noise."""
    return step_mean(world_of(config, dataset), *map(torch.tensor, inputs)).numpy()


def test_transitions_follow_the_true_field_the_actions_and_noise_of_its_variance():
    """Clean ones follow it without noise."""
    config = configured(control=CONTROL)
    dataset = collect(config, SEED)
    for rollouts in (dataset.train, dataset.held_out.rollouts):
        expected = stepped(config, dataset, rollouts.states[:, :-1], rollouts.actions)
        noise = rollouts.next_states - expected
        assert np.abs(noise).max() < 0.15
        assert np.array_equal(rollouts.next_states, rollouts.states[:, 1:])
    assert np.abs(noise.mean((0, 1))).max() < 0.005
    np.testing.assert_allclose(noise.std((0, 1)), np.sqrt(0.01 * 0.1), rtol=0.08)
    clean, held_out = dataset.held_out.clean_states, dataset.held_out
    assert np.array_equal(clean[:, 0], held_out.starts)
    expected = stepped(config, dataset, clean[:, :-1], held_out.start_actions)
    np.testing.assert_allclose(clean[:, 1:], expected, atol=1e-5)


def test_a_truncated_rollout_begins_anew_and_keeps_the_last_observation():
    dataset = collect(configured(episode_transitions=5), SEED)
    train = dataset.train
    ends = np.arange(1, WARMUP + 1) % 5 == 0
    assert np.array_equal(train.truncated, np.tile(ends, (REPLICATES, 1)))
    later = train.states[:, 1:]
    assert np.array_equal(train.next_states[:, ~ends], later[:, ~ends])
    assert (train.next_states[:, ends] != later[:, ends]).all()
    assert np.abs(later[:, ends]).max() <= 1
    weight, bias, _ = dataset.emission
    noise = train.next_observations - train.next_states @ weight.T - bias
    assert np.abs(noise).max() < 0.55


# What is held out.


def test_held_out_rollouts_start_uniformly_in_the_region():
    held_out = collect(configured(held_out_rollouts=400, starts=400, region_radius=2.0), SEED)[-1]
    for starts in (held_out.rollouts.states[:, 0], held_out.starts):
        radius = np.linalg.norm(starts, axis=1)
        assert 1.5 < radius.max() <= 2
        assert np.mean(radius < 2 / 2**0.5) == pytest.approx(0.5, abs=0.1)
        np.testing.assert_allclose(starts.mean(0), 0, atol=0.2)


def test_half_of_the_held_out_rollouts_have_random_and_half_binary_actions():
    """A binary sequence holds its signs for 3 to 19 transitions, and may draw the same again."""
    actions = collect(configured(control=CONTROL, held_out_rollouts=100), SEED)[-1].rollouts.actions
    assert len(np.unique(np.abs(actions[:50]))) > 9000
    assert np.abs(actions[:50]).max() <= 1
    assert (np.abs(actions[50:]) == 1).all()
    changes = (actions[50:, 1:] != actions[50:, :-1]).any(2)
    lengths = np.concatenate([np.diff(np.flatnonzero(rollout)) for rollout in changes])
    assert lengths.min() == 3
    assert 10 < lengths.mean() < 15  # 11, and a seventh more where all three signs stay


# Restored.


@pytest.mark.parametrize("kind", KINDS)
def test_the_world_and_its_field_come_back_to_the_bit(kind: str):
    config, dataset = configured(kind), collected(kind)
    check(config, dataset)
    world, grid = world_of(config, dataset), region_grid(1.5, config.env.d)
    assert np.array_equal(dataset.held_out.grid, grid.numpy())
    assert np.array_equal(dataset.held_out.grid_field, world.field(grid).numpy())
    for part, expected in zip(world.emission[2:], dataset.emission, strict=True):
        assert np.array_equal(part, expected)


# Datasets of another config.

STEP = "step than env.dt, control and action_bound"
SHAPES: list[tuple[dict[str, Any], str]] = [
    ({"seeds": 4}, "train.observations has shape (3, 14, 7), this config wants (4, 14, 7)"),
    ({"control": CONTROL}, "train.actions has shape (3, 13, 2), this config wants (3, 13, 3)"),
    ({"starts": 10}, "held_out.starts has shape (9, 2), this config wants (10, 2)"),
]
OTHERS: list[tuple[dict[str, Any], str]] = [
    ({"field": {"parameters": {"w": 1.3}}}, "field than env.field"),
    ({"region_radius": 1.6}, "region than env.region_radius"),
    ({"dt": 0.09}, STEP),
    ({"control": [[0, 1], [1, 0]]}, STEP),
    ({"action_bound": 0.5}, STEP),
    ({"observation": {"channels": 7, "noise_sd": 0.2}}, "noise than env.observation"),
    ({"observation": {"channels": 7, "kind": "loglinear"}}, "kind of channels than"),
]
"""Changes of the config, and what of `collected` does not belong to it."""


@pytest.mark.parametrize(
    ("changes", "why"),
    SHAPES + [(changes, f"the dataset is of another {part}") for changes, part in OTHERS],
)
def test_a_dataset_of_another_config_is_refused(changes: dict[str, Any], why: str):
    message = f"^active_dynamics: {re.escape(why)}.*; collect again$"
    with pytest.raises(DatasetMismatch, match=message):
        next(learn(configured(**changes), collected(), 0))


def test_an_observation_that_is_not_finite_is_refused_with_its_place():
    train = collected().train
    array = train.next_observations.copy()
    array[2, 8, 4] = np.inf
    spoilt = collected()._replace(train=train._replace(next_observations=array))
    place = "train.next_observations of replicate 2 at transition 8 is not finite; collect again"
    with pytest.raises(DatasetMismatch, match=place):
        check(configured(), spoilt)
