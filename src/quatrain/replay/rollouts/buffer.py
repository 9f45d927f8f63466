"""steps of many lanes -> a rollout -> shuffled minibatches

What is on-policy is used up at once, so a rollout is one block of memory, [time, lane, ...], written over again and
again. A lane is a colony here: a graph of `n` cells in the first of its slots.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float32, Int16, Int64
from torch import Tensor

GROUPS = 4
"""Of a minibatch: most graphs are far smaller than the largest one, which alone would set the width of all."""


class Sizes(NamedTuple):
    """Of a rollout. actions: numbers that a policy draws; values: the axes of one value, () or (components,)."""

    horizon: int
    lanes: int
    cells: int
    node_features: int
    graph_features: int
    actions: int
    components: int
    values: tuple[int, ...]


class Graphs(NamedTuple):
    """What a policy sees of some lanes. Where the mask is False, node holds zeros and parent -1."""

    node: Float32[Tensor, "lanes width node_features"]
    graph: Float32[Tensor, "lanes graph_features"]
    parent: Int64[Tensor, "lanes width"]
    mask: Bool[Tensor, "lanes width"]


class Step(NamedTuple):
    """One step of all lanes: what was seen, drawn from which parameters, judged worth, and what came of it."""

    graphs: Graphs
    z: Float32[Tensor, "lanes actions"]
    log_prob: Float32[Tensor, " lanes"]
    first: Float32[Tensor, "lanes actions"]
    second: Float32[Tensor, "lanes actions"]
    value: Float32[Tensor, "lanes *values"]
    components: Float32[Tensor, "lanes components"]
    terminated: Bool[Tensor, " lanes"]
    truncated: Bool[Tensor, " lanes"]


class Rollout(NamedTuple):
    """`horizon` steps. next_value is that of the state after the step, of the final one where an episode was cut."""

    node: Float32[Tensor, "time lanes cells node_features"]
    graph: Float32[Tensor, "time lanes graph_features"]
    parent: Int16[Tensor, "time lanes cells"]
    n: Int16[Tensor, "time lanes"]
    z: Float32[Tensor, "time lanes actions"]
    log_prob: Float32[Tensor, "time lanes"]
    first: Float32[Tensor, "time lanes actions"]
    second: Float32[Tensor, "time lanes actions"]
    value: Float32[Tensor, "time lanes *values"]
    next_value: Float32[Tensor, "time lanes *values"]
    components: Float32[Tensor, "time lanes components"]
    terminated: Bool[Tensor, "time lanes"]
    truncated: Bool[Tensor, "time lanes"]


class Transitions(NamedTuple):
    """A rollout without its order, `transitions` = time x lanes, views of the same memory."""

    node: Float32[Tensor, "transitions cells node_features"]
    graph: Float32[Tensor, "transitions graph_features"]
    parent: Int16[Tensor, "transitions cells"]
    n: Int16[Tensor, " transitions"]
    z: Float32[Tensor, "transitions actions"]
    log_prob: Float32[Tensor, " transitions"]
    first: Float32[Tensor, "transitions actions"]
    second: Float32[Tensor, "transitions actions"]
    value: Float32[Tensor, "transitions *values"]
    advantage: Float32[Tensor, " transitions"]
    returns: Float32[Tensor, "transitions *values"]


class Minibatch(NamedTuple):
    """Some transitions; the columns after `groups`, which hold their graphs, are those of `Transitions`."""

    groups: tuple[Graphs, ...]
    z: Float32[Tensor, "minibatch actions"]
    log_prob: Float32[Tensor, " minibatch"]
    first: Float32[Tensor, "minibatch actions"]
    second: Float32[Tensor, "minibatch actions"]
    value: Float32[Tensor, "minibatch *values"]
    advantage: Float32[Tensor, " minibatch"]
    returns: Float32[Tensor, "minibatch *values"]


def allocate(sizes: Sizes) -> Rollout:
    """A rollout that nothing was written to; node is finite wherever it is read."""
    lead = (sizes.horizon, sizes.lanes)
    return Rollout(
        node=torch.zeros(*lead, sizes.cells, sizes.node_features),
        graph=torch.zeros(*lead, sizes.graph_features),
        parent=torch.full((*lead, sizes.cells), -1, dtype=torch.int16),
        n=torch.zeros(lead, dtype=torch.int16),
        z=torch.zeros(*lead, sizes.actions),
        log_prob=torch.zeros(lead),
        first=torch.zeros(*lead, sizes.actions),
        second=torch.zeros(*lead, sizes.actions),
        value=torch.zeros(*lead, *sizes.values),
        next_value=torch.zeros(*lead, *sizes.values),
        components=torch.zeros(*lead, sizes.components),
        terminated=torch.zeros(lead, dtype=torch.bool),
        truncated=torch.zeros(lead, dtype=torch.bool),
    )


def write(rollout: Rollout, time: int, step: Step) -> None:
    """Puts the step into its place; the graphs may be narrower than the rollout, what is beyond them is cleared."""
    graphs, width = step.graphs, step.graphs.node.shape[1]
    rollout.node[time, :, :width], rollout.node[time, :, width:] = graphs.node, 0
    rollout.parent[time, :, :width], rollout.parent[time, :, width:] = graphs.parent, -1
    rollout.graph[time] = graphs.graph
    rollout.n[time] = graphs.mask.sum(1)
    for name in Step._fields[1:]:
        getattr(rollout, name)[time] = getattr(step, name)


def close(
    rollout: Rollout,
    last_value: Float32[Tensor, "lanes *values"],
    final_values: Float32[Tensor, "truncated *values"],
) -> None:
    """Fills next_value from value, from that of the states after the last step, and of those where time was up.

    The latter are in the order of `rollout.truncated.nonzero()`. Where an episode terminated, nothing reads it.
    """
    rollout.next_value[:-1] = rollout.value[1:]
    rollout.next_value[-1] = last_value
    rollout.next_value[rollout.truncated] = final_values


def flattened(
    rollout: Rollout,
    advantage: Float32[Tensor, "time lanes"],
    returns: Float32[Tensor, "time lanes *values"],
) -> Transitions:
    """The rollout as transitions, number time * lanes + lane, with what they are to teach."""
    columns = rollout._asdict() | {"advantage": advantage, "returns": returns}
    return Transitions(*(columns[name].flatten(0, 1) for name in Transitions._fields))


def shuffled(
    transitions: int, size: int, generator: torch.Generator
) -> tuple[Int64[Tensor, " minibatch"], ...]:
    """The numbers of all transitions, each once, in minibatches; the last may be smaller."""
    return torch.randperm(transitions, generator=generator, device=generator.device).split(size)


def minibatch(
    transitions: Transitions, index: Int64[Tensor, " minibatch"], width: int | None = None
) -> Minibatch:
    """These transitions, ordered by the size of their graphs: in GROUPS, each trimmed to its largest one.

    With a width (>= all sizes), which need not be read back from a device, they are one group of it.
    """
    if width is not None:
        return _gathered(transitions, index, [len(index)], [width])
    n, order = transitions.n.index_select(0, index).sort(stable=True)
    counts = [len(part) for part in n.chunk(GROUPS)]
    widths = [int(part[-1]) for part in n.chunk(GROUPS)]
    return _gathered(transitions, index.index_select(0, order), counts, widths)


def _gathered(
    transitions: Transitions, index: Tensor, counts: list[int], widths: list[int]
) -> Minibatch:
    groups = []
    for own, width in zip(index.split(counts), widths, strict=True):
        n = transitions.n.index_select(0, own)
        groups.append(
            Graphs(
                node=transitions.node[:, :width].index_select(0, own),
                graph=transitions.graph.index_select(0, own),
                parent=transitions.parent[:, :width].index_select(0, own).long(),
                mask=torch.arange(width, device=n.device) < n[:, None],
            )
        )
    return Minibatch(
        tuple(groups),
        *(getattr(transitions, name).index_select(0, index) for name in Minibatch._fields[1:]),
    )
