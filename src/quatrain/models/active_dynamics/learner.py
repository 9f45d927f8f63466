"""What both families of learners take, give, and offer."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from quatrain.models.active_dynamics.collect import Dataset, HeldOut
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.surrogate import Surrogate
from quatrain.replay.windows import WindowRing

Weights = dict[str, Tensor]
"""By name, the rows first."""


class Seen(NamedTuple):
    """A transition of all rows, as learners are told.

    action, control: a_t and u_t = B a_t. observation: y_{t+1}, of the state that they led to. truncated: an episode
    ended there; begun: what was seen of the new beginning (elsewhere the same as `observation`).
    """

    action: Float[Tensor, "row action"]
    control: Float[Tensor, "row d"]
    observation: Float[Tensor, "row obs"]
    truncated: Bool[Tensor, " row"]
    begun: Float[Tensor, "row obs"]


class Moments(NamedTuple):
    """Of the field, by output."""

    mean: Float64[Tensor, "row point d"]
    variance: Float64[Tensor, "row point d"]


class Gauge(NamedTuple):
    """True states of those that a learner means: x = A z + c."""

    turn: Float64[Tensor, "row d d"]
    shift: Float64[Tensor, "row d"]

    def inward(self, x: Float64[Tensor, "*row point d"]) -> Float64[Tensor, "row point d"]:
        """z of x."""
        return (x - self.shift[:, None]) @ torch.linalg.pinv(self.turn).mT

    def outward(self, z: Float64[Tensor, "row point d"]) -> Float64[Tensor, "row point d"]:
        """x of z."""
        return self.velocity(z) + self.shift[:, None]

    def velocity(self, v: Float64[Tensor, "row point d"]) -> Float64[Tensor, "row point d"]:
        """dx/dt of dz/dt."""
        return v @ self.turn.mT

    def spread(self, variance: Float64[Tensor, "row point d"]) -> Float64[Tensor, "row point d"]:
        """Of velocities: A diag(variance) Aᵀ, its diagonal."""
        return variance @ self.turn.square().mT


@runtime_checkable
class Rows(Protocol):
    """Learners of all rows at work. What is of the field is in their own gauge."""

    REMEDY: str

    @classmethod
    def fresh(
        cls, config: ActiveDynamicsConfig, dataset: Dataset, seed: np.random.SeedSequence
    ) -> "Rows":
        """At the common start, before the first transition."""

    @classmethod
    def restored(cls, config: ActiveDynamicsConfig, dataset: Dataset, saved: Any) -> "Rows":
        """Where a learner was; of it nothing is changed."""

    @property
    def weights(self) -> Weights:
        """What a checkpoint keeps."""

    def state(self) -> dict[str, Any]:
        """`params`, `decoder` and `further` of a learner, in tensors that stay so."""

    def observe(self, seen: Seen) -> Float[Tensor, " row"]:
        """Believe, in place. Returns the innovation's negative log likelihood per channel."""

    def improve(self, replay: WindowRing) -> None:
        """Learn from the replay, in place."""

    @property
    def told(self) -> dict[str, Float[Tensor, " row"]]:
        """What the last improvement noted; the same names each time."""

    def surrogate(self, rows: slice) -> Surrogate:
        """What a planner sees of some rows."""

    def drift(
        self, weights: Weights, x: Float[Tensor, "row point d"]
    ) -> Float[Tensor, "row point d"]:
        """The field by some checkpoint's weights."""

    def moments(self, x: Float[Tensor, "row point d"]) -> Moments:
        """The field now, and how uncertain it is."""

    def gauge(self, weights: Weights, held_out: HeldOut) -> Gauge:
        """How its states are to be read."""

    def information(self) -> Float[Tensor, " row"]:
        """Nats gained about the weights since the prior."""

    def judged(self, held_out: HeldOut, seed: int) -> dict[str, Float[Tensor, " row"]]:
        """`innovation_nll` on held-out rollouts with weights as they are, and what else only this family has."""
