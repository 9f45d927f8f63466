"""warm-up of a replicate -> channels from states, in the gauge that the known effect of actions fixes."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

DEGREE = 3
"""Of the polynomial that stands for the unknown field."""
LEAST_VARIANCE = 1e-6
"""Of a channel's noise."""


class WarmUp(NamedTuple):
    """Transitions of one replicate. intact: to be regressed on; those that left the box and so ended are not."""

    observations: Float[Tensor, "transition obs"]
    next_observations: Float[Tensor, "transition obs"]
    controls: Float[Tensor, "transition d"]
    intact: Bool[Tensor, " transition"]


class Decoded(NamedTuple):
    """y = C x + b + noise. Only the origin of x stays free."""

    weight: Float[Tensor, "obs d"]
    bias: Float[Tensor, " obs"]
    noise_variance: Float[Tensor, " obs"]


def learned_decoder(seen: WarmUp, dt: float) -> Decoded:
    """Principal directions L of the channels, turned until an action u moves the state by u dt.

    With z = Lᵀ(y - mean), dz/dt is regressed on cubic polynomials of z and on u; G, the block of u, gives x = G⁻¹ z and
    C = L G. The noise's variance is what the directions leave over.
    """
    d, channels = seen.controls.shape[1], seen.observations.shape[1]
    bias = seen.observations.mean(0)
    centred = seen.observations - bias
    directions = torch.linalg.svd(centred, full_matrices=False).Vh[:d].mT
    z, next_z = centred @ directions, (seen.next_observations - bias) @ directions
    terms = torch.cat([_polynomials(z), seen.controls], 1)[seen.intact]
    speed = ((next_z - z) / dt)[seen.intact]
    gauge = _fitted(terms, speed)[-d:].mT
    left = (centred - z @ directions.mT).square().mean(0)
    variance = (left.mean() * channels / (channels - d)).clamp(min=LEAST_VARIANCE).expand(channels)
    return Decoded(directions @ gauge, bias, variance.clone())


def _polynomials(z: Float[Tensor, "transition d"]) -> Float[Tensor, "transition term"]:
    """All products of at most DEGREE coordinates."""
    found, latest = [torch.ones_like(z[:, :1])], [(torch.ones_like(z[:, 0]), 0)]
    for _ in range(DEGREE):
        latest = [
            (value * z[:, axis], axis)
            for value, first in latest
            for axis in range(first, z.shape[1])
        ]
        found += [value[:, None] for value, _ in latest]
    return torch.cat(found, 1)


class Aligned(NamedTuple):
    """x = A z + c."""

    turn: Float[Tensor, "d d"]
    shift: Float[Tensor, " d"]


def aligned(z: Float[Tensor, "state d"], x: Float[Tensor, "state d"]) -> Aligned:
    """Least squares of true states on what a learner takes them for."""
    terms = torch.cat([z, torch.ones_like(z[:, :1])], 1).double()
    solution = _fitted(terms, x.double())
    return Aligned(solution[:-1].mT.contiguous(), solution[-1])


def _fitted(
    terms: Float[Tensor, "row term"], values: Float[Tensor, "row d"]
) -> Float[Tensor, "term d"]:
    """Least squares. torch's `lstsq` may differ from call to call on the CPU, and on CUDA wants full rank."""
    return torch.linalg.pinv(terms) @ values
