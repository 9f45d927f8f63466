"""rollouts, a fixed field -> the innovations of a filter of states: how well it expects them"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from quatrain.models.active_dynamics.bayes_filter import filter as bayes
from quatrain.models.active_dynamics.bayes_filter.channels import LearnedChannels
from quatrain.models.active_dynamics.bayes_filter.filter import Filter
from quatrain.models.active_dynamics.collect import Rollouts


class FrozenFit(NamedTuple):
    """Holds how well a filter with a fixed field explains rollouts, per learner.

    innovation_nll: per channel. nis: mean square of the innovations, in units of what the filter
    expects; 1 if it is right, above if overconfident. whiteness: correlation of innovations that
    follow each other; 0 if the filter is right.
    """

    innovation_nll: Float[Tensor, " learner"]
    nis: Float[Tensor, " learner"]
    whiteness: Float[Tensor, " learner"]


def expected_deviation(rollouts: Rollouts, d: int) -> tuple[float, float]:
    """Returns the standard errors of nis and whiteness on these rollouts, for a right filter."""
    count = rollouts.truncated.size * d
    return float((2 / count) ** 0.5), float(count**-0.5)


def frozen_innovation(
    filter: Filter,
    drift: Callable[[Tensor], Tensor],
    rollouts: Rollouts,
    u: Float[Tensor, "rollout time d"],
    learners: int,
) -> FrozenFit:
    """Computes the innovations of held-out observations by a filter of states alone.

    drift: fixed velocities [learner, rollout, d] at states of that shape, in double precision.
    u: effects of the actions.
    """
    shape = (learners, len(u))
    if isinstance(filter.emission, LearnedChannels):
        parts = (part.repeat_interleave(len(u), 0) for part in filter.emission)
        filter = filter._replace(emission=LearnedChannels(*parts))
    belief = bayes.state_prior(filter.d, learners * len(u))

    def at(column: np.ndarray, time: int) -> Float64[Tensor, "learner_rollout obs"]:
        # All times together would take gigabytes.
        return torch.tensor(column[:, time]).double().repeat(learners, 1)

    bayes.correct(filter, belief, at(rollouts.observations, 0))
    nll = []
    innovations = []
    for time in range(u.shape[1]):
        bayes.predict_state(
            filter,
            belief,
            lambda x: drift(x.unflatten(0, shape)).flatten(0, 1),
            u[:, time].repeat(learners, 1),
        )
        y = at(rollouts.next_observations, time)
        innovations.append(bayes.standard_innovation(filter, belief, y))
        nll.append(bayes.correct(filter, belief, y))
        ended = torch.tensor(rollouts.truncated[:, time]).repeat(learners)
        bayes.restart(filter, belief, ended, at(rollouts.observations, time + 1))
    size = torch.stack(innovations).unflatten(1, shape)
    continues = ~torch.tensor(rollouts.truncated[:, :-1]).T[:, None, :, None]
    following = (size[1:] * size[:-1] * continues).sum((0, 2, 3))
    return FrozenFit(
        innovation_nll=torch.stack(nll).mean(0).unflatten(0, shape).mean(1),
        nis=size.square().mean((0, 2, 3)),
        whiteness=following / size.square().sum((0, 2, 3)),
    )
