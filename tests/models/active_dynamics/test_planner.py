"""The search for actions: plain loops, and coloured noise."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from quatrain.models.active_dynamics.acquisition import WORST, Score
from quatrain.models.active_dynamics.config import Planner
from quatrain.models.active_dynamics.planner import Plan, colouring, first_plan, improved, replan
from tests.conftest import small
from tests.torch_numbers import seeded

LEARNERS, SIZE, BOUND = 3, 2, 0.5
SMALL = {"candidates": 11, "iterations": 4, "horizon": 6, "elites": 5, "keep": 3, "alpha": 0.2}


def configured(**changes: Any) -> Planner:
    return small("active_dynamics", train={"planner": SMALL | changes}).train.planner


def some_plan(config: Planner) -> Plan:
    shape = (LEARNERS, 1 + config.keep, config.horizon, SIZE)
    sequences = torch.rand(shape, generator=seeded(5)) * 2 * BOUND - BOUND
    return Plan(sequences[:, 0], sequences[:, 1:])


def some_noise(config: Planner) -> Tensor:
    count = config.candidates - 1 - config.keep
    shape = (config.iterations, LEARNERS, count, config.horizon, SIZE)
    return torch.randn(shape, generator=seeded(6))


GOAL = torch.randn(LEARNERS, 6, SIZE, generator=seeded(7)) * BOUND
"""Of each learner another one, partly outside the box."""


def nearness(actions: Tensor, goal: Tensor = GOAL[:, None]) -> Tensor:
    """Returns scores; those of candidates that begin with a hard push have failed."""
    near = -(actions - goal).square().sum((-2, -1))
    return near.masked_fill(actions[..., 0, 0] > 0.9 * BOUND, WORST)


class Recorded:
    """Records the arguments of a score."""

    def __init__(self, score: Score) -> None:
        self.score = score
        self.actions: list[Tensor] = []

    def __call__(self, actions: Tensor) -> Tensor:
        self.actions.append(actions.clone())
        return self.score(actions)


def plain_icem(config: Planner, mean: Tensor, elites: Any, noise: Tensor, score: Score) -> Plan:
    deviation = torch.full_like(mean, config.init_std * BOUND)
    for draws in noise:
        drawn = [(mean + deviation * item).clamp(-BOUND, BOUND) for item in draws]
        ranked = sorted([mean, *elites, *drawn], key=score, reverse=True)
        best = torch.stack(ranked[: config.elites])
        spread = (best - best.mean(0)).square().mean(0).sqrt()
        mean = (1 - config.alpha) * best.mean(0) + config.alpha * mean
        deviation = (1 - config.alpha) * spread + config.alpha * deviation
        elites = ranked[: config.keep]
    return Plan(mean, torch.stack(elites))


def test_the_search_is_that_of_plain_loops():
    config = configured(init_std=1.5)
    plan, noise, recorded = some_plan(config), some_noise(config), Recorded(nearness)
    result = improved(config, BOUND, recorded, plan, noise)
    for row in range(LEARNERS):
        inputs = plan.mean[row], list(plan.elites[row]), noise[:, row]
        expected = plain_icem(config, *inputs, partial(nearness, goal=GOAL[row]))
        torch.testing.assert_close(result.mean[row], expected.mean)
        torch.testing.assert_close(result.elites[row], expected.elites)
    assert max(actions.abs().amax() for actions in recorded.actions) == BOUND


def test_a_learner_whose_scores_all_failed_leaves_the_others_alone():
    config = configured(keep=0)
    plan, noise = first_plan(config, LEARNERS, SIZE), some_noise(config)
    failed = torch.tensor([False, False, True])[:, None]
    broken = lambda actions: nearness(actions).masked_fill(failed, WORST)  # noqa: E731
    first, second = (
        improved(config, BOUND, score, plan, noise).mean for score in (nearness, broken)
    )
    assert torch.equal(first[:2], second[:2])
    assert not torch.equal(first[2], second[2])
    assert (second.abs() <= BOUND).all()


def test_a_search_starts_from_the_last_plan_later_by_its_age_and_repeats_its_end():
    config = configured(replan_every=8, hold=2)
    plan, recorded = some_plan(config), Recorded(nearness)
    replan(config, BOUND, recorded, plan, seeded())
    later = [4, 5, 5, 5, 5, 5]
    assert torch.equal(recorded.actions[0][:, 0], plan.mean[:, later])
    assert torch.equal(recorded.actions[0][:, 1 : 1 + config.keep], plan.elites[:, :, later])


# Noise.


def draws_of(**changes: Any) -> Tensor:
    """Returns what is drawn in each iteration, of unit variance before the colouring."""
    config = configured(init_std=0.01, **changes)
    recorded = Recorded(lambda actions: 0 * actions.sum((2, 3)))
    replan(config, BOUND, recorded, first_plan(config, LEARNERS, SIZE), seeded())
    return torch.stack(recorded.actions)[:, :, 1 + config.keep :] / (0.01 * BOUND)


@pytest.mark.parametrize("colour", [0.0, 2.0])
def test_noise_has_unit_variance_and_the_spectral_slope_of_its_colour(colour: float):
    drawn = draws_of(candidates=4000, iterations=1, horizon=16, colour=colour)[0]
    torch.testing.assert_close(drawn.var((0, 1, 3)), torch.ones(16), rtol=0.05, atol=0)
    power = torch.fft.rfft(drawn, dim=2).abs().square().mean((0, 1, 3))[1:].log()
    frequency = torch.arange(1, 9).float().log()
    centred = frequency - frequency.mean()
    slope = float((centred * power).sum() / centred.square().sum())
    assert slope == pytest.approx(-colour, abs=0.03)
    for decisions in (1, 7):
        matrix = colouring(decisions, colour, torch.device("cpu"))
        torch.testing.assert_close((matrix @ matrix.T).diagonal(), torch.ones(decisions))


def test_learners_dimensions_and_iterations_have_noise_of_their_own():
    """The elites of equal scores are nearly all candidates, so that the mean stays near 0."""
    drawn = draws_of(candidates=2000, iterations=2, horizon=1, elites=1900)[..., 0, :]
    correlation = torch.corrcoef(drawn.movedim(2, 3).flatten(0, 2))
    assert (correlation - torch.eye(2 * LEARNERS * SIZE)).abs().amax() < 0.1
