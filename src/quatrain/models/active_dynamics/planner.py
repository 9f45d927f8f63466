"""score of actions -> the decisions to take: sample, score, move towards the best.

iCEM ('Sample-efficient Cross-Entropy Method for Real-time Planning', 2020) draws around a mean with
coloured noise, scores the previous best again, and moves mean and deviation to those of the elites.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from quatrain.frameworks.torch import single_threaded
from quatrain.models.active_dynamics.acquisition import Score, scorer
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig, Planner
from quatrain.models.active_dynamics.family import Surrogate


class Plan(NamedTuple):
    """Holds the decisions from the last planning on, and its best sequences, best first."""

    mean: Float[Tensor, "learner decision action"]
    elites: Float[Tensor, "learner keep decision action"]


def first_plan(config: Planner, learners: int, action_size: int) -> Plan:
    """Returns the plan of no actions."""
    mean = torch.zeros(learners, config.horizon, action_size)
    return Plan(mean, mean[:, None].repeat(1, config.keep, 1, 1))


@single_threaded(if_small=True)
@torch.no_grad()
def replan(
    config: Planner, bound: float, score: Score, plan: Plan, generator: torch.Generator
) -> Plan:
    """Plans anew, `replan_every` transitions after the last plan, in [-bound, bound]."""
    learners, decisions, action_size = plan.mean.shape
    drawn = config.candidates - 1 - config.keep
    white = torch.randn(
        (config.iterations, learners, drawn, action_size, decisions),
        generator=generator,
        device=generator.device,
    )
    noise = (white @ colouring(decisions, config.colour, generator.device)).mT
    return improved(config, bound, score, shifted(plan, config.replan_every // config.hold), noise)


def next_plan(
    config: ActiveDynamicsConfig,
    surrogate: Callable[[], Surrogate],
    plan: Plan,
    age: int,
    generator: torch.Generator,
) -> Plan:
    """Returns the plan for the transition `age` after the first that is planned.

    Plans anew every `replan_every` transitions, and only then asks for the surrogate.
    """
    settings = config.train.planner
    if age % settings.replan_every:
        return plan
    score = scorer(surrogate(), config.train.acquisition, settings.hold)
    return replan(settings, config.env.action_bound, score, plan, generator)


def decision(config: Planner, plan: Plan, age: int) -> Float[Tensor, "learner action"]:
    return plan.mean[:, age % config.replan_every // config.hold]


def shifted(plan: Plan, decisions: int) -> Plan:
    """Shifts a plan by some decisions; the last one is repeated."""

    def later(sequence: Tensor) -> Tensor:
        return torch.cat([sequence[..., decisions:, :], *[sequence[..., -1:, :]] * decisions], -2)

    return Plan(later(plan.mean), later(plan.elites))


def improved(
    config: Planner,
    bound: float,
    score: Score,
    plan: Plan,
    noise: Float[Tensor, "iteration learner drawn decision action"],
) -> Plan:
    """Runs all iterations; the mean and the previous elites are scored beside new draws."""
    mean, elites = plan
    deviation = torch.full_like(mean, config.init_std * bound)
    for draws in noise:
        drawn = torch.addcmul(mean[:, None], deviation[:, None], draws).clamp(-bound, bound)
        candidates = torch.cat([mean[:, None], elites, drawn], 1)
        best = score(candidates).topk(config.elites, 1).indices
        elites = candidates.take_along_dim(best[:, :, None, None], 1)
        mean = elites.mean(1).lerp(mean, config.alpha)
        deviation = elites.std(1, correction=0).lerp(deviation, config.alpha)
        elites = elites[:, : config.keep]
    return Plan(mean, elites)


@cache
def colouring(
    decisions: int, colour: float, device: torch.device
) -> Float[Tensor, "decision decision"]:
    """Computes the matrix that turns white noise into coloured noise of unit variance.

    The noise has the power f^-colour at frequency f; the power of f = 0 is that of the lowest
    other. The matrix is symmetric, and periodic in the horizon.
    """
    frequency = torch.fft.fftfreq(decisions, dtype=torch.float64, device=device)
    power = frequency.abs().clamp(min=1 / decisions) ** -colour
    amplitude = (power / power.mean()).sqrt()
    white = torch.eye(decisions, dtype=torch.float64, device=device)
    return torch.fft.ifft(amplitude[:, None] * torch.fft.fft(white, dim=0), dim=0).real.float()
