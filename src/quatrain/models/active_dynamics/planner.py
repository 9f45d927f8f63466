"""score of actions -> the decisions to take: sample, score, move towards the best.

iCEM ('Sample-efficient Cross-Entropy Method for Real-time Planning', 2020) draws around a mean with
coloured noise, scores the previous best again, and moves mean and deviation to those of the elites.
MPPI ('Information Theoretic MPC for Model-Based Reinforcement Learning', 2017) draws the same way,
keeps the deviation, and weights all candidates:

    mean <- Σ_n softmax_n( (score_n - mean of scores) / (deviation of scores · temperature) )
        candidate_n

over the candidates whose score is finite.
"""

from functools import cache
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from quatrain.frameworks.torch import threads
from quatrain.models.active_dynamics.acquisition import WORST, Score
from quatrain.models.active_dynamics.config import Planner


class Plan(NamedTuple):
    """Holds the decisions from the last planning on, and its best sequences, best first."""

    mean: Float[Tensor, "learner decision action"]
    elites: Float[Tensor, "learner keep decision action"]


class ScoredCandidates(NamedTuple):
    """Holds the candidates of an iteration, the distribution they are from, and their scores."""

    mean: Float[Tensor, "learner decision action"]
    deviation: Float[Tensor, "learner decision action"]
    candidates: Float[Tensor, "learner n decision action"]
    scores: Float[Tensor, "learner n"]

    def best(self, count: int) -> Float[Tensor, "learner best decision action"]:
        places = self.scores.topk(count, 1).indices
        return self.candidates.take_along_dim(places[:, :, None, None], 1)


def first_plan(config: Planner, learners: int, action_size: int) -> Plan:
    """Returns the plan of no actions."""
    mean = torch.zeros(learners, config.horizon, action_size)
    return Plan(mean, mean[:, None].repeat(1, config.keep, 1, 1))


@threads.single_threaded(if_small=True)
@torch.no_grad()
def replan(
    config: Planner,
    bound: float,
    score: Score,
    plan: Plan,
    generator: torch.Generator,
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


def decision(config: Planner, plan: Plan, age: int) -> Float[Tensor, "learner action"]:
    return plan.mean[:, age // config.hold]


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
    move = {"icem": _to_elites, "mppi": _to_weighted}[config.kind]
    mean, elites = plan
    deviation = torch.full_like(mean, config.init_std * bound)
    for draws in noise:
        drawn = torch.addcmul(mean[:, None], deviation[:, None], draws).clamp(-bound, bound)
        candidates = torch.cat([mean[:, None], elites, drawn], 1)
        scored = ScoredCandidates(mean, deviation, candidates, score(candidates))
        mean, deviation = move(config, scored)
        elites = scored.best(config.keep)
    return Plan(mean, elites)


@cache
def colouring(
    decisions: int,
    colour: float,
    device: torch.device,
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


def _to_elites(config: Planner, scored: ScoredCandidates) -> tuple[Tensor, Tensor]:
    """Returns mean and deviation of the elites, mixed with the previous ones by `alpha`."""
    elites = scored.best(config.elites)
    mean = elites.mean(1).lerp(scored.mean, config.alpha)
    return mean, elites.std(1, correction=0).lerp(scored.deviation, config.alpha)


def _to_weighted(config: Planner, scored: ScoredCandidates) -> tuple[Tensor, Tensor]:
    """Weights candidates by standardised scores; all alike if all have failed."""
    failed = scored.scores <= WORST
    failed = failed & ~failed.all(1, keepdim=True)
    count = (~failed).sum(1, keepdim=True)
    mean = scored.scores.masked_fill(failed, 0).sum(1, keepdim=True) / count
    scores = (scored.scores - mean).masked_fill(failed, 0)
    deviation = (scores.square().sum(1, keepdim=True) / count).sqrt()
    scale = deviation.clamp(min=torch.finfo(scores.dtype).tiny) * config.temperature
    weights = (scores / scale).masked_fill(failed, -torch.inf).softmax(1)
    return (weights[:, :, None, None] * scored.candidates).sum(1), scored.deviation
