"""metrics of transitions -> recorded metrics by name, or the error that learning diverged."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from quatrain.envs.vector_field.fields import region_grid
from quatrain.models.active_dynamics.state import TrainingState
from quatrain.progress import TrainingDiverged, by_seed

# Stride over the region's grid of the points that are monitored while learning.
MONITOR_STRIDE = 4
# Metrics that are summed over the transitions of a yield; all others are averaged.
SUMS = ("truncations",)


def metrics_of(
    training: TrainingState, transitions: Sequence[Mapping[str, Float[Tensor, " learner"]]]
) -> dict[str, Float[np.ndarray, "..."]]:
    """Returns one entry for the transitions of a yield: `NAME.ARM` of each arm, and `NAME` of all.

    Raises:
        TrainingDiverged: something is not finite.
    """
    columns = {
        name: torch.stack([metrics[name] for metrics in transitions]).double()
        for name in transitions[0]
    }
    check_finite(training, columns)
    reduced = {
        name: column.sum(0) if name in SUMS else column.mean(0) for name, column in columns.items()
    }
    reduced |= {"information_gained": training.information} | _field_metrics(training)
    arms = training.config.train.arms
    named = {}
    for name, value in reduced.items():
        by_arm = value.numpy(force=True).reshape(len(arms), -1)
        named[name] = by_arm.mean(0)[None]
        for arm, replicates in zip(arms, by_arm, strict=True):
            named[f"{name}.{arm}"] = replicates[None]
    return by_seed(named)


@torch.no_grad()
def _field_metrics(training: TrainingState) -> dict[str, Float[Tensor, " learner"]]:
    learner = training.learner
    points = region_grid(training.config.env.region_radius, training.config.env.d)[::MONITOR_STRIDE]
    truth = training.world.field(points).double()
    points = points.double()
    alignment = learner.alignment(learner.weights, training.dataset.held_out)
    z = alignment.to_latent(points.expand(training.config.learners, -1, -1))
    mean, variance = learner.moments(z)
    error = (alignment.to_velocity(mean) - truth).square().sum((1, 2)) / truth.square().sum()
    return {
        "field_sd": alignment.to_velocity_variance(variance).mean((1, 2)).sqrt(),
        "monitor/field_nrmse": error.sqrt(),
    }


def check_finite(
    training: TrainingState, columns: Mapping[str, Float[Tensor, "transition learner"]]
) -> None:
    """Raises if a metric, or the state at the end of a yield, is not finite.

    Raises:
        TrainingDiverged: names the transition, the metric or tensor, the learner, and the keys to
            lower.
    """
    remedy = training.learner.REMEDY
    for name, column in columns.items():
        broken = (~column.isfinite()).nonzero()
        if len(broken):
            place, learner = broken[0].tolist()
            step = training.transitions - len(column) + place + 1
            where = _where(training, step, name, learner)
            raise TrainingDiverged(f"{where} is {column[place, learner]:g}; {remedy}")
    tensors = {**training.learner.to_state(), "information_gained": training.information}
    for name, index in _not_finite(tensors, training.config.learners):
        where = _where(training, training.transitions, name, index)
        raise TrainingDiverged(f"{where} is not finite; {remedy}")


def _not_finite(
    tree: Any, learners: int, name: str = "", learner: int | None = None
) -> Iterator[tuple[str, int | None]]:
    """Yields path and learner of each tensor that is not finite.

    The path leaves out the places of learners; the learner is None if the tensor has no such axis.
    """
    if isinstance(tree, Tensor):
        broken = ~tree.isfinite()
        if broken.any():
            if learner is None and broken.shape[:1] == (learners,):
                learner = int(broken.view(learners, -1).any(1).nonzero()[0])
            yield name, learner
    elif hasattr(tree, "_asdict"):
        yield from _not_finite(tree._asdict(), learners, name, learner)
    elif isinstance(tree, dict):
        for key, child in tree.items():
            yield from _not_finite(child, learners, f"{name}/{key}" if name else key, learner)
    elif tree is not None:
        by_learner = len(tree) == learners and len({type(child) for child in tree}) == 1
        for place, child in enumerate(tree):
            yield from _not_finite(child, learners, name, place if by_learner else learner)


def _where(training: TrainingState, step: int, name: str, learner: int | None) -> str:
    stopped = f"active_dynamics stopped at transition {step}: {name}"
    if learner is None:
        return stopped
    arm, replicate = divmod(learner, training.config.seeds)
    return f"{stopped} of learner {training.config.train.arms[arm]}/{replicate}"
