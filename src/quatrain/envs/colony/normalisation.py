"""policies in a world -> mean and standard deviation of the features that they meet."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Generator, Tensor

from quatrain.envs.colony.dynamics import Colonies, World
from quatrain.envs.colony.episodes import episodes
from quatrain.envs.colony.features import compress_stiffness, observe
from quatrain.envs.colony.policies import ColonyPolicy
from quatrain.envs.colony.rules import GRAPH_FEATURES, NODE_FEATURES
from quatrain.envs.colony.world import start

SMALLEST_STD = 1e-3


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
