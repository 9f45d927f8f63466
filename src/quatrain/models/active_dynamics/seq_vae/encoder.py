"""observations and the actions that led to them -> beliefs about states: a GRU, causal, whose state may be carried

Input i is [y_{i+1}, a_i], output i the belief q(x_{i+1} | y_{1..i+1}, a_{0..i}). With gates r, z of the input x and the
state h, as `torch.nn.GRUCell` has them:

    o = U_n h + b_n      n = tanh(x_n + r o)      h' = n + z (h - n)
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear, softplus

from quatrain.models.active_dynamics.config import SeqVaeNetwork
from quatrain.models.active_dynamics.seq_vae.layers import LayerParameters

LEAST_VARIANCE = 1e-6
FIRST_RAW_VARIANCE = -3.0
"""What a variance is made of before anything is learned: softplus(-3) = 0.049."""


class Belief(NamedTuple):
    """Independent normal distributions of a state's dimensions."""

    mean: Float[Tensor, "*batch d"]
    variance: Float[Tensor, "*batch d"]


class Track(NamedTuple):
    """Beliefs about all times of some windows."""

    mean: Float[Tensor, "d time batch"]
    variance: Float[Tensor, "d time batch"]


class Encoder(nn.Module):
    """`forward` for whole windows, `step` for one transition; both find the same."""

    def __init__(self, config: SeqVaeNetwork, obs: int, action: int, d: int) -> None:
        super().__init__()
        self.cell = nn.GRUCell(obs + action, config.hidden)
        self.heads = LayerParameters(
            2, (config.hidden, config.head, d)
        )  # of the mean, and of the variance
        nn.init.zeros_(self.heads.weights[-1][1])
        nn.init.constant_(self.heads.biases[-1][1], FIRST_RAW_VARIANCE)

    def forward(
        self, inputs: Float[Tensor, "time batch input"], hidden: Float[Tensor, "batch hidden"]
    ) -> Float[Tensor, "time batch hidden"]:
        """States of the GRU after each input, from a hidden state that gets no gradient."""
        cell = self.cell
        given = linear(inputs, cell.weight_ih, cell.bias_ih)
        return _Recurrence.apply(given, hidden, cell.weight_hh, cell.bias_hh)

    def step(
        self, inputs: Float[Tensor, "batch input"], hidden: Float[Tensor, "batch hidden"]
    ) -> Float[Tensor, "batch hidden"]:
        """The next state of the GRU."""
        cell = self.cell
        return torch.gru_cell(
            inputs, hidden, cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh
        )

    def belief(self, hidden: Float[Tensor, "*batch hidden"]) -> Belief:
        """What states of the GRU say."""
        *batch, size = hidden.shape
        found = self.heads.now()(hidden.reshape(-1, size).T.expand(2, -1, -1))
        mean, raw = found.mT.reshape(2, *batch, -1).unbind(0)
        return Belief(mean, positive(raw))

    def over_time(self, hidden: Float[Tensor, "time batch hidden"]) -> Track:
        """The same, the dimensions first."""
        found = self.heads.now()(hidden.flatten(0, 1).T.expand(2, -1, -1))
        mean, raw = found.unflatten(2, hidden.shape[:2]).unbind(0)
        return Track(mean, positive(raw))

    def first(self, batch: int) -> Float[Tensor, "batch hidden"]:
        """Before an episode's first transition."""
        return self.cell.weight_hh.new_zeros(batch, self.cell.hidden_size)

    @torch.no_grad()
    def over_episodes(
        self, inputs: Float[Tensor, "time input"], ended: Bool[Tensor, " time"]
    ) -> Float[Tensor, "time hidden"]:
        """States after each input of several episodes in a row; `ended` where an input is the last of its episode."""
        given = linear(inputs[:, None], self.cell.weight_ih, self.cell.bias_ih)
        carried = torch.cat([torch.zeros_like(ended[:1]), ~ended[:-1]]).to(given.dtype)
        return _run(given, self.first(1), self.cell.weight_hh, self.cell.bias_hh, carried).states[
            1:, 0
        ]


def positive(raw: Tensor) -> Tensor:
    """softplus(raw) + 1e-6: how all variances are made."""
    return softplus(raw) + LEAST_VARIANCE


class _Ran(NamedTuple):
    """What a pass over all times leaves: states with the first, gates r, z and o, and n."""

    states: Float[Tensor, "time_1 batch hidden"]
    gates: Float[Tensor, "time batch three_hidden"]
    new: Float[Tensor, "time batch hidden"]


def _run(
    given: Float[Tensor, "time batch three_hidden"],
    hidden: Float[Tensor, "batch hidden"],
    weight: Float[Tensor, "three_hidden hidden"],
    bias: Float[Tensor, " three_hidden"],
    carried: Float[Tensor, " time"] | None = None,
) -> _Ran:
    """given: what the inputs add to the gates. carried: 0 where a time begins anew, else 1."""
    time, batch, size = len(given), *hidden.shape
    states, new = given.new_empty(time + 1, batch, size), given.new_empty(time, batch, size)
    gates = torch.empty_like(given)
    states[0] = hidden
    h, n, gate = states.unbind(0), new.unbind(0), gates.unbind(0)
    both, (r, z, o) = (
        gates[..., : 2 * size].unbind(0),
        (part.unbind(0) for part in gates.chunk(3, 2)),
    )
    given_both, given_n = given[..., : 2 * size].unbind(0), given[..., 2 * size :].unbind(0)
    transposed = weight.T
    for t in range(time):
        before = h[t] if carried is None else h[t] * carried[t]
        torch.addmm(bias, before, transposed, out=gate[t])
        both[t].add_(given_both[t]).sigmoid_()
        torch.addcmul(given_n[t], r[t], o[t], out=n[t]).tanh_()
        torch.lerp(n[t], before, z[t], out=h[t + 1])
    return _Ran(states, gates, new)


class _Recurrence(torch.autograd.Function):
    """A GRU without a graph of its single steps, which would take longer than all else: slopes of all times at once."""

    @staticmethod
    def forward(ctx: Any, given: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ran = _run(given, hidden, weight, bias)
        ctx.save_for_backward(*ran, weight)
        return ran.states[1:]

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, slope: Float[Tensor, "time batch hidden"]
    ) -> tuple[Tensor, None, Tensor, Tensor]:
        states, gates, new, weight = ctx.saved_tensors
        time, batch, size = new.shape
        z = gates[..., size : 2 * size]
        to_n, to_gates = _slopes(states, gates, new)
        of_states, of_gates = slope.clone(), torch.empty_like(to_gates)
        s, s_gates, to = of_states.unbind(0), of_gates.unbind(0), to_gates.unbind(0)
        wide, flat, kept = (
            of_states.unsqueeze(2).unbind(0),
            of_gates.flatten(2).unbind(0),
            z.unbind(0),
        )
        for t in reversed(range(time)):
            torch.mul(to[t], wide[t], out=s_gates[t])
            if t:
                s[t - 1].addcmul_(s[t], kept[t]).addmm_(flat[t], weight)
        of_given = of_gates.clone()
        torch.mul(to_n, of_states, out=of_given[:, :, 2])
        by_row = of_gates.view(time * batch, 3 * size)
        of_weight = by_row.T @ states[:-1].reshape(time * batch, size)
        return of_given.flatten(2), None, of_weight, by_row.sum(0)


class _Slopes(NamedTuple):
    """Of h' in what tanh is taken of; and in r before its sigmoid, in z before its own, and in o."""

    to_n: Float[Tensor, "time batch hidden"]
    to_gates: Float[Tensor, "time batch 3 hidden"]


def _slopes(states: Tensor, gates: Tensor, new: Tensor) -> _Slopes:
    r, z, o = gates.chunk(3, 2)
    to_n = (1 - z) * (1 - new * new)
    to_gates = new.new_empty(*new.shape[:2], 3, new.shape[2])
    torch.mul(to_n, r, out=to_gates[:, :, 2])
    torch.mul(to_gates[:, :, 2] * o, 1 - r, out=to_gates[:, :, 0])
    torch.mul((states[:-1] - new) * z, 1 - z, out=to_gates[:, :, 1])
    return _Slopes(to_n, to_gates)
