"""rollouts, a fixed field -> the innovations of a filter of states: how well it expects them"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from quatrain.models.active_dynamics.bayes_filter import filter as bayes
from quatrain.models.active_dynamics.bayes_filter.filter import KalmanFilter, LearnedChannels
from quatrain.models.active_dynamics.collect import Rollouts

# Quantile of the normal distribution that leaves 2.5 % above it.
QUANTILE = 1.96


class Innovations(NamedTuple):
    """Holds the innovations of each transition.

    nll: negative log likelihood per channel. standardized: N(0, I) if the filter is right.
    """

    nll: Float64[Tensor, "time learner_rollout"]
    standardized: Float64[Tensor, "time learner_rollout d"]


class FrozenFit(NamedTuple):
    """Holds how well a filter with a fixed field explains rollouts, per learner.

    innovation_nll: per channel. nis: mean square of the innovations, in units of what the filter
    expects; 1 if it is right, above if it expects too little noise, below if too much. whiteness:
    correlation of innovations that follow each other; 0 if the filter is right, above if it follows
    observations too slowly, below if too readily.

    The field counts as known: what is uncertain about a learned one raises nis and whiteness.
    Directions of the state that no channel shows count as innovations of 0, so that nis of a right
    filter is the share of the others.
    """

    innovation_nll: Float[Tensor, " learner"]
    nis: Float[Tensor, " learner"]
    whiteness: Float[Tensor, " learner"]


def expected_intervals(rollouts: Rollouts, d: int) -> dict[str, float]:
    """Returns `NAME_expected_low` and `..._high`: 95 % intervals of nis and whiteness.

    They are those of a right filter whose channels show all directions of the state. A value below
    is a misfit as well as one above.
    """
    count = rollouts.truncated.size * d
    intervals = {}
    for name, mean, deviation in (("nis", 1, (2 / count) ** 0.5), ("whiteness", 0, count**-0.5)):
        intervals[f"{name}_expected_low"] = mean - QUANTILE * deviation
        intervals[f"{name}_expected_high"] = mean + QUANTILE * deviation
    return intervals


def frozen_innovation(
    kalman: KalmanFilter,
    drift: Callable[[Tensor], Tensor],
    rollouts: Rollouts,
    u: Float[Tensor, "rollout time d"],
    learners: int,
) -> FrozenFit:
    """Computes the innovations of held-out observations by a filter of states alone.

    drift: fixed velocities [learner, rollout, d] at states of that shape, in double precision.
    u: effects of the actions.
    """
    innovations = _filter_states(kalman, drift, rollouts, u, learners)
    standardized = innovations.standardized.unflatten(1, (learners, len(u)))
    continues = ~torch.tensor(rollouts.truncated[:, :-1]).T[:, None, :, None]
    following = (standardized[1:] * standardized[:-1] * continues).sum((0, 2, 3))
    return FrozenFit(
        innovation_nll=innovations.nll.mean(0).unflatten(0, (learners, len(u))).mean(1),
        nis=standardized.square().mean((0, 2, 3)),
        whiteness=following / standardized.square().sum((0, 2, 3)),
    )


def _filter_states(
    kalman: KalmanFilter,
    drift: Callable[[Tensor], Tensor],
    rollouts: Rollouts,
    u: Float[Tensor, "rollout time d"],
    learners: int,
) -> Innovations:
    """Filters all rollouts at once, for all learners."""
    kalman = _for_rollouts(kalman, len(u))
    belief = bayes.state_prior(kalman.d, learners * len(u))

    def drift_of_rows(x: Float64[Tensor, "learner_rollout d"]) -> Tensor:
        return drift(x.unflatten(0, (learners, len(u)))).flatten(0, 1)

    def at(column: np.ndarray, time: int) -> Float64[Tensor, "learner_rollout obs"]:
        # All times together would take gigabytes.
        return torch.tensor(column[:, time]).double().repeat(learners, 1)

    kalman.correct(belief, at(rollouts.observations, 0))
    nll = []
    standardized = []
    for time in range(u.shape[1]):
        kalman.predict_state(belief, drift_of_rows, u[:, time].repeat(learners, 1))
        y = at(rollouts.next_observations, time)
        standardized.append(kalman.standardized_innovation(belief, y))
        nll.append(kalman.correct(belief, y))
        ended = torch.tensor(rollouts.truncated[:, time]).repeat(learners)
        kalman.restart(belief, ended, at(rollouts.observations, time + 1))
    return Innovations(torch.stack(nll), torch.stack(standardized))


def _for_rollouts(kalman: KalmanFilter, rollouts: int) -> KalmanFilter:
    """Repeats the channels of learners that have their own."""
    if not isinstance(kalman.emission, LearnedChannels):
        return kalman
    parts = (part.repeat_interleave(rollouts, 0) for part in kalman.emission)
    return kalman._replace(emission=LearnedChannels(*parts))
