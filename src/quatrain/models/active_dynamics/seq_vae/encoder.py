"""observations and the actions that led to them -> beliefs about states: a causal GRU

Input i is [y_{i+1}, a_i]; output i is the belief q(x_{i+1} | y_{1..i+1}, a_{0..i}). With the
parameters of `torch.nn.GRUCell`, the input x, the hidden state h and the next hidden state h':

    r  = sigmoid(a_r)    a_r = W_r x + c_r + U_r h + b_r     reset gate
    z  = sigmoid(a_z)    a_z = W_z x + c_z + U_z h + b_z     update gate
    n  = tanh(a_n)       a_n = W_n x + c_n + r o             candidate, with o = U_n h + b_n
    h' = n + z (h - n)

The forward pass is that of `torch.nn.GRU`. The gradient is written by hand, because with autograd's
graph of single steps an update takes 18 % longer. The elementwise derivatives need no recursion and
are computed for all times at once:

    ∂h'/∂a_n = (1 - z) (1 - n²)        ∂h'/∂a_r = ∂h'/∂o · o (1 - r)
    ∂h'/∂o   = ∂h'/∂a_n · r            ∂h'/∂a_z = (h - n) z (1 - z)

The recursion over time is left, from the last step to the first; g' = dL/dh' is complete when its
step is reached, and g = dL/dh starts with the direct gradient of L:

    g += g' z + (g' ∂h'/∂a_r) U_r + (g' ∂h'/∂a_z) U_z + (g' ∂h'/∂o) U_n
"""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear, softplus

from quatrain.models.active_dynamics.config import SeqVaeNetwork

MIN_VARIANCE = 1e-6
# Initial value of the parameters of variances: softplus(-3) = 0.049.
INITIAL_RAW_VARIANCE = -3.0


class Belief(NamedTuple):
    """Independent normal distributions of a state's dimensions."""

    mean: Float[Tensor, "*batch d"]
    variance: Float[Tensor, "*batch d"]


class Mlp(nn.Module):
    """Several small MLPs of one shape side by side, with tanh between layers.

    Axes: network, number, sample. Samples come last: where a layer has only two inputs or outputs,
    the product takes a tenth of the time it takes with samples first.
    """

    def __init__(self, networks: int, sizes: tuple[int, ...]) -> None:
        super().__init__()
        layers = list(pairwise(sizes))
        self.weights = nn.ParameterList(_uniform(i, networks, o, i) for i, o in layers)
        self.biases = nn.ParameterList(_uniform(i, networks, o, 1) for i, o in layers)

    def forward(self, x: Float[Tensor, "network inputs n"]) -> Float[Tensor, "network outputs n"]:
        return torch.baddbmm(self.biases[-1], self.weights[-1], self.hidden(x))

    def hidden(self, x: Float[Tensor, "network inputs n"]) -> Float[Tensor, "network unit n"]:
        """Computes the last hidden layer; the inputs, if there is none."""
        *hidden, _ = zip(self.weights, self.biases, strict=True)
        for weight, bias in hidden:
            x = torch.baddbmm(bias, weight, x).tanh_()
        return x

    def jacobian(
        self, x: Float[Tensor, "network inputs n"]
    ) -> Float[Tensor, "network n outputs inputs"]:
        """Computes ∂output_i/∂input_j."""
        *hidden, (last_weight, _) = zip(self.weights, self.biases, strict=True)
        slope = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
        for weight, bias in hidden:
            x = torch.baddbmm(bias, weight, x).tanh()
            slope = (1 - x.square()).mT[..., None] * (weight[:, None] @ slope)
        return last_weight[:, None] @ slope

    def for_large_batches(self) -> Callable[[Tensor], Tensor]:
        """Returns the same function with σ(2u) = (1 + tanh(u))/2; tanh takes five times as long.

        With σ of the layer before, W tanh + b = 2W σ + (b - W 1); twice that before a further σ.
        """
        first, *others = zip(self.weights, self.biases, strict=True)
        after = [(2 * weight, bias - weight.sum(2, keepdim=True)) for weight, bias in others]
        *inner, (last_weight, last_bias) = [first, *after]
        hidden = [(2 * weight, 2 * bias) for weight, bias in inner]

        def forward(x: Tensor) -> Tensor:
            for weight, bias in hidden:
                x = torch.baddbmm(bias, weight, x).sigmoid_()
            return torch.baddbmm(last_bias, last_weight, x)

        return forward


def _uniform(inputs: int, *shape: int) -> nn.Parameter:
    bound = 1 / math.sqrt(inputs)
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))


class Encoder(nn.Module):
    def __init__(self, config: SeqVaeNetwork, inputs: int, d: int) -> None:
        super().__init__()
        self.cell = nn.GRUCell(inputs, config.hidden)
        # Network 0 of the heads gives the mean, network 1 the variance.
        self.heads = Mlp(2, (config.hidden, config.head, d))
        nn.init.zeros_(self.heads.weights[-1][1])
        nn.init.constant_(self.heads.biases[-1][1], INITIAL_RAW_VARIANCE)

    def forward(
        self, inputs: Float[Tensor, "time batch input"], hidden: Float[Tensor, "batch hidden"]
    ) -> Float[Tensor, "time batch hidden"]:
        """Computes the hidden states after each input. The initial `hidden` gets no gradient."""
        cell = self.cell
        params = cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh
        return _Gru.apply(inputs, hidden, *params)

    @torch.no_grad()
    def encode_episodes(
        self, inputs: Float[Tensor, "time batch input"], ended: Bool[Tensor, "time batch"]
    ) -> Belief:
        """Encodes rollouts of several episodes, whose last inputs are those of `ended`."""
        hidden = self.initial_hidden(inputs.shape[1])
        ends = (ended[:-1].any(1).nonzero()[:, 0] + 1).tolist()
        states = []
        for part, last in zip(inputs.tensor_split(ends), [*ends, 0], strict=True):
            states.append(self(part, hidden))
            hidden = states[-1][-1] * ~ended[last - 1, :, None]
        return self.belief(torch.cat(states))

    def belief(self, hidden: Float[Tensor, "*batch hidden"]) -> Belief:
        samples_last = hidden.reshape(-1, hidden.shape[-1]).T
        outputs = self.heads(samples_last.expand(2, -1, -1))
        mean, raw = outputs.mT.reshape(2, *hidden.shape[:-1], -1).unbind(0)
        return Belief(mean, to_variance(raw))

    def belief_sequence(
        self, hidden: Float[Tensor, "time batch hidden"]
    ) -> tuple[Float[Tensor, "d time batch"], Float[Tensor, "d time batch"]]:
        """Returns mean and variance of the beliefs of hidden states, dimensions first."""
        outputs = self.heads(hidden.flatten(0, 1).T.expand(2, -1, -1))
        mean, raw = outputs.unflatten(2, hidden.shape[:2]).unbind(0)
        return mean, to_variance(raw)

    def initial_hidden(self, batch: int) -> Float[Tensor, "batch hidden"]:
        """Returns the hidden state before an episode's first transition: zeros."""
        return self.cell.weight_hh.new_zeros(batch, self.cell.hidden_size)


def to_variance(raw: Tensor) -> Tensor:
    """Computes softplus(raw) + 1e-6, the form of all variances here."""
    return softplus(raw) + MIN_VARIANCE


class _Gru(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, hidden: Tensor, w_x: Tensor, w_h: Tensor, b_x: Tensor, b_h: Tensor
    ) -> Float[Tensor, "time batch hidden"]:
        params = [w_x, w_h, b_x, b_h]
        # With biases, of one layer, without dropout, not training, one direction, time first.
        states, _ = torch.gru(inputs, hidden[None], params, True, 1, 0.0, False, False, False)
        ctx.save_for_backward(inputs, torch.cat([hidden[None], states[:-1]]), *params)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, direct: Float[Tensor, "time batch hidden"]) -> tuple[Tensor | None, ...]:
        inputs, previous, w_x, w_h, b_x, b_h = ctx.saved_tensors
        x_r, x_z, x_n = linear(inputs, w_x, b_x).chunk(3, 2)
        h_r, h_z, o = linear(previous, w_h, b_h).chunk(3, 2)
        r = (x_r + h_r).sigmoid_()
        z = (x_z + h_z).sigmoid_()
        n = torch.addcmul(x_n, r, o).tanh_()
        by_n = (1 - z) * (1 - n * n)
        by_o = by_n * r
        derivatives = torch.stack([by_o * o * (1 - r), (previous - n) * z * (1 - z), by_o], 2)
        states, gates = _backpropagate(direct, derivatives, z, w_h)
        # W x + c enters r and z beside U h + b, but n without the factor r of o.
        of_inputs = gates.clone()
        torch.mul(by_n, states, out=of_inputs[:, :, 2])
        rows = of_inputs.flatten(0, 1).flatten(1)
        recurrent = gates.flatten(0, 1).flatten(1)
        return (
            None,
            None,
            rows.T @ inputs.flatten(0, 1),
            recurrent.T @ previous.flatten(0, 1),
            rows.sum(0),
            recurrent.sum(0),
        )


def _backpropagate(
    direct: Float[Tensor, "time batch hidden"],
    derivatives: Float[Tensor, "time batch 3 hidden"],
    z: Float[Tensor, "time batch hidden"],
    weight: Float[Tensor, "three_hidden hidden"],
) -> tuple[Float[Tensor, "time batch hidden"], Float[Tensor, "time batch 3 hidden"]]:
    """Runs the recursion over time; returns the gradients of the loss by h' and by (a_r, a_z, o).

    direct: the gradient by each state without its successors. derivatives: of h' by (a_r, a_z, o).
    """
    by_state = direct.clone()
    by_gates = torch.empty_like(derivatives)
    # Views by time, made once: indexing in the loop costs more than its arithmetic.
    views = (by_state, by_state.unsqueeze(2), by_gates, by_gates.flatten(2), derivatives, z)
    state, wide, gates, flat, derivative, z_t = (view.unbind(0) for view in views)
    for t in reversed(range(len(direct))):
        torch.mul(derivative[t], wide[t], out=gates[t])
        if t:
            state[t - 1].addcmul_(state[t], z_t[t]).addmm_(flat[t], weight)
    return by_state, by_gates
