"""learners of some rows -> what a planner sees of them, all rows at once"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.learner import FieldValue, Surrogate, needs_joint_covariance
from quatrain.models.active_dynamics.seq_vae.dynamics import AnyField, stacked
from quatrain.models.active_dynamics.seq_vae.posterior import Posterior, has_features
from quatrain.models.active_dynamics.seq_vae.trainer import Worker


class Rowwise(NamedTuple):
    """Fields of rows, of each row those of all members one after the other, as functions of states [row, n, d]."""

    field: AnyField
    per_row: int

    def mean_and_features(self, x: Float[Tensor, "learner n d"]) -> FieldValue:
        """The mean over members; an ensemble has no features whose weights are uncertain."""
        if self.per_row > 1:
            return FieldValue(self.members(x).mean(2), x.new_zeros(*x.shape[:2], 0))
        features = self.field.features(x.mT)
        return FieldValue(self.field.of_features(features).mT, features.mT)

    def members(self, x: Float[Tensor, "learner n d"]) -> Float[Tensor, "learner n member d"]:
        """Each by itself."""
        return self.field(self._for_each(x)).unflatten(0, (-1, self.per_row)).permute(0, 3, 1, 2)

    def jacobian(self, x: Float[Tensor, "learner n d"]) -> Float[Tensor, "learner n d d"]:
        """Of the mean."""
        return self.field.jacobian(self._for_each(x)).unflatten(0, (-1, self.per_row)).mean(1)

    def region(self, grid: Float[Tensor, "point d"]) -> Float[Tensor, "learner feature feature"]:
        """Γ = mean_g φ(g) φ(g)ᵀ of each row's features."""
        features = self.field.features(grid.T.expand(self.field.lead, -1, -1))
        return features @ features.mT / len(grid)

    def _for_each(self, x: Float[Tensor, "learner n d"]) -> Float[Tensor, "lead d n"]:
        return x.mT if self.per_row == 1 else x.mT.repeat_interleave(self.per_row, 0)


@torch.no_grad()
def surrogate(
    config: ActiveDynamicsConfig, workers: Sequence[Worker], grid: Float[Tensor, "point d"]
) -> Surrogate:
    """The mean field of each row, how sure its last layer is, and what an observation where it is would tell.

    grid: of the region of interest. Outputs are as uncertain as each other, and know nothing of each other.
    """
    network, d = workers[0].network, config.env.d
    rows = Rowwise(
        stacked([worker.network.dynamics.field() for worker in workers]), network.members
    )
    known = Posterior(
        *map(torch.stack, zip(*(worker.posterior for worker in workers), strict=True))
    )
    state = torch.stack([worker.belief.mean for worker in workers])
    precision = [
        worker.network.decoder.channels().precision(x)
        for worker, x in zip(workers, state.unbind(0), strict=True)
    ]
    featured = has_features(network)
    joint = featured and needs_joint_covariance(config.train.acquisition)
    return Surrogate(
        state=state,
        control=network.control,
        dt=config.env.dt,
        region_radius=config.env.region_radius,
        field=rows.mean_and_features,
        jacobian=rows.jacobian,
        members=None if featured else rows.members,
        covariance=known.covariance if featured else None,
        full_covariance=by_output(known.covariance, d) if joint else None,
        region=rows.region(grid) if featured else None,
        step_variance=known.step_variance,
        precision=torch.stack(precision),
    )


def by_output(
    covariance: Float[Tensor, "learner feature feature"], d: int
) -> Float[Tensor, "learner weight weight"]:
    """Of the weights of d outputs, which are independent: blocks on the diagonal."""
    row, features, _ = covariance.shape
    found = covariance.new_zeros(row, d, features, d, features)
    found.diagonal(dim1=1, dim2=3).copy_(covariance[..., None].expand(-1, -1, -1, d))
    return found.view(row, d * features, d * features)
