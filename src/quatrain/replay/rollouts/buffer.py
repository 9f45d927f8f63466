"""steps of parallel environments -> a rollout -> shuffled minibatches

On-policy data is used for one iteration only, so a rollout is one block of memory, [time, env,
...], that every iteration overwrites. The observation of an environment is a graph: `n` cells in
the first of its slots.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float32, Int16, Int64
from torch import Tensor

# Groups of a minibatch. Most graphs are far smaller than the largest, which would otherwise set the
# width of all.
GROUPS = 4
# Widths of graphs that compiled programs take; above them multiples of 64. Each width is compiled
# separately.
WIDTHS = (16, 32, 48, 64, 80, 104, 128)


class Sizes(NamedTuple):
    """Holds the sizes of a rollout's axes.

    actions: numbers that a policy draws. dist_params: the axes of the parameters of its
    distribution, such as (2, actions). values: the axes of a value, () or (components,).
    """

    horizon: int
    envs: int
    cells: int
    node_features: int
    graph_features: int
    actions: int
    dist_params: tuple[int, int]
    components: int
    values: tuple[int, ...]


class Graphs(NamedTuple):
    """Holds the policy's input for some environments; where the mask is False, node is 0 and parent
    is -1.
    """

    node: Float32[Tensor, "env width node_features"]
    graph: Float32[Tensor, "env graph_features"]
    parent: Int64[Tensor, "env width"]
    mask: Bool[Tensor, "env width"]


class Step(NamedTuple):
    """Holds one step of all environments: policy input and output, reward components, and how it
    ended.

    dist_params: the parameters of the policy's distribution, on an axis of their own.
    raw_action: the draw before it is scaled to the bounds of the action.
    """

    graphs: Graphs
    raw_action: Float32[Tensor, "env actions"]
    log_prob: Float32[Tensor, " env"]
    dist_params: Float32[Tensor, "env params size"]
    value: Float32[Tensor, "env *values"]
    components: Float32[Tensor, "env components"]
    terminated: Bool[Tensor, " env"]
    truncated: Bool[Tensor, " env"]


class Rollout(NamedTuple):
    """Holds `horizon` steps of all environments.

    next_value is the value of the state after the step; of the final state where the episode was
    truncated.
    """

    node: Float32[Tensor, "time env cells node_features"]
    graph: Float32[Tensor, "time env graph_features"]
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
    graph: Float32[Tensor, "transitions graph_features"]
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


def allocate(sizes: Sizes) -> Rollout:
    """Returns a rollout of zeros, with parents of -1."""
    lead = (sizes.horizon, sizes.envs)
    return Rollout(
        node=torch.zeros(*lead, sizes.cells, sizes.node_features),
        graph=torch.zeros(*lead, sizes.graph_features),
        parent=torch.full((*lead, sizes.cells), -1, dtype=torch.int16),
        n=torch.zeros(lead, dtype=torch.int16),
        raw_action=torch.zeros(*lead, sizes.actions),
        log_prob=torch.zeros(lead),
        dist_params=torch.zeros(*lead, *sizes.dist_params),
        value=torch.zeros(*lead, *sizes.values),
        next_value=torch.zeros(*lead, *sizes.values),
        components=torch.zeros(*lead, sizes.components),
        terminated=torch.zeros(lead, dtype=torch.bool),
        truncated=torch.zeros(lead, dtype=torch.bool),
    )


def write(rollout: Rollout, time: int, step: Step) -> None:
    """Writes a step in place; its graphs may be narrower than the rollout, whose remaining slots
    are cleared.
    """
    graphs = step.graphs
    width = graphs.node.shape[1]
    rollout.node[time, :, :width] = graphs.node
    rollout.node[time, :, width:] = 0
    rollout.parent[time, :, :width] = graphs.parent
    rollout.parent[time, :, width:] = -1
    rollout.graph[time] = graphs.graph
    rollout.n[time] = graphs.mask.sum(1)
    for name in Step._fields[1:]:
        getattr(rollout, name)[time] = getattr(step, name)


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
