"""observed transitions -> beliefs about the field: what a learner of either family offers

`family_of` names the class of a config; `state.TrainingState` makes one object of it, which learns
for all arms and replicates.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from quatrain.envs.vector_field.world import Transition
from quatrain.models.active_dynamics.collect import Dataset, HeldOut
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.replay.windows import WindowRing

# Name -> weights, with the learners as first axis.
Weights = dict[str, Tensor]


class FieldValue(NamedTuple):
    """Holds the mean field at some states, and the features whose weights are uncertain."""

    value: Float[Tensor, "learner n d"]
    features: Float[Tensor, "learner n feature"]


class Moments(NamedTuple):
    """Holds mean and variance of each output of the field."""

    mean: Float64[Tensor, "learner point d"]
    variance: Float64[Tensor, "learner point d"]


class FieldPosterior(NamedTuple):
    """Holds the field of one learner, as it is exported for inference.

    weights: name -> weights. covariance: of the weights of each output (bayes_filter), of one
    output shared by all (seq_vae), or without any feature (ensembles).
    """

    weights: dict[str, Tensor]
    covariance: Float[Tensor, "*output feature feature"]


# Latent states [1, point, d] -> moments.
PosteriorMoments = Callable[[Tensor], Moments]


class AffineAlignment(NamedTuple):
    """Maps latent states of learners to true states: x = A z + c."""

    matrix: Float64[Tensor, "learner d d"]
    offset: Float64[Tensor, "learner d"]

    @classmethod
    def identity(cls, learners: int, d: int) -> "AffineAlignment":
        """Returns the alignment of learners whose latent states are true states."""
        matrix = torch.eye(d).double().expand(learners, d, d)
        return cls(matrix, torch.zeros(learners, d).double())

    def to_latent(
        self, x: Float64[Tensor, "*learner point d"]
    ) -> Float64[Tensor, "learner point d"]:
        """Computes z = A⁺ (x - c)."""
        return (x - self.offset[:, None]) @ torch.linalg.pinv(self.matrix).mT

    def to_state(self, z: Float64[Tensor, "learner point d"]) -> Float64[Tensor, "learner point d"]:
        """Computes x = A z + c."""
        return self.to_velocity(z) + self.offset[:, None]

    def to_velocity(
        self, v: Float64[Tensor, "learner point d"]
    ) -> Float64[Tensor, "learner point d"]:
        """Computes dx/dt = A dz/dt."""
        return v @ self.matrix.mT

    def to_field(self, moments: Moments) -> Moments:
        """Returns mean and variance of dx/dt from those of dz/dt."""
        # The diagonal of A diag(variance) Aᵀ.
        variance = moments.variance @ self.matrix.square().mT
        return Moments(self.to_velocity(moments.mean), variance)


class Surrogate(NamedTuple):
    """Holds what a planner needs of some learners, in single precision.

    control: B of u = B a. field, jacobian (J_ij = ∂f_i/∂x_j), members (of an ensemble): functions
    of states [learner, n, d]. covariance: Σ, the mean over outputs of the blocks P_ww,ii.
    full_covariance: P_ww with weight (i, c) at i·C + c. region: Γ, the mean of φφᵀ over the region
    of interest. step_variance: of an observed x_{t+1} - x_t, from process noise and from the
    uncertainty of both states (Q dt + mean diag Λ⁻¹; mean(s dt + 2v)). precision: Λ = Hᵀ R⁻¹ H at
    the current state. Entries that a family does not have are None.
    """

    state: Float[Tensor, "learner d"]
    control: Float[Tensor, "d action"]
    dt: float
    region_radius: float
    field: Callable[[Tensor], FieldValue]
    jacobian: Callable[[Tensor], Tensor]
    members: Callable[[Tensor], Tensor] | None
    covariance: Float[Tensor, "learner feature feature"] | None
    full_covariance: Float[Tensor, "learner weight weight"] | None
    region: Float[Tensor, "*learner feature feature"] | None
    step_variance: Float[Tensor, " learner"]
    precision: Float[Tensor, "learner d d"]


@runtime_checkable
class FieldLearner(Protocol):
    """Learns the field, for all learners (arm by arm, all replicates of each) at once.

    States and velocities are in latent coordinates; `alignment` maps them to true ones.
    """

    REMEDY: str
    """The advice of an error message about numbers that are not finite."""

    @classmethod
    def init(
        cls, config: ActiveDynamicsConfig, dataset: Dataset, seed: np.random.SeedSequence
    ) -> "FieldLearner":
        """Returns the learners before the first transition."""

    @classmethod
    def from_state(
        cls, config: ActiveDynamicsConfig, dataset: Dataset, saved: Any
    ) -> "FieldLearner":
        """Returns the learners that a saved state describes; the saved state is not changed."""

    def to_state(self) -> dict[str, Any]:
        """Returns copies of all that changes: `params`, `decoder` and `family_state`."""

    @property
    def weights(self) -> Weights:
        """Returns the weights of the field, as a checkpoint keeps them."""

    def observe(self, transition: Transition) -> Float[Tensor, " learner"]:
        """Updates the beliefs in place.

        Returns: the innovation's negative log likelihood per channel.
        """

    def improve(self, replay: WindowRing) -> None:
        """Learns from the replay, in place."""

    @property
    def last_update_metrics(self) -> dict[str, Float[Tensor, " learner"]]:
        """Returns the metrics of the last `improve`; the names never change."""

    def can_plan(self, learners: slice) -> Bool[Tensor, " learner"]:
        """Returns whether actions are known to move the beliefs of these learners as imagined."""

    def surrogate(self, learners: slice) -> Surrogate:
        """Returns what a planner needs of these learners."""

    def drift(
        self, weights: Weights, x: Float[Tensor, "learner point d"]
    ) -> Float[Tensor, "learner point d"]:
        """Computes the mean field of a checkpoint's weights."""

    def moments(self, x: Float[Tensor, "learner point d"]) -> Moments:
        """Computes mean and variance of the current field."""

    def alignment(self, weights: Weights, held_out: HeldOut) -> AffineAlignment:
        """Returns the map from latent to true states."""

    def information(self) -> Float[Tensor, " learner"]:
        """Computes the nats gained about the weights since the prior."""

    def evaluate(self, held_out: HeldOut, seed: int) -> dict[str, Float[Tensor, " learner"]]:
        """Computes `innovation_nll` with fixed weights, and scores of the family."""

    def export_posterior(self, learner: int) -> FieldPosterior:
        """Returns what inference needs of one learner."""

    @classmethod
    def posterior_template(cls, config: ActiveDynamicsConfig) -> FieldPosterior:
        """Returns a posterior with the names, shapes and dtypes of `export_posterior`."""

    @classmethod
    def posterior_moments(
        cls, config: ActiveDynamicsConfig, posterior: FieldPosterior
    ) -> PosteriorMoments:
        """Returns what computes mean and variance of an exported field."""


def family_of(config: ActiveDynamicsConfig) -> Any:  # beartype cannot check a type of a Protocol
    """Returns the type of FieldLearner of the config's family; imports no other."""
    family: type[FieldLearner]
    if config.network.family == "bayes_filter":
        from quatrain.models.active_dynamics.bayes_filter.learner import BayesFilterLearner

        family = BayesFilterLearner
    else:
        from quatrain.models.active_dynamics.seq_vae.learner import SeqVaeLearner

        family = SeqVaeLearner
    return family
