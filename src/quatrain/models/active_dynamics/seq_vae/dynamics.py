"""states -> velocities and the features they are linear in, for several fields side by side

A field is a value: the members of an ensemble, or the fields of many learners, are one field with a
longer leading axis. As in `layers`, samples come last.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from quatrain.models.active_dynamics.config import SeqVaeNetwork
from quatrain.models.active_dynamics.network import Rbf
from quatrain.models.active_dynamics.seq_vae.layers import MlpParameters, SigmoidMlp, StackedMlp


class RbfField(NamedTuple):
    """Holds the fields W φ(x); has the methods of `StackedMlp`."""

    rbf: Rbf
    weight: Float[Tensor, "network d feature"]

    @classmethod
    def concatenate(cls, fields: Sequence[Any]) -> "RbfField":
        return cls(fields[0].rbf, torch.cat([field.weight for field in fields]))

    @property
    def networks(self) -> int:
        return len(self.weight)

    def __call__(self, x: Float[Tensor, "network d n"]) -> Float[Tensor, "network d n"]:
        """Computes Σ_c W_c φ_c(x).

        Sums along one axis of the grid after the other; φ itself is never materialised.
        """
        networks, d, n = x.shape
        side = len(self.rbf.axis)
        differences = x[:, :, None] - self.rbf.axis[:, None]
        factors = torch.exp(differences.square() * (-0.5 / self.rbf.length**2))
        total = self.weight.reshape(networks, -1, side) @ factors[:, -1]
        for axis in reversed(range(d - 1)):
            total = (total.view(networks, -1, side, n) * factors[:, axis, None]).sum(2)
        return total

    def features(self, x: Float[Tensor, "network d n"]) -> Float[Tensor, "network feature n"]:
        return self.rbf.features(x.mT).mT

    def from_features(
        self, features: Float[Tensor, "network feature n"]
    ) -> Float[Tensor, "network d n"]:
        return self.weight @ features

    def for_large_batches(self) -> "RbfField":
        return self

    def jacobian(self, x: Float[Tensor, "network d n"]) -> Float[Tensor, "network n d d"]:
        return self.weight[:, None] @ self.rbf.with_derivatives(x.mT).derivatives


Field = StackedMlp | RbfField


class TransitionModel(NamedTuple):
    """Holds x' ~ N(x + f(x) dt + u dt, variance), with a field f for each member of an ensemble."""

    field: SigmoidMlp | RbfField
    variance: Float[Tensor, " d"]
    dt: float

    def mean(
        self, x: Float[Tensor, "member d n"], control_dt: Float[Tensor, "d n"]
    ) -> Float[Tensor, "member d n"]:
        """Returns x + f(x) dt + u dt. control_dt: u dt."""
        return torch.add(x + control_dt, self.field(x), alpha=self.dt)

    def noise(self, normal: Float[Tensor, "*step d n"]) -> Float[Tensor, "*step d n"]:
        """Scales standard normal numbers to the noise of a step."""
        return normal * self.variance.sqrt()[:, None]


class Dynamics(nn.Module):
    axis: Tensor

    def __init__(self, config: SeqVaeNetwork, d: int, rbf: Rbf | None) -> None:
        super().__init__()
        self.d = d
        self.length = None if rbf is None else rbf.length
        if rbf is not None:
            self.register_buffer("axis", rbf.axis, persistent=False)
            self.weight = nn.Parameter(torch.zeros(1, d, rbf.size))
        else:
            self.layers = MlpParameters(config.members, (d, *config.dynamics_hidden, d))

    def field(self) -> Field:
        return (
            self.layers.mlp()
            if self.length is None
            else RbfField(Rbf(self.axis, self.length, self.d), self.weight)
        )
