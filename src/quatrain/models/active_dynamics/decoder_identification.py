"""warm-up of a replicate -> channels from states, aligned by the known effect of actions."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

# Degree of the polynomial that approximates the unknown field.
DEGREE = 3
LEAST_VARIANCE = 1e-6


class LinearDecoder(NamedTuple):
    """Holds C, b and R of y = C x + b + noise; only the origin of x is arbitrary."""

    weight: Float[Tensor, "obs d"]
    bias: Float[Tensor, " obs"]
    noise_variance: Float[Tensor, " obs"]


def identify_decoder(
    observations: Float[Tensor, "transition obs"],
    next_observations: Float[Tensor, "transition obs"],
    controls: Float[Tensor, "transition d"],
    intact: Bool[Tensor, " transition"],
    dt: float,
) -> LinearDecoder:
    """Identifies linear channels from principal directions L and the known effect of actions.

    intact: used in the regression; transitions that left the box and ended an episode are not.

    With z = Lᵀ(y - mean), dz/dt is regressed on cubic polynomials of z and on u. The coefficients G
    of u give x = G⁻¹ z and C = L G. The noise variance is that of the residual off the directions.
    """
    d = controls.shape[1]
    channels = observations.shape[1]
    bias = observations.mean(0)
    centred = observations - bias
    directions = torch.linalg.svd(centred, full_matrices=False).Vh[:d].mT
    z = centred @ directions
    next_z = (next_observations - bias) @ directions
    terms = torch.cat([polynomials(z, DEGREE), controls], 1)[intact]
    speed = ((next_z - z) / dt)[intact]
    effect = _least_squares(terms, speed)[-d:].mT
    residual = (centred - z @ directions.mT).square().mean(0)
    variance = (residual.mean() * channels / (channels - d)).clamp(min=LEAST_VARIANCE)
    return LinearDecoder(directions @ effect, bias, variance.expand(channels).clone())


def polynomials(z: Float[Tensor, "transition d"], degree: int) -> Float[Tensor, "transition term"]:
    """Computes all products of at most `degree` coordinates."""
    columns = [torch.ones_like(z[:, :1])]
    latest = [(torch.ones_like(z[:, 0]), 0)]
    for _ in range(degree):
        latest = [
            (value * z[:, axis], axis)
            for value, first in latest
            for axis in range(first, z.shape[1])
        ]
        columns += [value[:, None] for value, _ in latest]
    return torch.cat(columns, 1)


def fit_affine(
    z: Float[Tensor, "state d"], x: Float[Tensor, "state d"]
) -> tuple[Float64[Tensor, "d d"], Float64[Tensor, " d"]]:
    """Returns A and c of x = A z + c, fitted by least squares."""
    terms = torch.cat([z, torch.ones_like(z[:, :1])], 1).double()
    solution = _least_squares(terms, x.double())
    return solution[:-1].mT.contiguous(), solution[-1]


def _least_squares(
    terms: Float[Tensor, "sample term"], values: Float[Tensor, "sample d"]
) -> Float[Tensor, "term d"]:
    # `lstsq` may vary between calls on the CPU, and needs full rank on CUDA.
    return torch.linalg.pinv(terms) @ values
