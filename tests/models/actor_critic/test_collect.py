"""Plates, colonies, what is seen and what simple policies earn; datasets of another config."""

import re
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from quatrain.envs.colony import plates as colony_plates
from quatrain.envs.colony.config import RUNNING
from quatrain.envs.colony.dynamics import Colonies, advance, make_world
from quatrain.envs.colony.features import observe
from quatrain.envs.colony.policies import (
    ColonyPolicy,
    constant_policy,
    feedback_policy,
    noisy_policy,
    random_policy,
    with_fixed_parameters,
)
from quatrain.envs.colony.world import returns, start
from quatrain.errors import DatasetMismatch
from quatrain.frameworks.packing import flatten
from quatrain.frameworks.torch import generator_from_seed
from quatrain.models.actor_critic import colony_data as collecting
from quatrain.models.actor_critic.colony_data import Dataset, check, make_colonies
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.train import train as learn
from tests.conftest import shapes_unchecked, small

SEED = 11
FIXED = {"gamma": 7.3, "alpha": 1.1, "noise": 0.1}
PARTLY = {"env": {"action": {"active_params": ["delete_ratio", "theta"], "fixed_params": FIXED}}}
USER_PLATE = tuple(np.linspace(0.5, 9, 60).tolist())
CONFIG = small("actor_critic")
INTENSITIES = {"light": ([], []), "full": ([2], [16, 17, 18])}
"""Columns of cells and colonies, by env.features."""


def collect(config: ActorCriticConfig) -> Dataset:
    with shapes_unchecked():
        return collecting.collect(config, SEED)


@cache
def collected() -> Dataset:
    return collecting.collect(CONFIG, SEED)


@cache
def partly() -> tuple[ActorCriticConfig, Dataset]:
    """Where some numbers of an action are fixed, and all features are seen."""
    env = PARTLY["env"] | {"features": "full", "max_steps": 9}
    config = small("actor_critic", env=env, collect={"n_outside": 0})
    return config, collect(config)


@cache
def with_one_plate(plates: str) -> tuple[ActorCriticConfig, Dataset]:
    file = {"name": "inputs/actor_critic/mine.npy", "numbers": USER_PLATE}
    ours = {"plates": plates, "plates_file": file if plates == "user" else None}
    config = small("actor_critic", collect=ours | {"n_train": 1, "n_held_out": 1, "n_outside": 0})
    return config, collect(config)


def test_no_held_out_plate_or_colony_is_one_to_train_with():
    sizes = {"n_train": 300, "n_held_out": 300, "n_outside": 200}
    many = collect(small("actor_critic", collect=sizes))
    parts = many.train.plates, many.held_out.plates, many.held_out.outside
    train, held_out, outside = ({*zip(*plates[:3], strict=True)} for plates in parts)
    assert [len(train), len(held_out), len(outside)] == [300, 300, 200]
    assert not train & held_out
    assert not train & outside
    colonies = many.train.validation, many.held_out.colonies
    validation, held_out = ({(*row.ravel(),) for row in starts.pos} for starts in colonies)
    assert not validation & held_out


def test_held_out_colonies_come_back_as_they_began():
    train, held_out = collected()
    for plates, starts, place in (
        (train.plates, train.validation, 7),
        (held_out.plates, held_out.colonies, 3),
        (held_out.outside, held_out.colonies_outside, 4),
    ):
        colonies = make_colonies(CONFIG.env, starts)
        some_world = make_world(CONFIG.env, plates)
        fresh = start(some_world, len(starts.n), draws_of(place))
        assert all(torch.equal(*pair) for pair in zip(colonies, fresh, strict=True))


def draws_of(place: int) -> torch.Generator:
    return generator_from_seed(np.random.SeedSequence(SEED).spawn(8)[place])


PLATES = {
    "fixed": colony_plates.fixed_plate(60),
    "two_ridges": colony_plates.two_ridges_plate(60),
    "user": colony_plates.user_plate(np.array(USER_PLATE, np.float32)),
}


@pytest.mark.parametrize("plates", PLATES)
def test_the_only_plate_stands_on_both_sides(plates: str):
    config, dataset = with_one_plate(plates)
    for part in (dataset.train, dataset.held_out):
        np.testing.assert_equal(flatten(part.plates), flatten(PLATES[plates]))
    assert dataset.held_out.outside.intensity.shape == (0, 60)
    check(config, dataset)


# What is seen.


def seen_by_loop(config: ActorCriticConfig, dataset: Dataset) -> list[np.ndarray]:
    """Features of cells and of colonies in each step, with ln(1 + I) in place of I."""
    some_world, draws = make_world(config.env, dataset.train.plates), draws_of(5)
    rules, gamma = some_world.rules, sum(config.env.action.bounds.gamma) / 2
    cells, graphs = [], []
    steady = noisy_policy(rules, feedback_policy(rules, torch.full((64,), gamma)), 0.2, draws)
    for act in (steady, random_policy(rules, draws)):
        policy = with_fixed_parameters(config.env.action.fixed_params, act)
        colonies, rows = start(some_world, 64, draws), torch.arange(64)
        while len(rows):
            observed = observe(some_world, colonies, rules.max_nodes)
            cells += observed.node[observed.mask].tolist()
            graphs += observed.graph.tolist()
            step = advance(some_world, colonies, policy(rows, colonies))
            living = step.reason == RUNNING
            rows, colonies = rows[living], Colonies(*(leaf[living] for leaf in step.after))
    intensities = [np.array(cells), np.array(graphs)]
    for values, columns in zip(intensities, INTENSITIES[rules.features], strict=True):
        values[:, columns] = np.log1p(values[:, columns])
    return intensities


@pytest.mark.parametrize("which", ["all", "partly"])
def test_norm_is_the_mean_and_deviation_of_what_was_seen(which: str):
    config, dataset = (CONFIG, collected()) if which == "all" else partly()
    with shapes_unchecked():
        cells, graphs = seen_by_loop(config, dataset)
    assert len(cells) > 2000
    norm = dataset.train.norm
    for values, mean, std in (
        (cells, norm.node_mean, norm.node_std),
        (graphs, norm.graph_mean, norm.graph_std),
    ):
        np.testing.assert_allclose(mean, values.mean(0), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(std, values.std(0).clip(1e-3), rtol=1e-3, atol=1e-5)


# References.


def test_references_are_the_returns_of_the_chosen_policies_on_held_out_colonies():
    config, dataset = partly()
    some_world = make_world(config.env, dataset.held_out.plates)
    rules, references = config.env, dataset.held_out.references
    colonies = make_colonies(rules, dataset.held_out.colonies)

    def scored(act: ColonyPolicy) -> np.ndarray:
        policy = with_fixed_parameters(config.env.action.fixed_params, act)
        return returns(some_world, colonies, policy).numpy()

    search = dataset.train.search
    winner = search.finalists[search.final_returns.argmax()]
    np.testing.assert_array_equal(references.constant_action, winner)
    constant = constant_policy(torch.tensor(references.constant_action).expand(64, 5))
    np.testing.assert_array_equal(references.constant, scored(constant))
    gamma = torch.tensor(references.feedback_gamma).expand(64)
    np.testing.assert_array_equal(references.feedback, scored(feedback_policy(rules, gamma)))
    draws = (torch.Generator().manual_seed(seed) for seed in range(16))
    chance = [scored(random_policy(rules, each)).mean() for each in draws]
    error = float(np.std(chance))
    assert float(references.random.mean()) == pytest.approx(float(np.mean(chance)), abs=4.5 * error)


# Whose is it?


OTHERS: list[tuple[dict[str, Any], str]] = [
    ({"collect": {"n_train": 5}}, "training plates have the shape (3, 60), not (5, 60)"),
    ({"collect": {"n_held_out": 5}}, "held-out plates have the shape (4, 60), not (5, 60)"),
    ({"collect": {"n_outside": 1}}, "plates outside have the shape (2, 60), not (1, 60)"),
    ({"env": {"n0_max": 9}}, "held-out colonies have the shape (64, 8, 2), not (64, 9, 2)"),
    (
        {"collect": {"constant_search": 201}},
        "points of the search have the shape (392, 5), not (393, 5)",
    ),
    ({"env": {"features": "full"}}, "means of node features have the shape (8,), not (11,)"),
    ({"env": {"n0_min": 3}}, "it has colonies of another size"),
    ({"env": {"y_center": [0.5, 0.75]}}, "it has colonies of another place"),
    (
        {"env": {"action": {"bounds": {"gamma": [0.5, 14.0]}}}},
        "it has actions outside their bounds",
    ),
    (PARTLY, "it has numbers held that are free"),
]
"""The config's changes, and what of `collected` does not belong to it."""


def refused(why: str) -> Any:
    foreign = f"the dataset was not collected for actor_critic.env and .collect: {why}"
    return pytest.raises(DatasetMismatch, match=f"^{re.escape(foreign)}; run `dvc repro`$")


@pytest.mark.parametrize(("changes", "why"), OTHERS)
def test_a_dataset_of_another_config_is_refused(changes: dict[str, Any], why: str):
    with refused(why):
        next(learn(small("actor_critic", **changes), collected(), 0))


@pytest.mark.parametrize(
    ("ours", "theirs"), [("fixed", "default_law"), ("user", "fixed"), ("default_law", "user")]
)
def test_plates_of_another_law_are_refused(ours: str, theirs: str):
    with refused("it has plates of another law"):
        check(with_one_plate(ours)[0], with_one_plate(theirs)[1])


def test_colonies_on_no_plate_and_a_missing_return_are_refused():
    held_out = collected().held_out
    substrate = held_out.colonies.substrate.copy()
    substrate[0] = -1
    astray = held_out._replace(colonies=held_out.colonies._replace(substrate=substrate))
    fewer = held_out.references._replace(constant=held_out.references.constant[1:])
    for spoilt, why in (
        (astray, "it has colonies on plates that are not there"),
        (
            held_out._replace(references=fewer),
            "returns of the constant action have the shape (63,), not (64,)",
        ),
    ):
        with refused(why):
            check(CONFIG, collected()._replace(held_out=spoilt))
