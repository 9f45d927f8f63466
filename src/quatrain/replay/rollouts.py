"""the environments of rollouts -> one block of memory for their steps -> advantages, shuffled
minibatches

On-policy data is used for one iteration only, so a rollout is one block of memory, [time, env,
...], that every iteration overwrites. The observation of an environment is a graph: `n` cells in
the first of its slots.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int16, Int64, Shaped
from torch import Tensor

# Groups of a minibatch. Most graphs are far smaller than the largest, which would otherwise set the
# width of all.
GROUPS = 4
# Widths of graphs that compiled programs take; above them multiples of 64. Each width is compiled
# separately.
WIDTHS = (16, 32, 48, 64, 80, 104, 128)


class Spec(NamedTuple):
    """Holds the sizes of what is seen, drawn and paid.

    cells: slots of a graph, 0 if none is seen. graph_features: of the whole graph, or of an
    observation that is a row. action_low, action_high: bounds of the numbers that are drawn; empty
    where indices are drawn instead, each of so many as `action_counts` has. components: of the
    reward. image: rows, columns and channels of an image with which a row begins, else empty. mask:
    numbers at its end that say which choices are legal. graph_dtype: of a row.
    """

    cells: int
    node_features: int
    graph_features: int
    action_low: tuple[float, ...]
    action_high: tuple[float, ...]
    action_counts: tuple[int, ...]
    components: int
    image: tuple[int, ...] = ()
    mask: int = 0
    graph_dtype: torch.dtype = torch.float32


class Graphs(NamedTuple):
    """Holds the policy's input for some environments; where the mask is False, node is 0 and parent
    is -1.
    """

    node: Float32[Tensor, "env width node_features"]
    graph: Shaped[Tensor, "env graph_features"]
    parent: Int64[Tensor, "env width"]
    mask: Bool[Tensor, "env width"]


class Rollout(NamedTuple):
    """Holds `horizon` steps of all environments.

    raw_action: the draw before it is scaled to the bounds of the action. dist_params: the
    parameters of the policy's distribution, on an axis of their own. next_value: the value of the
    state after the step; of the final state where the episode was truncated.
    """

    node: Float32[Tensor, "time env cells node_features"]
    graph: Shaped[Tensor, "time env graph_features"]
    parent: Int16[Tensor, "time env cells"]
    n: Int16[Tensor, "time env"]
    raw_action: Float32[Tensor, "time env actions"]
    log_prob: Float32[Tensor, "time env"]
    dist_params: Float32[Tensor, "time env params size"]
    value: Float32[Tensor, "time env *values"]
    next_value: Float32[Tensor, "time env *values"]
    components: Float32[Tensor, "time env components"]
    terminated: Bool[Tensor, "time env"]
    truncated: Bool[Tensor, "time env"]


class Transitions(NamedTuple):
    """Holds a rollout with time and env flattened to one axis; columns of the rollout are views of
    its memory.
    """

    node: Float32[Tensor, "transitions cells node_features"]
    graph: Shaped[Tensor, "transitions graph_features"]
    parent: Int16[Tensor, "transitions cells"]
    n: Int16[Tensor, " transitions"]
    raw_action: Float32[Tensor, "transitions actions"]
    log_prob: Float32[Tensor, " transitions"]
    dist_params: Float32[Tensor, "transitions params size"]
    value: Float32[Tensor, "transitions *values"]
    advantage: Float32[Tensor, " transitions"]
    returns: Float32[Tensor, "transitions *values"]


class Minibatch(NamedTuple):
    """Holds some transitions: their graphs in groups, then columns named as in `Transitions`."""

    groups: tuple[Graphs, ...]
    raw_action: Float32[Tensor, "minibatch actions"]
    log_prob: Float32[Tensor, " minibatch"]
    dist_params: Float32[Tensor, "minibatch params size"]
    value: Float32[Tensor, "minibatch *values"]
    advantage: Float32[Tensor, " minibatch"]
    returns: Float32[Tensor, "minibatch *values"]


# Environments as a learner sees them, whatever they are.


class Stepped(NamedTuple):
    """Holds a step of all environments, of which ended ones are reset.

    final: the states before resets, as `Envs.observe_final` takes them.
    """

    components: Float32[Tensor, "env component"]
    terminated: Bool[Tensor, " env"]
    truncated: Bool[Tensor, " env"]
    final: Any


@runtime_checkable
class Envs(Protocol):
    """Describes running environments, which change in place.

    weights: of the components of the reward.
    """

    weights: Float32[Tensor, " component"]

    def observe(self) -> Graphs:
        """Returns what is seen of the current states."""

    def step(self, action: Shaped[Tensor, "env *action"]) -> Stepped:
        """Steps all environments."""

    def observe_final(
        self, finals: Sequence[Any], truncated: Bool[Tensor, "time env"]
    ) -> Graphs | None:
        """Returns what is seen of the last states of truncated episodes, in the order of
        `truncated.nonzero()`; None if none was truncated.

        finals: `Stepped.final` of each time.
        """

    def end_rollout(
        self, rollout: Rollout, action: Shaped[Tensor, "transition *action"], iteration: int
    ) -> dict[str, Any]:
        """Checks the rewards of a rollout; returns metrics of it and of its episodes.

        Raises:
            TrainingDiverged: a reward is not finite.
        """

    def save(self, policy: Tensor, order: Tensor) -> Any:
        """Returns all that changes, with the states of the learner's two generators."""

    def close(self) -> None:
        """Closes what was opened."""


# Memory.


def allocate(
    steps: tuple[int, int], spec: Spec, dist_params: tuple[int, int], values: tuple[int, ...]
) -> Rollout:
    """Returns a rollout of zeros, with parents of -1.

    Args:
        steps: horizon and number of environments.
        spec: sizes of what is seen, drawn and paid.
        dist_params: number of parameters of the policy's distribution, and the size of each.
        values: the axes of a value, () or (components,).
    """
    return Rollout(
        node=torch.zeros(*steps, spec.cells, spec.node_features),
        graph=torch.zeros(*steps, spec.graph_features, dtype=spec.graph_dtype),
        parent=torch.full((*steps, spec.cells), -1, dtype=torch.int16),
        n=torch.zeros(steps, dtype=torch.int16),
        raw_action=torch.zeros(*steps, len(spec.action_low + spec.action_counts)),
        log_prob=torch.zeros(steps),
        dist_params=torch.zeros(*steps, *dist_params),
        value=torch.zeros(*steps, *values),
        next_value=torch.zeros(*steps, *values),
        components=torch.zeros(*steps, spec.components),
        terminated=torch.zeros(steps, dtype=torch.bool),
        truncated=torch.zeros(steps, dtype=torch.bool),
    )


def write(
    rollout: Rollout, time: int, graphs: Graphs, **columns: Shaped[Tensor, "env ..."]
) -> None:
    """Writes a step in place: what was seen, and columns by their names in `Rollout`. Graphs may be
    narrower than the rollout, whose remaining slots are cleared.
    """
    width = graphs.node.shape[1]
    rollout.node[time, :, :width] = graphs.node
    rollout.node[time, :, width:] = 0
    rollout.parent[time, :, :width] = graphs.parent
    rollout.parent[time, :, width:] = -1
    rollout.graph[time] = graphs.graph
    rollout.n[time] = graphs.mask.sum(1)
    for name, column in columns.items():
        getattr(rollout, name)[time] = column


def fill_next_values(
    rollout: Rollout,
    last_value: Float32[Tensor, "env *values"],
    final_values: Float32[Tensor, "truncated *values"],
) -> None:
    """Fills `next_value` in place.

    Args:
        rollout: with `value` and `truncated` of all steps.
        last_value: values of the states after the last step.
        final_values: values of the final states of truncated episodes, in the order of
            `rollout.truncated.nonzero()`.

    Where an episode terminated, `next_value` is not used.
    """
    rollout.next_value[:-1] = rollout.value[1:]
    rollout.next_value[-1] = last_value
    rollout.next_value[rollout.truncated] = final_values


# Advantages.


def advantages(
    rewards: Float[Tensor, "time env *components"],
    values: Float[Tensor, "time env *components"],
    next_values: Float[Tensor, "time env *components"],
    terminated: Bool[Tensor, "time env"],
    truncated: Bool[Tensor, "time env"],
    discount: float,
    gae_lambda: float,
) -> tuple[Float[Tensor, "time env *components"], Float[Tensor, "time env *components"]]:
    """Computes generalised advantage estimates, and returns, the regression targets of values; both
    separately for each component.

    'High-Dimensional Continuous Control Using Generalized Advantage Estimation' (ICLR 2016), eq.
    16:

        δ_t = r_t + γ (1 − terminated_t) V(s_{t+1}) − V(s_t)
        A_t = δ_t + γ λ (1 − terminated_t)(1 − truncated_t) A_{t+1},  A_T = 0
        R_t = A_t + V(s_t)

    It is linear: a weighted sum over components is the advantage of the weighted rewards and
    values.
    """
    ended = terminated | truncated
    values = values.detach()
    over = terminated.reshape(*ended.shape, *[1] * (values.ndim - ended.ndim))
    bootstrap = next_values.masked_fill(over, 0).mul_(discount)
    delta = bootstrap.add_(rewards).sub_(values)
    coef = ended.logical_not().to(values.dtype).mul_(discount * gae_lambda)
    advantage = gae(delta, coef)
    return advantage, advantage + values


def gae(
    delta: Float[Tensor, "time env *components"], coef: Float[Tensor, "time env"]
) -> Float[Tensor, "time env *components"]:
    """Computes A_t = delta_t + coef_t A_{t+1} for each environment, with A = 0 after the last step.

    Gradients are not propagated. On a CPU, step by step takes less time than the scan where steps
    are few, and rounds as a filter does where no episode ends.
    """
    columns = delta.detach().flatten(1)
    per_env = coef.detach().reshape(*coef.shape, *[1] * (delta.ndim - 2))
    coef = per_env.expand_as(delta).flatten(1)
    steps, envs = columns.shape
    if columns.is_cpu and (envs >= steps or (coef[:-1] == coef[0, 0]).all()):
        return torch.from_numpy(_loop(columns.numpy(), coef.numpy())).reshape(delta.shape)
    return gae_scan(columns, coef).reshape(delta.shape)


def _loop(
    delta_tb: Float[np.ndarray, "time env"], coef_tb: Float[np.ndarray, "time env"]
) -> Float[np.ndarray, "time env"]:
    """Computes the recurrence from the end, in numpy, whose calls have less overhead."""
    advantage_tb = delta_tb.copy()
    next_advantage = advantage_tb[-1]
    discounted = np.empty_like(next_advantage)
    for advantage_b, coef_b in zip(advantage_tb[-2::-1], coef_tb[-2::-1], strict=True):
        np.multiply(coef_b, next_advantage, discounted)
        np.add(advantage_b, discounted, advantage_b)
        next_advantage = advantage_b
    return advantage_tb


def gae_scan(
    delta: Float[Tensor, "time env"], coef: Float[Tensor, "time env"]
) -> Float[Tensor, "time env"]:
    """Computes all steps at once in log2(time) passes that double their reach (Hillis and Steele).

    `sums[t]` is the discounted sum of deltas t to t + reach - 1, and `coef[t]` the product of
    coefficients over these steps; only the products that are still needed are kept.
    """
    steps = len(delta)
    reach = 1
    sums = delta
    while reach < steps:
        extended = torch.addcmul(sums[:-reach], coef[: steps - reach], sums[reach:])
        sums = torch.cat([extended, sums[-reach:]])
        coef = coef[:-reach] * coef[reach:]
        reach *= 2
    return sums


def normalise(advantage: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """Returns advantages with mean 0 and standard deviation 1 over all elements; equal advantages
    become zeros.

    In float64: the mean of equal float32 numbers may be rounded.
    """
    wide = advantage.double()
    return ((wide - wide.mean()) / (wide.std(correction=0) + 1e-8)).to(advantage.dtype)


# Minibatches.


def to_transitions(
    rollout: Rollout,
    advantage: Float32[Tensor, "time env"],
    returns: Float32[Tensor, "time env *values"],
) -> Transitions:
    """Returns the rollout as transitions, in the order time * envs + env, with advantages and
    returns.
    """
    columns = rollout._asdict() | {"advantage": advantage, "returns": returns}
    return Transitions(*(columns[name].flatten(0, 1) for name in Transitions._fields))


def round_up_width(cells: int, most: int, compiled: bool) -> int:
    """Returns the next width of compiled programs; without compilation the number of cells, at
    least 1.
    """
    if not compiled:
        return max(cells, 1)
    width = next((width for width in WIDTHS if width >= cells), 64 * math.ceil(cells / 64))
    return min(width, most)


def minibatch_indices(
    transitions: int, size: int, generator: torch.Generator
) -> tuple[Int64[Tensor, " minibatch"], ...]:
    """Returns the indices of all transitions, shuffled, in minibatches; the last may be smaller."""
    return torch.randperm(transitions, generator=generator, device=generator.device).split(size)


def minibatch(
    transitions: Transitions, index: Int64[Tensor, " minibatch"], width: int | None = None
) -> Minibatch:
    """Returns these transitions sorted by the size of their graphs, in GROUPS trimmed to their
    largest graph.

    With a width (>= all sizes) they stay in their order, in one group of that width: no size is
    read from the device.
    """
    if width is None:
        sizes, order = transitions.n.index_select(0, index).sort(stable=True)
        index = index.index_select(0, order)
        parts = sizes.chunk(GROUPS)
        counts = [len(part) for part in parts]
        widths = [int(part[-1]) for part in parts]
    else:
        counts = [len(index)]
        widths = [width]
    groups = [
        _select_graphs(transitions, part, part_width)
        for part, part_width in zip(index.split(counts), widths, strict=True)
    ]
    return Minibatch(
        tuple(groups),
        *(getattr(transitions, name).index_select(0, index) for name in Minibatch._fields[1:]),
    )


def _select_graphs(transitions: Transitions, index: Tensor, width: int) -> Graphs:
    n = transitions.n.index_select(0, index)
    return Graphs(
        node=transitions.node[:, :width].index_select(0, index),
        graph=transitions.graph.index_select(0, index),
        parent=transitions.parent[:, :width].index_select(0, index).long(),
        mask=torch.arange(width, device=n.device) < n[:, None],
    )
