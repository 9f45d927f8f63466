"""The common start, held-out rollouts and the true field; and datasets that belong to another
config.
"""

import itertools
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator

from pipeline.storage.artifacts import to_arrays
from quatrain.envs.vector_field import kinds
from quatrain.envs.vector_field.config import TABLE
from quatrain.envs.vector_field.fields import region_grid
from quatrain.errors import DatasetMismatch
from quatrain.models.active_dynamics import collect as room
from quatrain.models.active_dynamics.collect import (
    Dataset,
    Rollouts,
    check,
    collect,
    emission_of,
    random_actions,
    world_of,
)
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from tests.conftest import small

SEED, REPLICATES, CHANNELS, WARMUP, HELD_OUT, STARTS = 11, 3, 7, 13, 10, 9
CONTROL = [[0.8, 0.3, -0.2], [-0.5, 0.9, 0.1]]
"""B of three numbers of an action."""
KINDS: dict[str, dict[str, Any]] = {
    **{
        kind: {"kind": kind}
        for kind in ("limit_cycle", "double_limit_cycle", "van_der_pol", "duffing", "snowman")
    },
    "multi_attractor": {"kind": "multi_attractor", "parameters": {"nodes": 12}},
    "linear": {"kind": "linear", "matrix": [[-0.5, -1.0, 0.0], [1.0, -0.5, 0.2], [0.0, 0.1, -0.3]]},
}
"""Fields by name; the linear one is of three dimensions."""


def configured(kind: str = "limit_cycle", **sections: Any) -> ActiveDynamicsConfig:
    """A small run with sizes that all differ; sections: of `env`, `collect`."""
    env = {"field": KINDS[kind], "observation": {"channels": CHANNELS}} | sections.get("env", {})
    local = {"warmup": WARMUP, "held_out_rollouts": HELD_OUT, "starts": STARTS} | sections.get(
        "collect", {}
    )
    network = {"rbf": {"side": 4, "length": 1.2}}
    return small(
        "active_dynamics",
        seeds=sections.get("seeds", REPLICATES),
        env=env,
        collect=local,
        network=network,
    )


@cache
def collected(kind: str = "limit_cycle") -> Dataset:
    return collect(configured(kind), SEED)


def equal(item: Any, other: Any) -> bool:
    """Of parts of datasets."""
    first, second = to_arrays(item), to_arrays(other)
    return first.keys() == second.keys() and all(
        first[name].tobytes() == second[name].tobytes() for name in first
    )


def of_rollouts(
    name: str, rollouts: int, steps: int, action: int, d: int
) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {
        f"{name}/observations": ("float32", (rollouts, steps + 1, CHANNELS)),
        f"{name}/next_observations": ("float32", (rollouts, steps, CHANNELS)),
        f"{name}/actions": ("float32", (rollouts, steps, action)),
        f"{name}/states": ("float32", (rollouts, steps + 1, d)),
        f"{name}/next_states": ("float32", (rollouts, steps, d)),
        f"{name}/truncated": ("bool", (rollouts, steps)),
    }


@pytest.mark.parametrize(
    ("kind", "d", "action", "points", "table"),
    [
        ("limit_cycle", 2, 2, 709, (0, 0, 0, 0)),
        ("multi_attractor", 2, 3, 709, (1, 2, 12, 12)),
        ("linear", 3, 3, 2048, (0, 0, 0, 0)),
    ],
)
def test_sizes_and_types(kind: str, d: int, action: int, points: int, table: tuple[int, ...]):
    config = configured(kind, env={"control": CONTROL if action > d else None})
    dataset = collect(config, SEED)
    assert {
        name: (str(array.dtype), array.shape) for name, array in to_arrays(dataset).items()
    } == {
        **of_rollouts("train", REPLICATES, WARMUP, action, d),
        "emission/weight": ("float32", (CHANNELS, d)),
        "emission/bias": ("float32", (CHANNELS,)),
        "emission/noise_variance": ("float32", (CHANNELS,)),
        "field/alpha": ("float32", ()),
        "field/table": ("float32", table),
        **of_rollouts("held_out/rollouts", HELD_OUT, 100, action, d),
        "held_out/starts": ("float32", (STARTS, d)),
        "held_out/start_actions": ("float32", (STARTS, 20, action)),
        "held_out/clean_states": ("float32", (STARTS, 21, d)),
        "held_out/grid": ("float32", (points, d)),
        "held_out/grid_field": ("float32", (points, d)),
    }
    check(config, dataset)


def test_the_same_seed_collects_the_same_bytes_and_another_seed_others():
    assert equal(collect(configured(), SEED), collected())
    before, after = to_arrays(collected()), to_arrays(collect(configured(), SEED + 1))
    same = {name for name in before if np.array_equal(before[name], after[name])}
    assert same == {
        "train/truncated",
        "emission/noise_variance",
        "field/alpha",
        "field/table",
        "held_out/rollouts/truncated",
        "held_out/grid",
        "held_out/grid_field",
    }


def test_random_numbers_of_torch_and_numpy_are_left_alone():
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    before = torch.get_rng_state(), np.random.get_state()[1]  # noqa: NPY002
    assert equal(collect(configured(), SEED), collected())
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002


def test_parts_do_not_depend_on_each_others_sizes():
    longer = collect(configured(collect={"warmup": 17}, seeds=4), SEED)
    assert equal(longer.held_out, collected().held_out)
    assert equal(longer.emission, collected().emission)
    wider = collect(configured(collect={"held_out_rollouts": 12}), SEED)
    assert equal(wider.train, collected().train)
    assert np.array_equal(wider.held_out.start_actions, collected().held_out.start_actions)


def test_the_start_and_channels_do_not_depend_on_what_is_drawn_of_a_field():
    env = {"field": {"kind": "multi_attractor", "parameters": {"nodes": 9}}}
    other = collect(configured(env=env), SEED)
    assert other.field.table.shape[-1] == 9
    assert np.array_equal(other.train.actions, collected("multi_attractor").train.actions)
    assert np.array_equal(other.train.states[:, 0], collected("multi_attractor").train.states[:, 0])
    assert equal(other.emission, collected("multi_attractor").emission)


def test_no_two_parts_share_random_numbers():
    dataset = collected()
    held_out = dataset.held_out
    drawn = (
        dataset.train.actions,
        held_out.rollouts.actions[: HELD_OUT // 2],
        held_out.start_actions,
    )
    for item, other in itertools.combinations(drawn, 2):
        assert len(np.intersect1d(item, other)) <= 2


def test_a_multi_attractor_is_another_with_another_seed_and_the_same_with_the_same():
    config = configured("multi_attractor")
    again, other = (collect(config, seed).field.table for seed in (SEED, SEED + 1))
    assert np.array_equal(again, collected("multi_attractor").field.table)
    assert not np.array_equal(other, again)


# The environment.


def stepped(
    config: ActiveDynamicsConfig, dataset: Dataset, x: np.ndarray, action: np.ndarray
) -> np.ndarray:
    """One state one transition ahead, without noise."""
    control = np.eye(config.env.d) if config.env.control is None else np.array(config.env.control)
    velocity = world_of(config, dataset).field(torch.tensor(x)[None])[0].numpy()
    return x + (velocity + control @ action) * config.env.dt


def residuals(config: ActiveDynamicsConfig, dataset: Dataset, rollouts: Rollouts) -> np.ndarray:
    """What of each transition is noise."""
    result = []
    for states, after, actions in zip(
        rollouts.states, rollouts.next_states, rollouts.actions, strict=True
    ):
        for x, next_x, action in zip(states[:-1], after, actions, strict=True):
            result.append(next_x - stepped(config, dataset, x, action))
    return np.array(result)


@pytest.mark.parametrize("control", [None, CONTROL])
def test_transitions_are_those_of_the_true_field_the_actions_and_noise_of_its_variance(
    control: Any,
):
    config = configured("duffing", env={"control": control})
    dataset = collect(config, SEED)
    noise = residuals(config, dataset, dataset.held_out.rollouts)
    assert noise.shape == (HELD_OUT * 100, 2)
    assert np.abs(noise.mean(0)).max() < 0.005
    np.testing.assert_allclose(noise.std(0), np.sqrt(0.01 * 0.1), rtol=0.08)
    assert np.abs(residuals(config, dataset, dataset.train)).max() < 0.15


def test_without_noise_transitions_are_exact():
    config = configured("van_der_pol", env={"process_noise": 0.0})
    dataset = collect(config, SEED)
    for rollouts in (dataset.train, dataset.held_out.rollouts):
        assert np.abs(residuals(config, dataset, rollouts)).max() < 1e-5


def test_channels_show_states_with_their_noise():
    dataset, emission = collected(), collected().emission
    for rollouts in (dataset.train, dataset.held_out.rollouts):
        for states, observed in (
            (rollouts.states, rollouts.observations),
            (rollouts.next_states, rollouts.next_observations),
        ):
            left = observed - states @ emission.weight.T - emission.bias
            assert left.std() == pytest.approx(0.1, rel=0.1)
            assert np.abs(left).max() < 0.1 * 5.5


def test_where_nothing_was_truncated_the_next_state_is_the_state_after():
    train = collected().train
    assert not train.truncated.any()
    assert np.array_equal(train.next_states, train.states[:, 1:])
    assert np.array_equal(train.next_observations, train.observations[:, 1:])


def test_a_truncated_rollout_begins_anew_and_keeps_what_was_seen_last():
    config = configured(env={"episode_transitions": 5})
    dataset = collect(config, SEED)
    train = dataset.train
    assert np.array_equal(
        train.truncated, np.arange(1, WARMUP + 1) % 5 * np.ones((REPLICATES, 1)) == 0
    )
    later = train.states[:, 1:]
    assert np.array_equal(train.next_states[~train.truncated], later[~train.truncated])
    assert (train.next_states[train.truncated] != later[train.truncated]).all()
    assert np.abs(later[train.truncated]).max() <= 1
    assert np.abs(residuals(config, dataset, train)).max() < 0.15
    for states, observed in (
        (train.states, train.observations),
        (train.next_states, train.next_observations),
    ):
        left = observed - states @ dataset.emission.weight.T - dataset.emission.bias
        assert np.abs(left).max() < 0.55


def test_an_episode_ends_where_the_state_leaves_the_box():
    config = configured(
        "linear", env={"field": {"kind": "linear", "matrix": [[0.9, 0.0], [0.0, 0.9]]}}
    )
    rollouts = collect(config, SEED).held_out.rollouts
    assert rollouts.truncated.any()
    assert np.array_equal(rollouts.truncated, np.abs(rollouts.next_states).max(2) > 3)


def test_counts_are_counts():
    config = configured(
        env={"observation": {"channels": CHANNELS, "kind": "loglinear", "noise": "poisson"}}
    )
    dataset = collect(config, SEED)
    for rollouts in (dataset.train, dataset.held_out.rollouts):
        assert np.array_equal(rollouts.observations, rollouts.observations.round())
        rates = np.exp(rollouts.states @ dataset.emission.weight.T + dataset.emission.bias)
        assert rollouts.observations.mean() == pytest.approx(rates.mean(), rel=0.1)


# The common start.


def test_actions_of_the_warm_up_are_uniform_in_the_box():
    config = configured(env={"action_bound": 0.7}, collect={"warmup": 59}, seeds=40)
    actions = collect(config, SEED).train.actions.ravel()
    assert np.abs(actions).max() <= 0.7
    result = np.histogram(actions, bins=8, range=(-0.7, 0.7))[0]
    expected = len(actions) / 8
    assert (
        (result - expected) ** 2 / expected
    ).sum() < 24.3  # of 7 degrees of freedom exceeded once in 1000


def test_actions_of_the_warm_up_differ_by_replicate_and_time():
    actions = collected().train.actions
    assert len(np.unique(actions)) == actions.size


def test_replicates_start_as_episodes_do():
    starts = collect(configured(seeds=200), SEED).train.states[:, 0]
    assert np.abs(starts).max() <= 1
    np.testing.assert_allclose(starts.mean(0), 0, atol=0.15)
    np.testing.assert_allclose(starts.var(0), 1 / 3, rtol=0.2)


def test_random_actions_fill_their_box_of_any_size():
    world = world_of(configured(env={"control": CONTROL, "action_bound": 2.5}), collected())
    result = random_actions(world, (4, 300), Generator().manual_seed(0))
    assert result.shape == (4, 300, 3)
    assert 2.4 < float(result.abs().max()) <= 2.5


# What is held out.


def test_held_out_rollouts_start_uniformly_in_the_region():
    config = configured(collect={"held_out_rollouts": 400, "starts": 400})
    held_out = collect(config, SEED).held_out
    for starts in (held_out.rollouts.states[:, 0], held_out.starts):
        radius = np.linalg.norm(starts, axis=1)
        assert radius.max() <= 1.5
        assert np.mean(radius < 1.5 / 2**0.5) == pytest.approx(0.5, abs=0.1)
        np.testing.assert_allclose(starts.mean(0), 0, atol=0.15)


def test_half_of_the_held_out_rollouts_act_at_random_and_half_in_binary_sequences():
    actions = collected().held_out.rollouts.actions
    random, binary = actions[: HELD_OUT // 2], actions[HELD_OUT // 2 :]
    assert len(np.unique(np.abs(random))) > 900
    assert np.abs(random).max() <= 1
    assert (np.abs(binary) == 1).all()
    for rollout in binary:
        changes = np.flatnonzero((rollout[1:] != rollout[:-1]).any(1)) + 1
        stored = np.diff(changes)
        assert stored.min() >= 3
        assert len(changes) >= 3
    assert not np.array_equal(binary[0], binary[1])


def test_binary_sequences_hold_for_3_to_19_transitions():
    """A sign is drawn again after that, and may be the same."""
    config = configured(env={"control": CONTROL}, collect={"held_out_rollouts": 100})
    binary = collect(config, SEED).held_out.rollouts.actions[50:]
    changed = (binary[:, 1:] != binary[:, :-1]).any(2)
    stored = np.concatenate([np.diff(np.flatnonzero(item)) for item in changed])
    assert stored.min() == 3
    assert 10 < stored.mean() < 15  # 11, and a seventh more where all three signs stay


def test_clean_rollouts_are_a_plain_loop_of_the_true_field():
    config = configured("snowman", env={"control": CONTROL})
    dataset = collect(config, SEED)
    held_out = dataset.held_out
    assert np.array_equal(held_out.clean_states[:, 0], held_out.starts)
    for start, actions, path in zip(
        held_out.starts, held_out.start_actions, held_out.clean_states, strict=True
    ):
        x = start
        for time in range(20):
            x = stepped(config, dataset, x, actions[time]).astype(np.float32)
            np.testing.assert_allclose(path[time + 1], x, atol=1e-5)
    assert np.abs(held_out.start_actions).max() <= 1
    assert len(np.unique(held_out.start_actions)) == held_out.start_actions.size


def test_clean_rollouts_go_on_outside_the_box():
    config = configured(
        "linear", env={"field": {"kind": "linear", "matrix": [[0.9, 0.0], [0.0, 0.9]]}}
    )
    held_out = collect(config, SEED).held_out
    assert np.abs(held_out.clean_states).max() > 3
    assert np.abs(np.diff(held_out.clean_states, axis=1)).max() < 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_true_field_is_told_on_the_region_s_grid(kind: str):
    config, dataset = configured(kind), collected(kind)
    grid = region_grid(1.5, config.env.d)
    assert np.array_equal(dataset.held_out.grid, grid.numpy())
    assert np.array_equal(
        dataset.held_out.grid_field, world_of(config, dataset).field(grid).numpy()
    )
    speed = np.sqrt((dataset.held_out.grid_field.astype(float) ** 2).sum(1).mean())
    assert speed == pytest.approx(1, abs=1e-5)


def test_the_region_is_as_wide_as_asked():
    held_out = collect(configured(env={"region_radius": 2.0}), SEED).held_out
    assert np.linalg.norm(held_out.grid, axis=1).max() == pytest.approx(2)
    assert 1.5 < np.linalg.norm(held_out.starts, axis=1).max() <= 2


# Restored.


@pytest.mark.parametrize("kind", KINDS)
def test_the_world_comes_back_as_it_was_to_the_bit(kind: str, monkeypatch: pytest.MonkeyPatch):
    built = []

    def logged(*parts: Any) -> Any:
        built.append(original(*parts))
        return built[-1]

    original, config = room.make_world, configured(kind)
    monkeypatch.setattr(room, "make_world", logged)
    dataset = collect(config, SEED)
    restored, first = world_of(config, dataset), built[0]
    x = 3 * torch.randn(50, config.env.d, generator=Generator().manual_seed(0))
    assert torch.equal(restored.field(x), first.field(x))
    assert restored.emission[:2] == first.emission[:2]
    assert all(
        torch.equal(*pair) for pair in zip(restored.emission[2:], first.emission[2:], strict=True)
    )
    assert torch.equal(restored.control, first.control)
    assert restored.spec == first.spec


def test_a_user_s_field_comes_back():
    functions = dict(kinds._functions)
    try:
        kinds.register_field("of_a_user")(lambda x: torch.stack([-x[:, 1], 0.5 * x[:, 0]], 1))
        config = small(
            "active_dynamics",
            env={"field": {"kind": "of_a_user"}, "observation": {"channels": CHANNELS}},
        )
        dataset = collect(config, SEED)
        x = torch.tensor([[1.0, 2.0]])
        result = world_of(config, dataset).field(x)
        torch.testing.assert_close(result, torch.tensor([[-2.0, 0.5]]) * float(dataset.field.alpha))
        check(config, dataset)
    finally:
        kinds._functions.clear()
        kinds._functions.update(functions)


@pytest.mark.parametrize("kind", ["identity", "linear", "loglinear"])
def test_channels_come_back_as_they_were(kind: str):
    channels = 2 if kind == "identity" else CHANNELS
    config = configured(env={"observation": {"kind": kind, "channels": channels, "noise_sd": 0.3}})
    dataset = collect(config, SEED)
    emission = emission_of(config, dataset)
    assert (emission.kind, emission.noise) == (kind, "gaussian")
    np.testing.assert_allclose(emission.noise_variance, 0.09, rtol=1e-6)
    if kind == "identity":
        assert torch.equal(emission.weight, torch.eye(2))
    else:
        assert emission.weight.std() == pytest.approx(0.5, rel=0.5)
    x = torch.tensor([[0.5, -1.0]])
    drive = x @ torch.tensor(dataset.emission.weight).T + torch.tensor(dataset.emission.bias)
    torch.testing.assert_close(emission.mean(x), drive.exp() if kind == "loglinear" else drive)


def test_what_is_restored_shares_no_memory_with_the_dataset():
    dataset = collected()
    before = dataset.emission.weight.copy()
    emission_of(configured(), dataset).weight.fill_(7)
    assert np.array_equal(dataset.emission.weight, before)


# Whose is it?


OTHERS: Mapping[str, tuple[ActiveDynamicsConfig, str]] = {
    "more replicates": (
        configured(seeds=4),
        "train.observations has shape (3, 14, 7), this config wants (4, 14, 7)",
    ),
    "a longer warm-up": (
        configured(collect={"warmup": 14}),
        "train.observations has shape (3, 14, 7), this config wants (3, 15, 7)",
    ),
    "more channels": (
        configured(env={"observation": {"channels": 8}}),
        "train.observations has shape (3, 14, 7), this config wants (3, 14, 8)",
    ),
    "other actions": (
        configured(env={"control": CONTROL}),
        "train.actions has shape (3, 13, 2), this config wants (3, 13, 3)",
    ),
    "more dimensions": (
        configured("linear"),
        "train.actions has shape (3, 13, 2), this config wants (3, 13, 3)",
    ),
    "more starts": (
        configured(collect={"starts": 10}),
        "held_out.starts has shape (9, 2), this config wants (10, 2)",
    ),
    "more rollouts": (
        configured(collect={"held_out_rollouts": 12}),
        "held_out.rollouts.observations has shape (10, 101, 7), this config wants (12, 101, 7)",
    ),
}
"""Configs, and what of `collected` does not belong to them."""


@pytest.mark.parametrize("case", OTHERS)
def test_a_dataset_of_other_sizes_is_refused(case: str):
    config, why = OTHERS[case]
    with pytest.raises(
        DatasetMismatch, match=f"^{re.escape(f'active_dynamics: {why}; collect again')}$"
    ):
        check(config, collected())


@pytest.mark.parametrize("kind", ["double_limit_cycle", "van_der_pol", "duffing", "snowman"])
def test_a_dataset_of_another_field_is_refused(kind: str):
    why = "active_dynamics: the dataset is of another field than env.field; collect again"
    with pytest.raises(DatasetMismatch, match=f"^{re.escape(why)}$"):
        check(configured(kind), collected())


ALMOST: Mapping[str, tuple[dict[str, Any], str]] = {
    "other parameters": (
        {"field": {"kind": "limit_cycle", "parameters": {"w": 1.3}}},
        "field than env.field",
    ),
    "a faster field": ({"field": {"kind": "limit_cycle", "speed": 1.5}}, "field than env.field"),
    "a field as it is": (
        {"field": {"kind": "limit_cycle", "normalise": "none"}},
        "field than env.field",
    ),
    "a wider region": ({"region_radius": 1.6}, "region than env.region_radius"),
    "a shorter step": ({"dt": 0.09}, "step than env.dt, control and action_bound"),
    "a weaker push": ({"action_bound": 0.5}, "step than env.dt, control and action_bound"),
    "another push": ({"control": [[0, 1], [1, 0]]}, "step than env.dt, control and action_bound"),
    "more noise": (
        {"observation": {"channels": CHANNELS, "noise_sd": 0.2}},
        "noise than env.observation",
    ),
    "counts": (
        {"observation": {"channels": CHANNELS, "kind": "loglinear", "noise": "poisson"}},
        "noise than env.observation",
    ),
}
"""Changes of `env`, and what of `collected` is then another, though all sizes are the same."""


@pytest.mark.parametrize("case", ALMOST)
def test_a_dataset_of_another_environment_is_refused(case: str):
    env, what = ALMOST[case]
    why = f"active_dynamics: the dataset is of another {what}; collect again"
    with pytest.raises(DatasetMismatch, match=f"^{re.escape(why)}$"):
        check(configured(env=env), collected())


def test_a_dataset_of_another_table_is_refused():
    axis, wind = np.linspace(-2, 2, 5), np.random.default_rng(0).normal(size=(2, 5, 5, 2))
    configs = []
    for vectors in wind:
        arrays = [
            {"name": name, "shape": array.shape, "numbers": array.ravel().tolist()}
            for name, array in zip(TABLE, (axis, axis, vectors), strict=True)
        ]
        inputs = {"name": "inputs/active_dynamics/wind.npz", "arrays": arrays}
        configs.append(configured(env={"field": {"kind": "table", "table_file": inputs}}))
    dataset = collect(configs[0], SEED)
    check(configs[0], dataset)
    with pytest.raises(DatasetMismatch, match="is of another field"):
        check(configs[1], dataset)


@pytest.mark.parametrize("kind", KINDS)
def test_a_dataset_of_its_own_config_is_accepted(kind: str):
    check(configured(kind), collected(kind))


@pytest.mark.parametrize("name", ["observations", "next_observations"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_observation_that_is_no_number_is_refused_with_its_replicate_and_time(
    name: str, value: float
):
    arrays = {each: array.copy() for each, array in collected().train._asdict().items()}
    arrays[name][2, 8, 4] = value
    why = (
        f"active_dynamics: train.{name} of replicate 2 at transition 8 is not finite; collect again"
    )
    with pytest.raises(DatasetMismatch, match=f"^{re.escape(why)}$"):
        check(configured(), collected()._replace(train=Rollouts(**arrays)))
