"""trainers of several learners -> the surrogate that a planner uses, for all learners at once

Also computes how likely a network finds the next observation.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from quatrain.models.active_dynamics import losses
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.learner import FieldValue, Surrogate
from quatrain.models.active_dynamics.seq_vae.dynamics import Field
from quatrain.models.active_dynamics.seq_vae.encoder import Belief
from quatrain.models.active_dynamics.seq_vae.network import SeqVae
from quatrain.models.active_dynamics.seq_vae.trainer import SeqVaeTrainer


class LearnerFields(NamedTuple):
    """Holds the fields of learners as functions of states [learner, n, d].

    field: the members of each learner one after the other. members: how many these are.
    """

    field: Field
    members: int

    def mean_and_features(self, x: Float[Tensor, "learner n d"]) -> FieldValue:
        """Computes the mean over members; an ensemble has no features with uncertain weights."""
        if self.members > 1:
            return FieldValue(self.member_values(x).mean(2), x.new_zeros(*x.shape[:2], 0))
        features = self.field.features(x.mT)
        return FieldValue(self.field.from_features(features).mT, features.mT)

    def member_values(self, x: Float[Tensor, "learner n d"]) -> Float[Tensor, "learner n member d"]:
        values = self.field(self._repeat_for_members(x))
        return values.unflatten(0, (-1, self.members)).permute(0, 3, 1, 2)

    def jacobian(self, x: Float[Tensor, "learner n d"]) -> Float[Tensor, "learner n d d"]:
        jacobians = self.field.jacobian(self._repeat_for_members(x))
        return jacobians.unflatten(0, (-1, self.members)).mean(1)

    def region_products(
        self, grid: Float[Tensor, "point d"]
    ) -> Float[Tensor, "learner feature feature"]:
        """Computes Γ = mean_g φ(g) φ(g)ᵀ of each learner's features."""
        features = self.field.features(grid.T.expand(self.field.networks, -1, -1))
        return features @ features.mT / len(grid)

    def _repeat_for_members(self, x: Float[Tensor, "learner n d"]) -> Float[Tensor, "network d n"]:
        return x.mT if self.members == 1 else x.mT.repeat_interleave(self.members, 0)


def learner_fields(networks: Sequence[SeqVae]) -> LearnerFields:
    fields = [network.dynamics.field() for network in networks]
    return LearnerFields(fields[0].concatenate(fields), networks[0].members)


def predicted_innovation_nll(
    network: SeqVae,
    belief: Belief,
    control: Float[Tensor, "batch d"],
    y: Float[Tensor, "batch obs"],
) -> Float[Tensor, " batch"]:
    """Computes -log N(y - h(x); 0, H P Hᵀ + R) per channel, one transition after the belief.

    The predicted state x has the covariance P = F diag(v) Fᵀ + s dt, where v is the belief's
    variance.
    """
    fields = learner_fields([network])
    x = belief.mean[None]
    jacobian = fields.jacobian(x)[0]
    drift = fields.mean_and_features(x).value[0]
    expected = belief.mean + network.dt * (drift + control)
    step = torch.eye(x.shape[-1]) + network.dt * jacobian
    covariance = (step * belief.variance[:, None]) @ step.mT + torch.diag(network.step_variance)
    return losses.innovation_nll(network.decoder.channels(), expected, covariance, y)


@torch.no_grad()
def make_surrogate(
    config: ActiveDynamicsConfig, trainers: Sequence[SeqVaeTrainer], grid: Float[Tensor, "point d"]
) -> Surrogate:
    """Returns the mean fields, the posteriors of their last layers, and what observations reveal.

    grid: of the region of interest. The outputs have equal and independent posteriors.
    """
    networks = [trainer.network for trainer in trainers]
    fields = learner_fields(networks)
    posteriors = zip(*(trainer.posterior for trainer in trainers), strict=True)
    covariance, step_variance = map(torch.stack, posteriors)
    is_single = networks[0].has_weight_posterior
    needs_joint = is_single and config.train.acquisition.needs_joint_covariance
    return Surrogate(
        state=torch.stack([trainer.belief.mean for trainer in trainers]),
        control=networks[0].control,
        dt=config.env.dt,
        region_radius=config.env.region_radius,
        field=fields.mean_and_features,
        jacobian=fields.jacobian,
        members=None if is_single else fields.member_values,
        covariance=covariance if is_single else None,
        full_covariance=_block_diagonals(covariance, config.env.d) if needs_joint else None,
        region=fields.region_products(grid) if is_single else None,
        step_variance=step_variance,
        precision=torch.stack(
            [
                trainer.network.decoder.channels().precision(trainer.belief.mean)
                for trainer in trainers
            ]
        ),
    )


def _block_diagonals(
    covariance: Float[Tensor, "learner feature feature"], d: int
) -> Float[Tensor, "learner weight weight"]:
    return torch.stack([torch.block_diag(*[block] * d) for block in covariance])
