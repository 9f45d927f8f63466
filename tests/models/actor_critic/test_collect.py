"""Plates, colonies, what is seen and what simple policies earn; and datasets that belong to another
config.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from pipeline.storage.artifacts import to_arrays
from quatrain.envs.colony import plates as laws
from quatrain.envs.colony.dynamics import Colonies, World, advance, make_world
from quatrain.envs.colony.episodes import returns
from quatrain.envs.colony.features import Observation, observe
from quatrain.envs.colony.plates import LINEAR, OUTSIDE, TRAINING, USER, Plates
from quatrain.envs.colony.policies import (
    ColonyPolicy,
    constant_policy,
    feedback_policy,
    noisy_policy,
    random_policy,
    with_fixed_parameters,
)
from quatrain.envs.colony.rules import PARAMETERS, RUNNING
from quatrain.envs.colony.world import start
from quatrain.errors import DatasetMismatch
from quatrain.frameworks.torch.rng import generator_from_seed
from quatrain.models.actor_critic import collect as room
from quatrain.models.actor_critic.collect import Dataset, check, collect, make_colonies
from quatrain.models.actor_critic.config import ActorCriticConfig
from tests.colonies import world
from tests.conftest import params_with, small

SEED = 11
FIXED_VALUES = {"gamma": 7.3, "alpha": 1.1, "noise": 0.1}
PARTLY = {
    "env": {"action": {"active_params": ["delete_ratio", "theta"], "fixed_params": FIXED_VALUES}}
}
USER_PLATE = tuple(np.linspace(0.5, 9, 60).tolist())
CONFIG = small("actor_critic")


@cache
def collected() -> Dataset:
    return collect(CONFIG, SEED)


@cache
def partly() -> tuple[ActorCriticConfig, Dataset]:
    """Where some numbers of an action are fixed, and what is seen is all."""
    config = small("actor_critic", **PARTLY, collect={"n_outside": 0})
    return config, collect(config, SEED)


def equal(item: Any, other: Any) -> bool:
    """Of parts of datasets."""
    first, second = to_arrays(item), to_arrays(other)
    return first.keys() == second.keys() and all(
        first[name].tobytes() == second[name].tobytes() for name in first
    )


def test_sizes_and_types():
    assert {
        name: (str(array.dtype), array.shape) for name, array in to_arrays(collected()).items()
    } == {
        **of_plates("train/plates", 3),
        "train/norm/node_mean": ("float32", (8,)),
        "train/norm/node_std": ("float32", (8,)),
        "train/norm/graph_mean": ("float32", (10,)),
        "train/norm/graph_std": ("float32", (10,)),
        "train/search/actions": ("float32", (200 + 4 * 48, 5)),
        "train/search/returns": ("float32", (200 + 4 * 48,)),
        "train/search/finalists": ("float32", (8, 5)),
        "train/search/final_returns": ("float32", (8,)),
        **of_plates("held_out/plates", 4),
        **of_starts("held_out/colonies", 64),
        **of_plates("held_out/outside", 2),
        **of_starts("held_out/colonies_outside", 32),
        **{
            f"held_out/references/{name}": ("float32", (64,))
            for name in ("random", "constant", "feedback")
        },
        "held_out/references/constant_action": ("float32", (5,)),
        "held_out/references/feedback_gamma": ("float32", ()),
    }
    check(CONFIG, collected())


def of_plates(name: str, count: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    shapes = {"kind": ("int8", (count,)), "m": ("float32", (count,)), "b": ("float32", (count,))}
    return {
        f"{name}/{key}": value
        for key, value in (shapes | {"intensity": ("float32", (count, 60))}).items()
    }


def of_starts(name: str, count: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    shapes = {
        "n": ("int64", (count,)),
        "pos": ("float32", (count, 8, 2)),
        "substrate": ("int64", (count,)),
    }
    return {f"{name}/{key}": value for key, value in shapes.items()}


def test_the_same_seed_collects_the_same_bytes_and_another_seed_others():
    assert equal(collect(CONFIG, SEED), collected())
    other = collect(CONFIG, SEED + 1)
    before, after = to_arrays(collected()), to_arrays(other)
    same = {name for name in before if np.array_equal(before[name], after[name])}
    assert same <= {
        "train/plates/kind",
        "held_out/plates/kind",
        "held_out/outside/kind",
        "held_out/references/feedback_gamma",
    }


def test_random_numbers_of_torch_and_numpy_are_left_alone():
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    before = torch.get_rng_state(), np.random.get_state()[1]  # noqa: NPY002
    assert equal(collect(CONFIG, SEED), collected())
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002


def test_parts_do_not_depend_on_each_others_sizes():
    more = collect(
        small("actor_critic", collect={"n_train": 5, "n_outside": 3, "constant_search": 210}), SEED
    )
    assert equal(more.held_out.plates, collected().held_out.plates)
    assert equal(more.held_out.colonies, collected().held_out.colonies)
    assert not equal(more.held_out.references, collected().held_out.references)
    wider = collect(small("actor_critic", collect={"n_held_out": 6, "held_out_colonies": 70}), SEED)
    assert equal(wider.train, collected().train)
    assert equal(wider.held_out.outside, collected().held_out.outside)


def test_no_held_out_plate_is_one_to_train_on():
    many = collect(small("actor_critic", collect={"n_train": 300, "n_held_out": 300}), SEED)
    rows = [
        set(zip(item.kind.tolist(), item.m.tolist(), item.b.tolist(), strict=True))
        for item in plates_of(many)
    ]
    assert [len(item) for item in rows] == [300, 300, 2]
    assert not rows[0] & rows[1]


def plates_of(dataset: Dataset) -> tuple[Plates, Plates, Plates]:
    return dataset.train.plates, dataset.held_out.plates, dataset.held_out.outside


def test_plates_outside_are_flatter_or_steeper_than_all_to_train_on():
    many = collect(small("actor_critic", collect={"n_outside": 200}), SEED)
    for plates, law in zip(plates_of(many), (TRAINING, TRAINING, OUTSIDE), strict=True):
        for kind, slope in zip(plates.kind, plates.m, strict=True):
            ranges = law.linear if kind == LINEAR else law.exponential
            assert any(low - 1e-8 <= slope <= high + 1e-8 for low, high in ranges)
    assert len(many.held_out.colonies_outside.n) == 32
    assert set(many.held_out.colonies_outside.substrate) <= set(range(200))


def test_held_out_colonies_begin_as_all_colonies_do():
    for starts, plates in (
        (collected().held_out.colonies, 4),
        (collected().held_out.colonies_outside, 2),
    ):
        assert set(starts.n) <= set(range(2, 9))
        assert set(starts.substrate) == set(range(plates))
        for n, pos in zip(starts.n, starts.pos, strict=True):
            assert (np.diff(pos[:n, 0]) >= 0).all()
            assert ((pos[:n, 0] >= 0) & (pos[:n, 0] <= 6)).all()
            assert np.ptp(pos[:n, 1]) <= 12
            assert ((pos[:n, 1] >= 9) & (pos[:n, 1] <= 51)).all()
            assert not pos[n:].any()


def test_colonies_come_back_as_they_began():
    starts = collected().held_out.colonies
    colonies = make_colonies(CONFIG.env.rules, starts)
    assert colonies.pos.shape == (64, 32, 2)
    fresh = start(
        make_world(CONFIG.env.rules, collected().held_out.plates),
        64,
        generator_from_seed(sequence(3)),
    )
    assert all(torch.equal(*pair) for pair in zip(colonies, fresh, strict=True))


def test_colonies_outside_are_others():
    colonies = make_colonies(CONFIG.env.rules, collected().held_out.colonies_outside)
    fresh = start(
        make_world(CONFIG.env.rules, collected().held_out.outside),
        32,
        generator_from_seed(sequence(4)),
    )
    assert all(torch.equal(*pair) for pair in zip(colonies, fresh, strict=True))


def sequence(place: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(SEED).spawn(8)[place]


@pytest.mark.parametrize("plates", ["fixed", "user"])
def test_the_only_plate_stands_on_both_sides(plates: str):
    config, dataset = with_one_plate(plates)
    expected = (
        laws.fixed_plate(60)
        if plates == "fixed"
        else laws.user_plate(np.array(USER_PLATE, np.float32))
    )
    assert equal(dataset.train.plates, expected)
    assert equal(dataset.held_out.plates, expected)
    assert dataset.held_out.outside.intensity.shape == (0, 60)
    assert dataset.held_out.colonies_outside.pos.shape == (0, 8, 2)
    assert not dataset.held_out.colonies.substrate.any()
    check(config, dataset)


@cache
def with_one_plate(plates: str) -> tuple[ActorCriticConfig, Dataset]:
    tensors = (
        {"name": "inputs/actor_critic/mine.npy", "numbers": USER_PLATE}
        if plates == "user"
        else None
    )
    ours = {"n_train": 1, "n_held_out": 1, "n_outside": 0, "plates": plates, "plates_file": tensors}
    config = small("actor_critic", collect=ours)
    return config, collect(config, SEED)


# What is seen.


def seen_by_loop(
    config: ActorCriticConfig, dataset: Dataset
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Features of each cell and each colony in each step, of one colony after the other."""
    some_world, draws = (
        make_world(config.env.rules, dataset.train.plates),
        generator_from_seed(sequence(5)),
    )
    rules, gamma = some_world.rules, sum(config.env.action.bounds.gamma) / 2
    cells, graphs = [], []
    steady = noisy_policy(rules, feedback_policy(rules, torch.full((64,), gamma)), 0.2, draws)
    for act in (steady, random_policy(rules, draws)):
        colonies, rows = start(some_world, 64, draws), torch.arange(64)
        while len(rows):
            for row in range(len(rows)):
                observed = observe(
                    some_world, Colonies(*(leaf[[row]] for leaf in colonies)), rules.max_nodes
                )
                cells += [
                    logged(observed.node[0, slot], rules.features, 0)
                    for slot in range(int(colonies.n[row]))
                ]
                graphs.append(logged(observed.graph[0], rules.features, 1))
            step = advance(
                some_world,
                colonies,
                with_fixed_parameters(config.env.action.fixed_params, act)(rows, colonies),
            )
            living = step.reason == RUNNING
            rows, colonies = rows[living], Colonies(*(leaf[living] for leaf in step.after))
    return cells, graphs


def logged(features: torch.Tensor, kind: str, of_graph: int) -> np.ndarray:
    """With ln(1 + I) in place of I."""
    columns = {"light": ((), ()), "full": ((2,), (16, 17, 18))}[kind][of_graph]
    values = features.numpy().astype(float)
    for column in columns:
        values[column] = np.log1p(values[column])
    return values


@pytest.mark.parametrize("sections", [{}, PARTLY, {"env": {"features": "full", "max_steps": 7}}])
def test_norm_is_the_mean_and_deviation_of_what_was_seen(sections: dict[str, Any]):
    config = small("actor_critic", **sections)
    dataset = collect(config, SEED)
    cells, graphs = (np.array(values) for values in seen_by_loop(config, dataset))
    assert len(cells) > 2000
    norm = dataset.train.norm
    for values, mean, std in (
        (cells, norm.node_mean, norm.node_std),
        (graphs, norm.graph_mean, norm.graph_std),
    ):
        np.testing.assert_allclose(mean, values.mean(0), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(std, values.std(0).clip(1e-3), rtol=1e-3, atol=1e-5)


def test_what_never_changes_is_not_divided_by_nothing():
    """No colony moves to the left: the last feature is always 0."""
    norm = collected().train.norm
    assert (norm.graph_mean[-1], norm.graph_std[-1]) == (0, np.float32(room.SMALLEST_STD))
    assert all((std > 0).all() for std in (norm.node_std, norm.graph_std))


def test_stiffness_is_compressed_and_nothing_else():
    some_world = world(
        laws.make_plates(np.array([1]), np.array([0.03]), np.array([1.0]), 600), features="full"
    )
    colonies = start(some_world, 7, torch.Generator().manual_seed(0))
    plain = observe(some_world, colonies, 80)
    kept = Observation(*(column.clone() for column in plain))
    result = room.compress_stiffness(some_world.rules, plain)
    torch.testing.assert_close(result.node[..., 2], plain.node[..., 2].log1p())
    torch.testing.assert_close(result.graph[:, 16:], plain.graph[:, 16:].log1p())
    others = [column for column in range(11) if column != 2]
    assert torch.equal(result.node[..., others], plain.node[..., others])
    assert torch.equal(result.graph[:, :16], plain.graph[:, :16])
    assert all(torch.equal(*pair) for pair in zip(plain, kept, strict=True))


# Floors.


@pytest.mark.parametrize("which", ["all", "partly"])
def test_references_are_the_returns_of_the_chosen_policies_on_held_out_colonies(which: str):
    config, dataset = (CONFIG, collected()) if which == "all" else partly()
    some_world = make_world(config.env.rules, dataset.held_out.plates)
    colonies, references = (
        make_colonies(config.env.rules, dataset.held_out.colonies),
        dataset.held_out.references,
    )

    def scored(act: ColonyPolicy) -> np.ndarray:
        return returns(
            some_world, colonies, with_fixed_parameters(config.env.action.fixed_params, act)
        ).numpy()

    constant = constant_policy(torch.tensor(references.constant_action).expand(64, 5))
    np.testing.assert_array_equal(
        references.constant, returns(some_world, colonies, constant).numpy()
    )
    gamma = torch.tensor(references.feedback_gamma).expand(64)
    np.testing.assert_array_equal(
        references.feedback, scored(feedback_policy(some_world.rules, gamma))
    )
    chance = [
        scored(random_policy(some_world.rules, torch.Generator().manual_seed(seed)))
        for seed in range(16)
    ]
    error = float(np.std([item.mean() for item in chance]))
    assert float(references.random.mean()) == pytest.approx(float(np.mean(chance)), abs=4.5 * error)


def test_the_constant_action_is_the_winner_of_the_search():
    for dataset in (collected(), partly()[1]):
        search = dataset.train.search
        winner = search.finalists[search.final_returns.argmax()]
        np.testing.assert_array_equal(dataset.held_out.references.constant_action, winner)


def test_what_is_fixed_is_fixed_in_all_that_is_tried():
    dataset = partly()[1]
    for actions in (dataset.train.search.actions, dataset.train.search.finalists):
        for name, value in FIXED_VALUES.items():
            assert (actions[:, PARAMETERS.index(name)] == np.float32(value)).all()
    assert len(np.unique(dataset.train.search.actions[:, 0])) > 100


def acts_of_norm(monkeypatch: pytest.MonkeyPatch, config: ActorCriticConfig) -> list[torch.Tensor]:
    """All actions of the behaviour whose observations are measured."""
    observed: list[torch.Tensor] = []

    def recording(some_world: World, colonies: Colonies, act: ColonyPolicy) -> Any:
        def noting(rows: torch.Tensor, now: Colonies) -> torch.Tensor:
            observed.append(act(rows, now))
            return observed[-1]

        return original(some_world, colonies, noting)

    original = room.episodes
    monkeypatch.setattr(room, "episodes", recording)
    collect(config, SEED)
    return observed


def test_what_is_fixed_is_fixed_in_what_is_seen(monkeypatch: pytest.MonkeyPatch):
    actions = torch.cat(acts_of_norm(monkeypatch, small("actor_critic", **PARTLY)))
    for name, value in FIXED_VALUES.items():
        assert (actions[:, PARAMETERS.index(name)] == torch.tensor(value)).all()
    assert len(actions[:, 0].unique()) > 100


@pytest.mark.slow
def test_the_shipped_task_is_worth_learning():
    """Holding a size takes feedback: a controller earns far more than any constant action, and
    chance nothing.
    """
    dataset = collect(params_with({}).actor_critic, 0)
    chance, constant, feedback = (
        float(values.mean()) for values in dataset.held_out.references[:3]
    )
    assert feedback >= 1.25 * constant > 0
    assert chance < constant
    assert chance == pytest.approx(-2.76, abs=0.3)
    assert constant == pytest.approx(4.58, abs=0.8)
    assert feedback == pytest.approx(8.81, abs=0.2)
    assert dataset.held_out.references.constant_action[0] == pytest.approx(0.525, abs=0.02)
    assert 8 < dataset.held_out.references.feedback_gamma < 12


# Whose is it?


FOREIGN = "the dataset was not collected for actor_critic.env and .collect: {}; run `dvc repro`"

OTHERS: Mapping[str, tuple[dict[str, Any], str]] = {
    "more plates": (
        {"collect": {"n_train": 5}},
        "training plates have the shape (3, 60), not (5, 60)",
    ),
    "a wider plate": (
        {"env": {"width": 70}},
        "training plates have the shape (3, 60), not (3, 70)",
    ),
    "more held-out plates": (
        {"collect": {"n_held_out": 5}},
        "held-out plates have the shape (4, 60), not (5, 60)",
    ),
    "fewer plates outside": (
        {"collect": {"n_outside": 1}},
        "plates outside have the shape (2, 60), not (1, 60)",
    ),
    "none outside": (
        {"collect": {"n_outside": 0}},
        "plates outside have the shape (2, 60), not (0, 60)",
    ),
    "fewer colonies": (
        {"collect": {"held_out_colonies": 40}},
        "held-out colonies have the shape (64, 8, 2), not (40, 8, 2)",
    ),
    "larger colonies": (
        {"env": {"n0_max": 9}},
        "held-out colonies have the shape (64, 8, 2), not (64, 9, 2)",
    ),
    "more points": (
        {"collect": {"constant_search": 201}},
        "points of the search have the shape (392, 5), not (393, 5)",
    ),
    "other features": (
        {"env": {"features": "full"}},
        "means of node features have the shape (8,), not (11,)",
    ),
    "no small colonies": ({"env": {"n0_min": 3}}, "it has colonies of another size"),
    "colonies further up": ({"env": {"y_center": [0.5, 0.75]}}, "it has colonies of another place"),
    "colonies closer together": ({"env": {"y_spread": 0.0}}, "it has colonies of another place"),
    "a lower plate": ({"env": {"height": 50}}, "it has colonies of another place"),
    "other bounds": (
        {"env": {"action": {"bounds": {"gamma": [0.5, 14.0]}}}},
        "it has actions outside their bounds",
    ),
    "fixed numbers": (PARTLY, "it has numbers held that are free"),
}
"""The config's changes, and what of `collected` does not belong to it."""


@pytest.mark.parametrize("case", OTHERS)
def test_a_dataset_of_another_config_is_refused(case: str):
    changes, why = OTHERS[case]
    with pytest.raises(DatasetMismatch, match=f"^{re.escape(FOREIGN.format(why))}$"):
        check(small("actor_critic", **changes), collected())


@pytest.mark.parametrize(
    ("ours", "theirs"), [("fixed", "default_law"), ("user", "fixed"), ("default_law", "user")]
)
def test_plates_of_another_law_are_refused(ours: str, theirs: str):
    with pytest.raises(DatasetMismatch, match="it has plates of another law"):
        check(with_one_plate(ours)[0], with_one_plate(theirs)[1])


def test_numbers_fixed_at_another_value_are_refused():
    config, dataset = partly()
    changed = config.model_copy(update={"env": small_env(FIXED_VALUES | {"gamma": 7.4})})
    with pytest.raises(DatasetMismatch, match="it has numbers held that are free"):
        check(changed, dataset)
    check(config, dataset)


def small_env(fixed: dict[str, float]) -> Any:
    return small(
        "actor_critic", env={"action": PARTLY["env"]["action"] | {"fixed_params": fixed}}
    ).env


def spoiled(change: Callable[[dict[str, np.ndarray]], None], *path: str) -> Dataset:
    """With arrays changed of one part."""

    def replaced(part: Any, names: tuple[str, ...]) -> Any:
        if names:
            return part._replace(**{names[0]: replaced(getattr(part, names[0]), names[1:])})
        arrays = {name: array.copy() for name, array in part._asdict().items()}
        change(arrays)
        return type(part)(**arrays)

    return replaced(collected(), path)


def put(name: str, value: float) -> Callable[[dict[str, np.ndarray]], None]:
    def change(arrays: dict[str, np.ndarray]) -> None:
        arrays[name].flat[0] = value

    return change


SPOILED = {
    "a soft plate": (put("intensity", 0.0), ("held_out", "outside"), "plates of another law"),
    "a plate of nothing": (put("intensity", np.nan), ("train", "plates"), "plates of another law"),
    "a plate of a user": (put("kind", USER), ("held_out", "plates"), "plates of another law"),
    "no cell": (put("n", 0), ("held_out", "colonies"), "colonies of another size"),
    "too many cells": (put("n", 9), ("held_out", "colonies_outside"), "colonies of another size"),
    "no such plate": (
        put("substrate", 4),
        ("held_out", "colonies"),
        "colonies on plates that are not there",
    ),
    "no plate": (
        put("substrate", -1),
        ("held_out", "colonies"),
        "colonies on plates that are not there",
    ),
    "a cell beyond": (put("pos", 7.0), ("held_out", "colonies"), "colonies of another place"),
    "a cell nowhere": (
        put("pos", np.nan),
        ("held_out", "colonies_outside"),
        "colonies of another place",
    ),
    "an action of nothing": (
        put("actions", np.nan),
        ("train", "search"),
        "actions outside their bounds",
    ),
    "a deletion of more than all": (
        put("actions", 1.1),
        ("train", "search"),
        "actions outside their bounds",
    ),
}


@pytest.mark.parametrize("case", SPOILED)
def test_a_dataset_with_impossible_values_is_refused(case: str):
    change, path, why = SPOILED[case]
    with pytest.raises(DatasetMismatch, match=f"it has {why}; run `dvc repro`"):
        check(CONFIG, spoiled(change, *path))


def test_parts_of_another_shape_are_refused():
    fewer = collected().held_out.references._replace(constant=np.zeros(63, np.float32))
    dataset = collected()._replace(held_out=collected().held_out._replace(references=fewer))
    with pytest.raises(
        DatasetMismatch, match=r"returns of the constant action have the shape \(63,\), not \(64,\)"
    ):
        check(CONFIG, dataset)
