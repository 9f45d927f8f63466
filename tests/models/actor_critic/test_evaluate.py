"""Scores of outcomes made by hand, and outcomes of small worlds that are known in advance."""

import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from quatrain.envs.colony.config import OVERFLOW, REASONS, SUCCESS, TIMEOUT
from quatrain.envs.colony.dynamics import World, make_world
from quatrain.envs.colony.plates import EXPONENTIAL, LINEAR, make_plates
from quatrain.envs.colony.policies import feedback_policy
from quatrain.envs.colony.world import returns
from quatrain.models.actor_critic import colony_scores as scoring
from quatrain.models.actor_critic import train
from quatrain.models.actor_critic.colony_data import (
    Dataset,
    HeldOut,
    InitialColonies,
    References,
    make_colonies,
)
from quatrain.models.actor_critic.colony_scores import Outcome, final_centroids, run_episodes
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.evaluate import evaluate
from quatrain.models.actor_critic.train import NOT_EVALUATED, Best, SeedState, State
from tests.conftest import small
from tests.models.actor_critic.learners import dataset_of

NAN = float("nan")
STEPS = 6


def outcome(
    earned: Sequence[float], reasons: Sequence[int] | None = None, **traces: Any
) -> Outcome:
    """Episodes of six steps with these returns; what is not given stays at its aim."""
    count = len(earned)
    aims = {
        "lengths": np.full(count, STEPS),
        "reasons": np.full(count, TIMEOUT) if reasons is None else np.array(reasons),
        "components": np.zeros((count, 6)),
        "n": np.full((STEPS, count), 6.0),
        "centroid": np.full((STEPS, count, 2), 30.0),
        "action": np.zeros((STEPS, count, 5)),
    }
    return Outcome(returns=np.array(earned, float), **(aims | traces))


def dataset_with(
    references: Mapping[str, Sequence[float]], count: int, kinds: Sequence[int]
) -> Dataset:
    """Each plate has equally many held-out colonies; those outside have 3 cells."""
    plates = make_plates(np.array(kinds), np.full(len(kinds), 0.01), np.ones(len(kinds)), 60)
    substrate = np.arange(count) * len(kinds) // count
    starts = InitialColonies(np.full(count, 2), np.zeros((count, 8, 2), np.float32), substrate)
    earned = [np.resize(np.float32(values), count) for values in references.values()]
    ours = References(*earned, None, None, np.zeros(5, np.float32), feedback_gamma=1)
    outside = starts._replace(n=np.full(count, 3))
    return Dataset(None, HeldOut(plates, starts, plates, outside, ours))


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> Any:
    def scored(
        *outcomes: Outcome,
        drawn: Outcome | None = None,
        outside: Outcome | None = None,
        kinds: Sequence[int] = (LINEAR, EXPONENTIAL),
        n_outside: int = 2,
        plates: str = "default_law",
        evaluate_every: int = 0,
        **references: Sequence[float],
    ) -> dict[str, float]:
        """What `evaluate` makes of outcomes made by hand, one per seed."""

        def run_policy(
            _config: Any, of: SeedState, _plates: Any, starts: InitialColonies, draws: Any = None
        ) -> Outcome:
            if draws:
                return drawn or outcomes[0]
            return outside or outcomes[0] if starts.n[0] == 3 else outcomes[int(of.updates)]

        monkeypatch.setattr(scoring, "run_policy", run_policy)
        validated = 6.5 if evaluate_every else NOT_EVALUATED
        best = Best({}, torch.tensor(validated), torch.tensor(1.0), torch.tensor(3))
        seeds = len(outcomes)
        sizes = {"n_train": 1, "n_held_out": 1} if plates != "default_law" else {}
        config = small(
            "actor_critic",
            seeds=seeds,
            collect={"n_outside": n_outside, "plates": plates, **sizes},
            train={"evaluate_every": evaluate_every},
        )
        state = State(*[(None,) * seeds] * 6, updates=tuple(torch.arange(seeds)))
        state = state._replace(best=(best,) * seeds)
        references = {"random": [0.0], "constant": [5.0], "feedback": [10.0]} | references
        dataset = dataset_with(references, len(outcomes[0].returns), kinds)
        return evaluate(config, state, dataset, 3).scores

    return scored


def test_margin_fraction_and_score_compare_means(scored: Any):
    """A margin over a loss is a share of its size; the score is between chance and controller."""
    references = {"random": [-3.0, -1.0], "constant": [2.0, 6.0], "feedback": [9.0, 7.0]}
    scores = scored(outcome([7.0, 5.0]), **references)
    assert [scores[f"{name}_return"] for name in references] == [-2, 4, 8]
    names = ("return_mean", "margin_over_constant", "fraction_of_feedback", "normalised_score")
    assert [scores[name] for name in names] == pytest.approx([6, 0.5, 0.75, 0.8])
    scores = scored(outcome([-1.0, -1.0]), random=[-8.0], constant=[-4.0], feedback=[2.0])
    assert [scores[name] for name in names] == pytest.approx([-1, 0.75, -0.5, 0.7])
    scores = scored(outcome([1.0, 3.0]), random=[4.0], constant=[0.0], feedback=[4.0])
    assert [scores[name] for name in names[:3]] == pytest.approx([2, 2e6, 0.5])
    assert np.isnan(scores["normalised_score"])


def test_sizes_count_once_they_had_time_to_settle(scored: Any):
    """From the fourth step on, when one colony has 2 and 4 cells and one has ended; aim: 6."""
    n = np.array([[60, 60, 60, 2, 4, NAN], [60, 60, 60, NAN, NAN, NAN]]).T
    scores = scored(outcome([0.0, 0.0], n=n, lengths=np.array([5, 3])))
    assert scores["size_rmse"] == pytest.approx(((16 + 4) / 2) ** 0.5)
    assert scores["nodes_mean"] == pytest.approx((6 * 60 + 2 + 4) / 8)
    assert scores["length_mean"] == 4
    short = outcome([0.0, 0.0], n=n[:3], centroid=np.ones((3, 2, 2)), lengths=np.array([3, 2]))
    assert np.isnan(scored(short)["size_rmse"])


def test_lanes_are_measured_from_the_middle_and_progress_where_each_colony_ended(scored: Any):
    centroid = np.full((3, 3, 2), 30.0)
    centroid[..., 0] = [[5, 29.5, 1], [10, NAN, 80], [11.8, NAN, NAN]]
    centroid[..., 1] = [[33, 30, 26], [30, NAN, 30], [30, NAN, NAN]]
    result = outcome([0.0] * 3, centroid=centroid, lengths=np.array([3, 1, 2]))
    np.testing.assert_array_equal(final_centroids(result)[:, 0], [11.8, 29.5, 80])
    scores = scored(result)
    assert scores["final_progress"] == pytest.approx((0.2 + 0.5 + 1) / 3)
    assert scores["lane_rms"] == pytest.approx(((9 + 16) / 6) ** 0.5)


def test_success_is_a_reason_not_a_length(scored: Any):
    reasons = [SUCCESS, TIMEOUT, SUCCESS, OVERFLOW]
    scores = scored(outcome([0.0] * 4, reasons, lengths=np.array([3, 6, 4, 2])))
    assert (scores["success_rate"], scores["steps_to_goal"]) == (0.5, 3.5)
    shares = {name: scores[f"reason/{name}"] for name in REASONS[1:]}
    some = {"success": 0.5, "overflow": 0.25, "timeout": 0.25}
    assert shares == dict.fromkeys(REASONS[1:], 0) | some
    scores = scored(outcome([1.0, 2.0]))
    assert (scores["success_rate"], np.isnan(scores["steps_to_goal"])) == (0, True)


def test_returns_stand_by_kind_of_plate_where_there_is_one(scored: Any):
    result = outcome([1.0, 3.0, 10.0, 20.0])
    scores = scored(result)
    assert (scores["return_linear"], scores["return_exponential"]) == (2, 15)
    scores = scored(result, kinds=(LINEAR, LINEAR))
    assert scores["return_linear"] == 8.5
    assert "return_exponential" not in scores


def test_what_is_drawn_and_what_lies_outside_have_scores_of_their_own(scored: Any):
    others = {"drawn": outcome([1.0, 2.0]), "outside": outcome([-1.0, -2.0], [SUCCESS, OVERFLOW])}
    scores = scored(outcome([7.0, 9.0]), **others)
    assert (scores["return_mean"], scores["stochastic_return_mean"]) == (8, 1.5)
    assert (scores["outside/return_mean"], scores["outside/success_rate"]) == (-1.5, 0.5)
    scores = scored(outcome([7.0, 9.0]), **others, n_outside=0)
    assert not [name for name in scores if name.startswith("outside")]


@pytest.mark.parametrize(("noise", "half"), [(0.0, 0.0), (4.0, 0.13)])
def test_intervals_are_of_pairs(scored: Any, noise: float, half: float):
    """Where all earn more with some colonies, the margin is sure though returns are not."""
    luck = np.linspace(2, 18, 40)
    earned = 1.5 * luck + np.where(np.arange(40) % 2, noise, -noise)
    scores = scored(outcome(earned), constant=luck, feedback=2 * luck, kinds=(LINEAR,) * 40)
    assert scores["return_mean_held_out_low"] < 14 < 16 < scores["return_mean_held_out_high"]
    for name, value, spread in (
        ("margin_over_constant", 0.5, half),
        ("fraction_of_feedback", 0.75, half / 2),
    ):
        assert scores[name] == pytest.approx(value)
        sides = value - scores[f"{name}_held_out_low"], scores[f"{name}_held_out_high"] - value
        assert 0.5 * spread - 1e-6 < min(sides) <= max(sides) < 1.6 * spread + 1e-6


def test_intervals_are_over_plates_not_colonies(scored: Any):
    """Colonies of a plate that earn alike are as one; of a given plate each counts."""
    of_plates = np.linspace(2, 18, 16)
    colonies = np.repeat(of_plates, 10)

    def width(count: int, plates: str = "default_law") -> float:
        kinds = (LINEAR,) * count
        scores = scored(outcome(colonies), kinds=kinds, plates=plates, n_outside=0)
        return scores["return_mean_held_out_high"] - scores["return_mean_held_out_low"]

    assert width(16) == pytest.approx(2 * 1.96 * of_plates.std() / 16**0.5, rel=0.2)
    assert width(1, "two_ridges") == pytest.approx(width(16) / 10**0.5, rel=0.25)
    few = scored(outcome(colonies), kinds=(LINEAR,) * 3)
    assert not [name for name in few if name.endswith(("_low", "_high"))]


@pytest.mark.parametrize("evaluate_every", [0, 2])
def test_without_evaluations_while_training_the_last_one_warns(scored: Any, evaluate_every: int):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scored(outcome([1.0, 2.0], [TIMEOUT, OVERFLOW]), evaluate_every=evaluate_every)
    lines = [str(item.message) for item in caught]
    said = [line for line in lines if "no held-out colony reaches the goal (learner 0)" in line]
    assert len(said) == (evaluate_every == 0)


def test_the_weights_that_were_scored_are_named(scored: Any):
    scores = scored(outcome([7.0, 5.0]), evaluate_every=2)
    assert (scores["validation_return"], scores["best_transitions"]) == (6.5, 3 * 24 * 8)
    assert "validation_return" not in scored(outcome([7.0, 5.0]))


# Played.


@cache
def untrained() -> tuple[ActorCriticConfig, Dataset, State]:
    """A learner that learned nothing yet, whose actions depend on what it sees."""
    config = small("actor_critic", env={"max_steps": 9})
    dataset = dataset_of(config)
    state = train.init_state(config, dataset, 0)
    draws = torch.Generator().manual_seed(0)
    for name, weight in state.best[0].params.items():
        if name.startswith("actor"):
            weight += 0.3 * torch.randn(weight.shape, generator=draws)
    return config, dataset, state


def held_out() -> tuple[World, InitialColonies]:
    config, dataset, _ = untrained()
    return make_world(config.env, dataset.held_out.plates), dataset.held_out.colonies


def test_returns_are_undiscounted_sums_of_weighted_components():
    some_world, starts = held_out()
    act = feedback_policy(some_world.rules, torch.full((64,), 9.0))
    result = run_episodes(some_world, starts, act)
    expected = returns(some_world, make_colonies(some_world.rules, starts), act)
    np.testing.assert_allclose(result.returns, expected, atol=1e-5)
    names, weights = zip(*some_world.rules.reward_weights, strict=True)
    np.testing.assert_allclose(result.returns, result.components @ np.array(weights))
    np.testing.assert_array_equal(result.components[:, names.index("time")], -result.lengths)
    assert SUCCESS in result.reasons


def test_evaluation_repeats_and_only_draws_and_intervals_depend_on_the_seed():
    config, dataset, state = untrained()
    item, same, other = (evaluate(config, state, dataset, seed).scores for seed in (1, 1, 2))
    np.testing.assert_equal(same, item)
    differ = {name for name in item if not np.array_equal(item[name], other[name], equal_nan=True)}
    rest = {name for name in differ if not name.endswith(("_low", "_high"))}
    assert rest == {"stochastic_return_mean"}


def test_held_out_plates_and_those_outside_are_worlds_of_their_own():
    """One colony, once on each: a stiffer plate throws further."""
    config, dataset, state = untrained()
    soft, stiff = (
        make_plates(np.array([LINEAR]), np.zeros(1), np.array([b]), 60) for b in (0.1, 50.0)
    )
    starts = dataset.held_out.colonies._replace(substrate=np.zeros(64, np.int64))
    held_out = dataset.held_out._replace(colonies=starts, colonies_outside=starts)
    scores = []
    for plates, outside in ((soft, stiff), (stiff, soft)):
        moved = dataset._replace(held_out=held_out._replace(plates=plates, outside=outside))
        scores.append(evaluate(config, state, moved, 0).scores)
    item, other = scores
    assert item["return_mean"] == other["outside/return_mean"] != other["return_mean"]
    assert item["outside/return_mean"] == other["return_mean"]
    assert item["final_progress"] < other["final_progress"]
