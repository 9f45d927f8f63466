"""a world -> reference policies without learning: the best constant action, the best throw of the
controller.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from quatrain.envs.colony.dynamics import World
from quatrain.envs.colony.episodes import repeat, returns
from quatrain.envs.colony.policies import (
    action_bounds,
    constant_policy,
    feedback_policy,
    fix_parameters,
    with_fixed_parameters,
)
from quatrain.envs.colony.rules import PARAMETERS
from quatrain.envs.colony.world import start

FIRST_COLONIES = 16
COLONIES = 32
# Colonies that evaluate each action: of the first sample, of a round, of the last comparison.
FINAL_COLONIES = 512
ROUNDS = 4
POINTS = 48
ELITES = 10
FINALISTS = 8
# Range of constant deletion ratios that can hold a colony's size for a while.
STEADY_RATIO = (0.45, 0.57)
GAMMAS = 8
GAMMA_COLONIES = 128


class Search(NamedTuple):
    """Holds the constant actions that were tried, their mean returns, the final comparison, and the
    best action.
    """

    actions: Float[Tensor, "point 5"]
    returns: Float[Tensor, " point"]
    finalists: Float[Tensor, "finalist 5"]
    final_returns: Float[Tensor, " finalist"]
    best: Float[Tensor, "5"]


def best_constant(
    world: World, points: int, fixed: Mapping[str, float], generator: Generator
) -> Search:
    """Searches the best constant action: random sample, rounds of the cross-entropy method, final
    comparison.

    Each of these evaluates its actions on newly drawn colonies.
    """
    low, high = action_bounds(world.rules)
    actions = [_first_points(world, points, fixed, generator)]
    scores = [_mean_returns(world, actions[0], FIRST_COLONIES, generator)]
    for _ in range(ROUNDS):
        elite = _best(actions[-1], scores[-1], ELITES)
        noise = torch.randn(POINTS, 5, generator=generator)
        sample = elite.mean(0) + elite.std(0, correction=0) * noise
        actions.append(fix_parameters(fixed, sample).clamp(low, high))
        scores.append(_mean_returns(world, actions[-1], COLONIES, generator))
    all_actions = torch.cat(actions)
    all_scores = torch.cat(scores)
    finalists = _best(all_actions, all_scores, FINALISTS)
    final_returns = _mean_returns(world, finalists, FINAL_COLONIES, generator)
    return Search(
        actions=all_actions,
        returns=all_scores,
        finalists=finalists,
        final_returns=final_returns,
        best=finalists[final_returns.argmax()],
    )


def best_gamma(world: World, fixed: Mapping[str, float], generator: Generator) -> Float[Tensor, ""]:
    """Searches the γ with which the feedback controller has the highest mean return."""
    bounds = world.rules.bounds[PARAMETERS.index("gamma")]
    gammas = torch.linspace(bounds.low, bounds.high, GAMMAS)
    colonies = repeat(start(world, GAMMA_COLONIES, generator), GAMMAS)
    act = with_fixed_parameters(
        fixed, feedback_policy(world.rules, gammas.repeat_interleave(GAMMA_COLONIES))
    )
    return gammas[returns(world, colonies, act).view(GAMMAS, -1).mean(1).argmax()]


def _first_points(
    world: World, points: int, fixed: Mapping[str, float], generator: Generator
) -> Tensor:
    """Draws half of the points anywhere, the other half where a colony holds its size and grows
    straight on.
    """
    low, high = action_bounds(world.rules)
    actions = low + (high - low) * torch.rand(points, 5, generator=generator)
    half = points // 2
    least, most = STEADY_RATIO
    ratio = least + (most - least) * torch.rand(half, generator=generator)
    actions[:half, PARAMETERS.index("delete_ratio")] = ratio
    actions[:half, PARAMETERS.index("theta")] = 0
    return fix_parameters(fixed, actions).clamp(low, high)


def _mean_returns(
    world: World, actions: Tensor, colonies: int, generator: Generator
) -> Float[Tensor, " point"]:
    """Computes the mean return of each action, all on the same colonies."""
    starts = repeat(start(world, colonies, generator), len(actions))
    act = constant_policy(actions.repeat_interleave(colonies, 0))
    return returns(world, starts, act).view(len(actions), -1).mean(1)


def _best(actions: Tensor, scores: Tensor, count: int) -> Tensor:
    return actions[scores.argsort(descending=True, stable=True)[:count]]
