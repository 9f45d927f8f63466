"""a world -> how well its colonies do without learning: the best constant action, and the controller's best throw."""

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

FIRST_COLONIES, COLONIES, FINAL_COLONIES = 16, 32, 512
"""That judge each point: of the first draw, of a round, of the last comparison."""
ROUNDS, POINTS, ELITES, FINALISTS = 4, 48, 10, 8
HOLDING = (0.45, 0.57)
"""Deletion ratios between which a constant one can hold a colony's size for a while."""
GAMMAS, GAMMA_COLONIES = 8, 128


class Search(NamedTuple):
    """Constant actions that were tried with their mean returns, those compared in the end, and the winner."""

    actions: Float[Tensor, "point 5"]
    returns: Float[Tensor, " point"]
    finalists: Float[Tensor, "finalist 5"]
    final_returns: Float[Tensor, " finalist"]
    best: Float[Tensor, "5"]


def best_constant(
    world: World, points: int, fixed: Mapping[str, float], generator: Generator
) -> Search:
    """Random points, then rounds of the cross-entropy method, then the best of all on colonies of their own."""
    low, high = action_bounds(world.rules)
    tried = [_first_points(world, points, fixed, generator)]
    scores = [_judged(world, tried[0], FIRST_COLONIES, generator)]
    for _ in range(ROUNDS):
        elite = _best(tried[-1], scores[-1], ELITES)
        spread = elite.std(0, correction=0) * torch.randn(POINTS, 5, generator=generator)
        tried.append(fix_parameters(fixed, elite.mean(0) + spread).clamp(low, high))
        scores.append(_judged(world, tried[-1], COLONIES, generator))
    actions, found = torch.cat(tried), torch.cat(scores)
    finalists = _best(actions, found, FINALISTS)
    final_returns = _judged(world, finalists, FINAL_COLONIES, generator)
    return Search(actions, found, finalists, final_returns, finalists[final_returns.argmax()])


def best_gamma(world: World, fixed: Mapping[str, float], generator: Generator) -> Float[Tensor, ""]:
    """The throw with which the feedback controller earns most."""
    gamma = world.rules.bounds[PARAMETERS.index("gamma")]
    tried = torch.linspace(gamma.low, gamma.high, GAMMAS)
    colonies = repeat(start(world, GAMMA_COLONIES, generator), GAMMAS)
    act = with_fixed_parameters(
        fixed, feedback_policy(world.rules, tried.repeat_interleave(GAMMA_COLONIES))
    )
    return tried[returns(world, colonies, act).view(GAMMAS, -1).mean(1).argmax()]


def _first_points(
    world: World, points: int, fixed: Mapping[str, float], generator: Generator
) -> Tensor:
    """Half of them anywhere, half where a colony holds its size and grows straight on."""
    low, high = action_bounds(world.rules)
    found = low + (high - low) * torch.rand(points, 5, generator=generator)
    half, ratio, theta = points // 2, PARAMETERS.index("delete_ratio"), PARAMETERS.index("theta")
    found[:half, ratio] = HOLDING[0] + (HOLDING[1] - HOLDING[0]) * torch.rand(
        half, generator=generator
    )
    found[:half, theta] = 0
    return fix_parameters(fixed, found).clamp(low, high)


def _judged(
    world: World, actions: Tensor, colonies: int, generator: Generator
) -> Float[Tensor, " point"]:
    """Mean return of each action, all on the same colonies."""
    starts = repeat(start(world, colonies, generator), len(actions))
    act = constant_policy(actions.repeat_interleave(colonies, 0))
    return returns(world, starts, act).view(len(actions), -1).mean(1)


def _best(actions: Tensor, scores: Tensor, count: int) -> Tensor:
    return actions[scores.argsort(descending=True, stable=True)[:count]]
