"""colonies -> actions without learning: random, constant, and a hand-written feedback controller; a
world -> the best constant action and throw of the controller, and the scale of what policies see.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Generator, Tensor

from quatrain.envs.colony.config import GRAPH_FEATURES, NODE_FEATURES, PARAMETERS, Env
from quatrain.envs.colony.dynamics import Colonies, World
from quatrain.envs.colony.features import compress_stiffness, observe
from quatrain.envs.colony.world import ColonyPolicy, episodes, repeat, returns, start

Actions = Float[Tensor, "env 5"]
# Radians per pixel off the middle.
GAIN = 0.02
# Cells that are added before rounding down, so that exactly the intended number is deleted.
SMALLEST = 0.5

# Of the search.
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

SMALLEST_STD = 1e-3


def action_bounds(rules: Env) -> tuple[Float[Tensor, "5"], Float[Tensor, "5"]]:
    low, high = torch.tensor(rules.bounds).T
    return low, high


def fix_parameters(fixed: Mapping[str, float], actions: Actions) -> Actions:
    """Returns a copy of the actions with some of their numbers replaced."""
    actions = actions.clone()
    for name, value in fixed.items():
        actions[:, PARAMETERS.index(name)] = value
    return actions


def with_fixed_parameters(fixed: Mapping[str, float], act: ColonyPolicy) -> ColonyPolicy:
    """Returns the policy with some numbers of its actions replaced."""
    return lambda indices, colonies: fix_parameters(fixed, act(indices, colonies))


def random_policy(rules: Env, generator: Generator) -> ColonyPolicy:
    """Returns a policy that draws uniformly within the bounds."""
    low, high = action_bounds(rules)

    def act(indices: Tensor, _: Colonies) -> Actions:
        return low + (high - low) * torch.rand(len(indices), 5, generator=generator)

    return act


def constant_policy(actions: Float[Tensor, "env 5"]) -> ColonyPolicy:
    """Returns a policy that repeats one action per colony."""
    return lambda indices, _: actions[indices]


def feedback_policy(rules: Env, gamma: Float[Tensor, " env"]) -> ColonyPolicy:
    """Returns a controller that holds the size and the middle of the plate, with one γ per colony.

    r = (n − ⌈Nc/2⌉ + ½)/n and θ = −k (cy − H/2), within bounds. α is lowest and ν is highest, for
    the longest throw.
    """
    ratio, _, alpha, noise, theta = rules.bounds
    survivors = -(-rules.target_nodes // 2)

    def act(indices: Tensor, colonies: Colonies) -> Actions:
        n = colonies.n.clamp(min=1)
        throw = gamma[indices]
        angle = -GAIN * (colonies.centroid[:, 1] - rules.height / 2)
        columns = {
            "delete_ratio": ((n - survivors + SMALLEST) / n).clamp(ratio.low, ratio.high),
            "gamma": throw,
            "alpha": torch.full_like(throw, alpha.low),
            "noise": torch.full_like(throw, noise.high),
            "theta": angle.clamp(theta.low, theta.high),
        }
        return torch.stack([columns[name] for name in PARAMETERS], 1)

    return act


def noisy_policy(rules: Env, act: ColonyPolicy, share: float, generator: Generator) -> ColonyPolicy:
    """Returns the policy with uniform noise of ± `share` of each range, clamped to the bounds."""
    low, high = action_bounds(rules)

    def act_with_noise(indices: Tensor, colonies: Colonies) -> Actions:
        noise = share * (2 * torch.rand(len(indices), 5, generator=generator) - 1)
        return (act(indices, colonies) + noise * (high - low)).clamp(low, high)

    return act_with_noise


# The best of them.


class Search(NamedTuple):
    """Holds constant actions with their mean returns, and the finalists with their returns on
    further colonies.
    """

    actions: Float32[np.ndarray, "point 5"]
    returns: Float32[np.ndarray, " point"]
    finalists: Float32[np.ndarray, "finalist 5"]
    final_returns: Float32[np.ndarray, " finalist"]

    @property
    def best(self) -> Float32[np.ndarray, "5"]:
        return self.finalists[self.final_returns.argmax()]


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
    columns = (all_actions, all_scores, finalists, final_returns)
    return Search(*(column.numpy(force=True) for column in columns))


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


# The scale of features.


class Norm(NamedTuple):
    """Holds mean and standard deviation of features over some episodes, stiffness I as
    ln(1 + I)."""

    node_mean: Float32[np.ndarray, " node"]
    node_std: Float32[np.ndarray, " node"]
    graph_mean: Float32[np.ndarray, " graph"]
    graph_std: Float32[np.ndarray, " graph"]


class _Sums(NamedTuple):
    rows: Float[Tensor, ""]
    total: Float[Tensor, " feature"]
    squares: Float[Tensor, " feature"]

    def add(self, rows: Float[Tensor, "row feature"]) -> "_Sums":
        return _Sums(
            self.rows + len(rows), self.total + rows.sum(0), self.squares + rows.square().sum(0)
        )


def measure_norm(
    world: World, policies: Sequence[ColonyPolicy], count: int, draws: Generator
) -> Norm:
    """Measures features over one episode of each of `count` new colonies under each policy."""
    sums = [_sum_features(world, policy, start(world, count, draws)) for policy in policies]
    of_nodes, of_graphs = zip(*sums, strict=True)
    return Norm(*_mean_and_std(of_nodes), *_mean_and_std(of_graphs))


def _sum_features(world: World, policy: ColonyPolicy, colonies: Colonies) -> tuple[_Sums, _Sums]:
    zero = torch.zeros((), dtype=torch.float64)
    features = world.rules.features
    node_sums, graph_sums = (
        _Sums(zero, zero.expand(size), zero.expand(size))
        for size in (NODE_FEATURES[features], GRAPH_FEATURES[features])
    )
    for moment in episodes(world, colonies, policy):
        before = moment.transition.before
        observation = compress_stiffness(
            world.rules, observe(world, before, before.parent.shape[1])
        )
        node_sums = node_sums.add(observation.node[observation.mask].double())
        graph_sums = graph_sums.add(observation.graph.double())
    return node_sums, graph_sums


def _mean_and_std(of_policies: Sequence[_Sums]) -> tuple[np.ndarray, np.ndarray]:
    count, total, squares = (sum(parts) for parts in zip(*of_policies, strict=True))
    mean = total / count
    std = (squares / count - mean.square()).clamp(min=0).sqrt().clamp(min=SMALLEST_STD)
    return mean.float().numpy(force=True), std.float().numpy(force=True)
