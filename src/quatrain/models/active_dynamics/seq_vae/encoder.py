"""observations and the actions that led to them -> beliefs about states: a causal GRU

Input i is [y_{i+1}, a_i]; output i is the belief q(x_{i+1} | y_{1..i+1}, a_{0..i}). With the
parameters of `torch.nn.GRUCell`, the input x, the hidden state h and the next hidden state h':

    r  = sigmoid(a_r)    a_r = W_r x + c_r + U_r h + b_r     reset gate
    z  = sigmoid(a_z)    a_z = W_z x + c_z + U_z h + b_z     update gate
    n  = tanh(a_n)       a_n = W_n x + c_n + r o             candidate, with o = U_n h + b_n
    h' = n + z (h - n)

The gradient is written by hand: autograd's graph of single steps takes longer than all else in an
update. The elementwise derivatives need no recursion and are computed for all times at once:

    ∂h'/∂a_n = (1 - z) (1 - n²)        ∂h'/∂a_r = ∂h'/∂o · o (1 - r)
    ∂h'/∂o   = ∂h'/∂a_n · r            ∂h'/∂a_z = (h - n) z (1 - z)

The recursion over time is left, from the last step to the first; g' = dL/dh' is complete when its
step is reached, and g = dL/dh starts with the direct gradient of L:

    g += g' z + (g' ∂h'/∂a_r) U_r + (g' ∂h'/∂a_z) U_z + (g' ∂h'/∂o) U_n
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear, softplus

from quatrain.models.active_dynamics.config import SeqVaeNetwork
from quatrain.models.active_dynamics.seq_vae.layers import MlpParameters

MIN_VARIANCE = 1e-6
# Initial value of the parameters of variances: softplus(-3) = 0.049.
INITIAL_RAW_VARIANCE = -3.0


class Belief(NamedTuple):
    """Holds independent normal distributions of a state's dimensions."""

    mean: Float[Tensor, "*batch d"]
    variance: Float[Tensor, "*batch d"]


class Encoder(nn.Module):
    """Computes hidden states, of whole windows or step by step, and the beliefs they encode."""

    def __init__(self, config: SeqVaeNetwork, obs: int, action: int, d: int) -> None:
        super().__init__()
        self.cell = nn.GRUCell(obs + action, config.hidden)
        # Network 0 of the heads gives the mean, network 1 the variance.
        self.heads = MlpParameters(2, (config.hidden, config.head, d))
        nn.init.zeros_(self.heads.weights[-1][1])
        nn.init.constant_(self.heads.biases[-1][1], INITIAL_RAW_VARIANCE)

    def forward(
        self, inputs: Float[Tensor, "time batch input"], hidden: Float[Tensor, "batch hidden"]
    ) -> Float[Tensor, "time batch hidden"]:
        """Returns the hidden states after each input. The initial `hidden` gets no gradient."""
        cell = self.cell
        projected = linear(inputs, cell.weight_ih, cell.bias_ih)
        return _GruFunction.apply(projected, hidden, cell.weight_hh, cell.bias_hh)

    def step(
        self, inputs: Float[Tensor, "batch input"], hidden: Float[Tensor, "batch hidden"]
    ) -> Float[Tensor, "batch hidden"]:
        return self.cell(inputs, hidden)

    def belief(self, hidden: Float[Tensor, "*batch hidden"]) -> Belief:
        samples_last = hidden.reshape(-1, hidden.shape[-1]).T
        outputs = self.heads.mlp()(samples_last.expand(2, -1, -1))
        mean, raw = outputs.mT.reshape(2, *hidden.shape[:-1], -1).unbind(0)
        return Belief(mean, to_variance(raw))

    def belief_sequence(
        self, hidden: Float[Tensor, "time batch hidden"]
    ) -> tuple[Float[Tensor, "d time batch"], Float[Tensor, "d time batch"]]:
        """Returns mean and variance of the beliefs of hidden states, dimensions first."""
        outputs = self.heads.mlp()(hidden.flatten(0, 1).T.expand(2, -1, -1))
        mean, raw = outputs.unflatten(2, hidden.shape[:2]).unbind(0)
        return mean, to_variance(raw)

    def initial_hidden(self, batch: int) -> Float[Tensor, "batch hidden"]:
        """Returns the hidden state before an episode's first transition: zeros."""
        return self.cell.weight_hh.new_zeros(batch, self.cell.hidden_size)

    @torch.no_grad()
    def encode_episodes(
        self, inputs: Float[Tensor, "time input"], ended: Bool[Tensor, " time"]
    ) -> Float[Tensor, "time hidden"]:
        """Returns the hidden states after each input of consecutive episodes.

        ended: whether an input is the last of its episode; the next starts from the initial state.
        """
        cell = self.cell
        continues = torch.cat([torch.zeros_like(ended[:1]), ~ended[:-1]])
        states, _, _ = _gru_forward(
            linear(inputs[:, None], cell.weight_ih, cell.bias_ih),
            self.initial_hidden(1),
            cell.weight_hh,
            cell.bias_hh,
            continues.to(inputs.dtype),
        )
        return states[1:, 0]


def to_variance(raw: Tensor) -> Tensor:
    """Returns softplus(raw) + 1e-6, the form of all variances here."""
    return softplus(raw) + MIN_VARIANCE


class _GruPass(NamedTuple):
    """Holds the tensors of a forward pass that the backward pass needs.

    states: h, the initial one included. gates: r, z and o, side by side. candidates: n.
    """

    states: Float[Tensor, "time_p1 batch hidden"]
    gates: Float[Tensor, "time batch three_hidden"]
    candidates: Float[Tensor, "time batch hidden"]


def _gru_forward(
    projected: Float[Tensor, "time batch three_hidden"],
    hidden: Float[Tensor, "batch hidden"],
    weight: Float[Tensor, "three_hidden hidden"],
    bias: Float[Tensor, " three_hidden"],
    continues: Float[Tensor, " time"] | None = None,
) -> _GruPass:
    """Runs the GRU over all times.

    projected: W x + c of r, z and n. weight, bias: U and b. continues: 0 at an episode's first
    input, else 1; None if all inputs are of one episode.
    """
    size = hidden.shape[1]
    states = projected.new_empty(len(projected) + 1, *hidden.shape)
    states[0] = hidden
    gates = torch.empty_like(projected)
    candidates = projected.new_empty(len(projected), *hidden.shape)
    # Views by time, made once: indexing in the loop costs more than its arithmetic.
    views = (
        states[:-1],
        states[1:],
        gates,
        gates[..., : 2 * size],
        *gates.chunk(3, 2),
        candidates,
        *projected.split((2 * size, size), 2),
    )
    by_time = zip(*(view.unbind(0) for view in views), strict=True)
    transposed = weight.T
    for t, (h, h_next, gates_t, r_and_z, r, z, o, n, to_r_and_z, to_n) in enumerate(by_time):
        previous = h if continues is None else h * continues[t]
        torch.addmm(bias, previous, transposed, out=gates_t)
        r_and_z.add_(to_r_and_z).sigmoid_()
        torch.addcmul(to_n, r, o, out=n).tanh_()
        torch.lerp(n, previous, z, out=h_next)
    return _GruPass(states, gates, candidates)


class _GruFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, projected: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor
    ) -> Tensor:
        forward_pass = _gru_forward(projected, hidden, weight, bias)
        ctx.save_for_backward(*forward_pass, weight)
        return forward_pass.states[1:]

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, direct: Float[Tensor, "time batch hidden"]
    ) -> tuple[Tensor, None, Tensor, Tensor]:
        *saved, weight = ctx.saved_tensors
        forward_pass = _GruPass(*saved)
        by_candidate, by_gates = _derivatives(forward_pass)
        states, gates = _backpropagate(direct, by_gates, forward_pass, weight)
        # W x + c enters r and z beside U h + b, but n without the factor r of o.
        of_projected = gates.clone()
        torch.mul(by_candidate, states, out=of_projected[:, :, 2])
        by_sample = gates.flatten(0, 1).flatten(1)
        previous = forward_pass.states[:-1].flatten(0, 1)
        return of_projected.flatten(2), None, by_sample.T @ previous, by_sample.sum(0)


def _derivatives(
    forward_pass: _GruPass,
) -> tuple[Float[Tensor, "time batch hidden"], Float[Tensor, "time batch 3 hidden"]]:
    """Returns the elementwise derivatives of h' by a_n, and by (a_r, a_z, o)."""
    states, gates, n = forward_pass
    r, z, o = gates.chunk(3, 2)
    by_candidate = (1 - z) * (1 - n * n)
    by_gates = gates.new_empty(*n.shape[:2], 3, n.shape[2])
    by_r, by_z, by_o = by_gates.unbind(2)
    torch.mul(by_candidate, r, out=by_o)
    torch.mul(by_o * o, 1 - r, out=by_r)
    torch.mul((states[:-1] - n) * z, 1 - z, out=by_z)
    return by_candidate, by_gates


def _backpropagate(
    direct: Float[Tensor, "time batch hidden"],
    derivatives: Float[Tensor, "time batch 3 hidden"],
    forward_pass: _GruPass,
    weight: Float[Tensor, "three_hidden hidden"],
) -> tuple[Float[Tensor, "time batch hidden"], Float[Tensor, "time batch 3 hidden"]]:
    """Runs the recursion over time; returns the gradients of the loss by h' and by (a_r, a_z, o).

    direct: the gradient by each state without its successors. derivatives: of h' by (a_r, a_z, o).
    """
    states_gradient = direct.clone()
    gates_gradient = torch.empty_like(derivatives)
    # Views by time, made once, as in the forward pass.
    by_state = states_gradient.unbind(0)
    by_state_wide = states_gradient.unsqueeze(2).unbind(0)
    by_gates = gates_gradient.unbind(0)
    by_gates_flat = gates_gradient.flatten(2).unbind(0)
    derivative = derivatives.unbind(0)
    z = forward_pass.gates.chunk(3, 2)[1].unbind(0)
    for t in reversed(range(len(direct))):
        torch.mul(derivative[t], by_state_wide[t], out=by_gates[t])
        if t:
            by_state[t - 1].addcmul_(by_state[t], z[t]).addmm_(by_gates_flat[t], weight)
    return states_gradient, gates_gradient
