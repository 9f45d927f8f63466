"""steps of many lanes -> a rollout -> advantages and returns -> shuffled minibatches

What is on-policy is used up at once, so a rollout is one block of memory, [time, lane, ...], written over again and
again. A lane is a colony here: a graph of `n` cells in the first of its slots.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int16, Int64
from scipy.signal import lfilter
from torch import Tensor

How = Literal["auto", "scan", "lfilter", "loop"]
LANES_PER_STEP = 8
"""From so many on, a loop over the steps is faster than a scan (measured on a CPU)."""


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


class Trace(NamedTuple):
    """What advantages are made of; rewards and values may have a last axis of components."""

    rewards: Float[Tensor, "time lanes *components"]
    values: Float[Tensor, "time lanes *components"]
    next_values: Float[Tensor, "time lanes *components"]
    terminated: Bool[Tensor, "time lanes"]
    truncated: Bool[Tensor, "time lanes"]


class Advantages(NamedTuple):
    """returns = advantage + value: what a value learns."""

    advantage: Float[Tensor, "time lanes *components"]
    returns: Float[Tensor, "time lanes *components"]


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
    """Some transitions; the columns after `graphs` are those of `Transitions`."""

    graphs: Graphs
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


@torch.no_grad()
def advantages(trace: Trace, discount: float, gae_lambda: float, how: How) -> Advantages:
    """'High-Dimensional Continuous Control Using Generalized Advantage Estimation' (ICLR 2016), eq. 16, by component.

    δ_t = r_t + γ (1 − terminated_t) V(s_{t+1}) − V(s_t)
    A_t = δ_t + γ λ (1 − terminated_t)(1 − truncated_t) A_{t+1}      A_T = 0      R_t = A_t + V(s_t)

    As it is linear, a weighted sum over components is the advantage of the weighted rewards and values.
    """
    ended = trace.terminated | trace.truncated
    terminated = trace.terminated.reshape(*ended.shape, *[1] * (trace.values.ndim - ended.ndim))
    delta = trace.rewards + discount * trace.next_values.masked_fill(terminated, 0) - trace.values
    coef = torch.full_like(ended, discount * gae_lambda, dtype=delta.dtype).masked_fill_(ended, 0)
    advantage = gae(delta, coef, how)
    return Advantages(advantage, advantage + trace.values)


def gae(
    delta: Float[Tensor, "time lanes *components"], coef: Float[Tensor, "time lanes"], how: How = "auto"
) -> Float[Tensor, "time lanes *components"]:
    """A_t = delta_t + coef_t A_{t+1} of each lane, with A = 0 after the last; no gradient passes."""
    delta, coef = delta.detach(), coef.detach()
    lanes = delta.flatten(1)
    if delta.ndim > 2:
        coef = coef.reshape(*coef.shape, *[1] * (delta.ndim - 2)).expand_as(delta).flatten(1)
    chosen = fastest(lanes, coef) if how == "auto" else how
    return IMPLEMENTATIONS[chosen](lanes, coef).reshape(delta.shape)


def fastest(
    delta: Float[Tensor, "time lanes"], coef: Float[Tensor, "time lanes"]
) -> Literal["scan", "lfilter", "loop"]:
    """What takes the least time: a loop costs by step, a scan by step and lane, a filter by both, on a CPU."""
    steps, lanes = delta.shape
    if delta.device.type != "cpu":
        return "scan"
    if lanes >= LANES_PER_STEP * steps:
        return "loop"
    return "lfilter" if lanes == 1 or (coef[:-1] == coef[0, 0]).all() else "scan"


def gae_loop(delta: Float[Tensor, "time lanes"], coef: Float[Tensor, "time lanes"]) -> Float[Tensor, "time lanes"]:
    """The recurrence as it stands, from the end: time operations on all lanes."""
    backwards = reversed(list(zip(delta.unbind(), coef.unbind(), strict=True)))
    found = [next(backwards)[0]]
    for delta_b, coef_b in backwards:
        found.append(torch.addcmul(delta_b, coef_b, found[-1]))
    return torch.stack(found[::-1])


def gae_scan(delta: Float[Tensor, "time lanes"], coef: Float[Tensor, "time lanes"]) -> Float[Tensor, "time lanes"]:
    """All steps at once, log2(time) times; each time what a step has summed reaches twice as far (Hillis, Steele).

    `summed[t]` holds deltas t to t + reach - 1, and `coef[t]`, kept where it is read, the product over these steps.
    """
    steps, reach, summed = len(delta), 1, delta
    while reach < steps:
        nearer = torch.addcmul(summed[:-reach], coef[: steps - reach], summed[reach:])
        summed = torch.cat([nearer, summed[-reach:]])
        coef = coef[:-reach] * coef[reach:]
        reach *= 2
    return summed


def gae_lfilter(delta: Float[Tensor, "time lanes"], coef: Float[Tensor, "time lanes"]) -> Float[Tensor, "time lanes"]:
    """A linear filter of one coefficient, on the CPU, for coefficients that are that one or 0.

    The filter knows no 0: it carries what comes after a cut back over it. How much that is, is known from a first
    run, F, since A_{t+1} = F_{t+1} − c^{u−t} F_{u+1} where u is the lane's next cut; a second run starts without it.

    Raises:
        ValueError: there are more coefficients than one and 0.
    """
    delta_tb, coef_tb = delta.cpu().numpy(), coef.cpu().numpy()
    factor = coef_tb.max()
    cut = coef_tb[:-1] != factor
    found = _filtered(delta_tb, factor)
    if cut.any():
        if coef_tb[:-1][cut].any():
            raise ValueError("lfilter needs one coefficient, or 0 where an episode ends; use scan or loop for others.")
        lane, time = np.nonzero(cut.T)
        carried, same = found[time + 1, lane], lane[1:] == lane[:-1]
        carried[:-1] -= same * factor ** (same * np.diff(time)) * carried[1:]
        delta_tb = delta_tb.copy()
        delta_tb[time, lane] -= factor * carried
        found = _filtered(delta_tb, factor)
    return torch.from_numpy(found).to(delta.device)


def _filtered(delta: np.ndarray, factor: np.floating) -> np.ndarray:
    numerator, denominator = np.ones(1, delta.dtype), np.array([1, -factor], delta.dtype)
    return lfilter(numerator, denominator, delta[::-1], axis=0)[::-1].copy()


IMPLEMENTATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "loop": gae_loop,
    "scan": gae_scan,
    "lfilter": gae_lfilter,
}


def normalised(advantage: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """Of mean 0 and deviation 1 over all; equal ones give zeros, hence the float64: their mean must not be rounded."""
    wide = advantage.double()
    return ((wide - wide.mean()) / (wide.std(correction=0) + 1e-8)).to(advantage.dtype)


def flattened(
    rollout: Rollout,
    advantage: Float32[Tensor, "time lanes"],
    returns: Float32[Tensor, "time lanes *values"],
) -> Transitions:
    """The rollout as transitions, number time * lanes + lane, with what they are to teach."""
    columns = rollout._asdict() | {"advantage": advantage, "returns": returns}
    return Transitions(*(columns[name].flatten(0, 1) for name in Transitions._fields))


def shuffled(transitions: int, size: int, generator: torch.Generator) -> tuple[Int64[Tensor, " minibatch"], ...]:
    """The numbers of all transitions, each once, in minibatches; the last may be smaller."""
    return torch.randperm(transitions, generator=generator, device=generator.device).split(size)


def minibatch(transitions: Transitions, index: Int64[Tensor, " minibatch"], width: int | None = None) -> Minibatch:
    """These transitions, trimmed to their largest graph, or to a width (>= that) which need not be read back."""
    n = transitions.n.index_select(0, index)
    width = int(n.max()) if width is None else width
    graphs = Graphs(
        node=transitions.node[:, :width].index_select(0, index),
        graph=transitions.graph.index_select(0, index),
        parent=transitions.parent[:, :width].index_select(0, index).long(),
        mask=torch.arange(width, device=n.device) < n[:, None],
    )
    return Minibatch(graphs, *(getattr(transitions, name).index_select(0, index) for name in Minibatch._fields[1:]))
