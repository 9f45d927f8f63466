"""encoded states and actions -> how actions move latent states, and networks where they do so as B

A learned decoder leaves the coordinates of latent states free: with z = G x, channels and field can
compensate any G. The known effect of actions, dx/dt = f(x) + B a, fixes all but the origin:

    (z_{t+1} - z_t) / dt = polynomial(z_t) + E a_t + noise      least squares over the replay
    G = I + (E - B) B⁺                                          so that E = G B

A plan that is made where E differs from B moves states in other directions than imagined.
"""

from math import comb
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from quatrain.models.active_dynamics.decoder_identification import DEGREE, polynomials
from quatrain.models.active_dynamics.seq_vae.encoder import Belief
from quatrain.models.active_dynamics.seq_vae.network import SeqVae

# Standard error of an effect that too few transitions were seen of.
UNKNOWN = 1e6
# Transitions per coefficient of the polynomials.
SAMPLES_PER_TERM = 3
# Weight of the prior where an RBF field is fitted anew.
RIDGE = 1e-3


class Effect(NamedTuple):
    """Holds E and the standard errors of its entries."""

    mean: Float64[Tensor, "d action"]
    error: Float64[Tensor, "d action"]

    @classmethod
    def unknown(cls, d: int, actions: int) -> "Effect":
        mean = torch.zeros(d, actions, dtype=torch.float64)
        return cls(mean, torch.full_like(mean, UNKNOWN))

    def misalignment(self, control: Float[Tensor, "d action"]) -> Float64[Tensor, ""]:
        """Computes |E - B| / |B|."""
        return (self.mean - control).norm() / control.double().norm()

    def uncertainty(self, control: Float[Tensor, "d action"]) -> Float64[Tensor, ""]:
        """Computes the standard error of the misalignment."""
        return self.error.norm() / control.double().norm()

    def transform(self, control: Float[Tensor, "d action"]) -> "Transform":
        """Returns the change of coordinates after which actions have the effect B."""
        exact = control.double()
        matrix = torch.eye(len(exact)).to(exact) + (self.mean - exact) @ torch.linalg.pinv(exact)
        inverse = torch.linalg.inv_ex(matrix).inverse
        error = (inverse @ self.error).norm() / exact.norm()
        return Transform(matrix.float(), inverse.float(), error)


class Transform(NamedTuple):
    """Holds G and G⁻¹ of z = G x, and the standard error of the effect of actions on x."""

    matrix: Float[Tensor, "d d"]
    inverse: Float[Tensor, "d d"]
    error: Float64[Tensor, ""]

    def moved(self, belief: Belief) -> Belief:
        """Returns a belief about z as one about x, with independent dimensions."""
        spread = self.inverse.square()
        return Belief(belief.mean @ self.inverse.mT, belief.variance @ spread.mT)


@torch.no_grad()
def measure_effect(
    z: Float[Tensor, "time d"],
    actions: Float[Tensor, "time action"],
    ended: Bool[Tensor, " time"],
    dt: float,
) -> Effect:
    """Regresses the speed of encoded states on polynomials of them and on actions.

    z: after each transition. actions: in it. ended: whether its episode ended with it.
    """
    d, count = z.shape[1], actions.shape[1]
    within = ~ended[:-1]
    degree = _degree(d, int(within.sum()) // SAMPLES_PER_TERM - count)
    if degree < 0:
        return Effect.unknown(d, count)
    z = z.double()
    terms = torch.cat([polynomials(z[:-1], degree), actions[1:].double()], 1)[within]
    speed = ((z[1:] - z[:-1]) / dt)[within]
    inverse = torch.linalg.pinv(terms)
    solution = inverse @ speed
    residual = (speed - terms @ solution).square().sum(0) / (len(terms) - terms.shape[1])
    spread = inverse[-count:].square().sum(1)
    return Effect(solution[-count:].mT.contiguous(), (residual[:, None] * spread).sqrt())


def _degree(d: int, terms: int) -> int:
    """Returns the largest degree of at most `terms` terms, up to DEGREE; -1 if there is none."""
    return max((k for k in range(DEGREE + 1) if comb(d + k, k) <= terms), default=-1)


@torch.no_grad()
def change_coordinates(
    network: SeqVae, transform: Transform, grid: Float[Tensor, "point d"]
) -> None:
    """Changes the latent states of a network with a learned decoder from z = G x to x, in place.

    Encoded means, channels and MLP fields are kept exactly. RBF fields are fitted on the grid, and
    variances are those of independent dimensions that were equally uncertain.
    """
    matrix, inverse, _ = transform
    heads = network.encoder.heads
    for layer in (heads.weights[-1], heads.biases[-1]):
        layer[0] = inverse @ layer[0]
    _change_field(network, transform, grid)
    decoder = network.decoder
    first = decoder.layers.weights[0] if decoder.kind == "mlp" else decoder.weight
    first.copy_(first @ matrix)
    network.first_mean.copy_(inverse @ network.first_mean)
    # A variance is nearly the exponential of its parameter.
    growth = inverse.square().sum(1).log()
    heads.biases[-1][1] += growth[:, None]
    network.raw_noise.add_(growth)
    network.raw_first_variance.add_(growth)


def _change_field(network: SeqVae, transform: Transform, grid: Float[Tensor, "point d"]) -> None:
    """Replaces f(z) by G⁻¹ f(G x)."""
    matrix, inverse, _ = transform
    dynamics = network.dynamics
    if dynamics.rbf is not None:
        velocity = (inverse @ dynamics(matrix @ grid.mT[None])[0]).double()
        features = dynamics.rbf.features(grid).double()
        products = features.mT @ features
        products.diagonal().add_(RIDGE)
        dynamics.weight[0] = torch.linalg.solve(products, features.mT @ velocity.mT).mT
        return
    weights, biases = dynamics.layers.weights, dynamics.layers.biases
    weights[0].copy_(weights[0] @ matrix)
    for last in (weights[-1], biases[-1]):
        last.copy_(inverse @ last)
