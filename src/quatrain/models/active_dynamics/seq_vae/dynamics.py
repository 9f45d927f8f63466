"""states -> velocities and the features they are linear in, of several fields side by side

A field is a value, so that the members of an ensemble, or the fields of many rows, are one with a longer leading axis.
As in `layers`, samples come last.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from quatrain.models.active_dynamics.config import SeqVaeNetwork
from quatrain.models.active_dynamics.network import Rbf
from quatrain.models.active_dynamics.seq_vae.layers import LayerParameters, Layers, SigmoidLayers


class RbfField(NamedTuple):
    """W φ(x); offers what `Layers` do."""

    rbf: Rbf
    weight: Float[Tensor, "lead d feature"]

    @property
    def lead(self) -> int:
        """How many fields these are."""
        return len(self.weight)

    def __call__(self, x: Float[Tensor, "lead d n"]) -> Float[Tensor, "lead d n"]:
        """Σ_c W_c φ_c(x), summed along one axis of the grid after the other: φ itself is never made."""
        lead, d, n = x.shape
        along = torch.exp(
            (x[:, :, None] - self.rbf.axis[:, None]).square() * (-0.5 / self.rbf.length**2)
        )
        side = along.shape[2]
        found = self.weight.reshape(lead, -1, side) @ along[:, -1]
        for axis in reversed(range(d - 1)):
            found = (found.view(lead, -1, side, n) * along[:, axis, None]).sum(2)
        return found

    def features(self, x: Float[Tensor, "lead d n"]) -> Float[Tensor, "lead feature n"]:
        """φ(x)."""
        return self.rbf.features(x.mT).mT

    def of_features(self, features: Float[Tensor, "lead feature n"]) -> Float[Tensor, "lead d n"]:
        """Velocities where the features are these."""
        return self.weight @ features

    def for_many(self) -> "RbfField":
        """Itself."""
        return self

    def jacobian(self, x: Float[Tensor, "lead d n"]) -> Float[Tensor, "lead n d d"]:
        """∂f_i/∂x_j."""
        return self.weight[:, None] @ self.rbf.with_derivatives(x.mT).derivatives


AnyField = Layers | RbfField


class Law(NamedTuple):
    """x' ~ N(x + f(x) dt + u dt, variance): of the members of an ensemble each with its own f."""

    field: SigmoidLayers | RbfField
    variance: Float[Tensor, " d"]
    dt: float

    def mean(
        self, x: Float[Tensor, "member d n"], push: Float[Tensor, "d n"]
    ) -> Float[Tensor, "member d n"]:
        """push: u dt."""
        return torch.add(x + push, self.field(x), alpha=self.dt)

    def noise(self, normal: Float[Tensor, "*step d n"]) -> Float[Tensor, "*step d n"]:
        """Of steps, from standard normal numbers."""
        return normal * self.variance.sqrt()[:, None]


def stacked(fields: Sequence[AnyField]) -> AnyField:
    """Of fields of one form that with all their leading axes, one after the other."""
    first = fields[0]
    if isinstance(first, RbfField):
        return first._replace(
            weight=torch.cat([one.weight for one in fields if isinstance(one, RbfField)])
        )
    parts = zip(
        *((*one.weights, *one.biases) for one in fields if isinstance(one, Layers)), strict=True
    )
    joined, depth = tuple(torch.cat(part) for part in parts), len(first.weights)
    return Layers(joined[:depth], joined[depth:])


class Dynamics(nn.Module):
    """What is learned of the fields of all members."""

    axis: Tensor

    def __init__(self, config: SeqVaeNetwork, d: int, rbf: Rbf | None) -> None:
        super().__init__()
        self.d, self.length = d, None if rbf is None else rbf.length
        if rbf is not None:
            self.register_buffer("axis", rbf.axis, persistent=False)
            self.weight = nn.Parameter(torch.zeros(1, d, rbf.size))
        else:
            hidden = () if config.dynamics == "linear" else config.dynamics_hidden
            self.layers = LayerParameters(config.members, (d, *hidden, d))

    def field(self) -> AnyField:
        """The fields as they are now."""
        if self.length is None:
            return self.layers.now()
        return RbfField(Rbf(self.axis, self.length, self.d), self.weight)
