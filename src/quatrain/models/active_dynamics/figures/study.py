"""a learner -> what its figures are of, computed once."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64, Shaped
from torch import Tensor

from quatrain.models.active_dynamics.collect import Dataset
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.evaluate import FieldEstimate, estimate_field, predictions
from quatrain.models.active_dynamics.learner import AffineAlignment
from quatrain.models.active_dynamics.state import (
    State,
    TrainingState,
    checkpoint_steps,
    learners_of,
)
from quatrain.progress import History

PLANE = 2
"""Dimensions of what can be drawn as a map."""


class Study(NamedTuple):
    """A trained learner, and what it knows.

    ahead: R² of predicted states by row. actions, path: what was done in each transition, and where it led.
    """

    config: ActiveDynamicsConfig
    dataset: Dataset
    training: TrainingState
    known: FieldEstimate
    ahead: dict[str, Float64[np.ndarray, " learner"]]
    actions: Float32[np.ndarray, "learner transition action"]
    path: Float32[np.ndarray, "learner transition d"]

    @property
    def arms(self) -> tuple[str, ...]:
        return self.config.train.arms

    @property
    def radius(self) -> float:
        """Of the region."""
        return self.config.env.region_radius

    @property
    def steps(self) -> tuple[int, ...]:
        """Transitions at which the field was kept."""
        return checkpoint_steps(self.config)

    @property
    def pair(self) -> tuple[str, ...]:
        """The arm that maps are of, and the plainest of the others, if there is one."""
        shown = "active" if "active" in self.arms else self.arms[0]
        others = [arm for arm in self.arms if arm != shown]
        return (shown, "random") if "random" in others else (shown, *others[:1])

    @property
    def alignment(self) -> AffineAlignment:
        """How states of the learners are to be read, in double precision."""
        rows = self.training.learner
        return AffineAlignment(
            *(part.double() for part in rows.alignment(rows.weights, self.dataset.held_out))
        )

    def of(
        self, arm: str, values: Shaped[np.ndarray, "learner ..."]
    ) -> Shaped[np.ndarray, "replicate ..."]:
        """The rows of an arm."""
        return values[learners_of(self.config, arm)]

    def typical(self, arm: str) -> int:
        """The row of an arm with the median final error; of an even number the better one of the middle."""
        errors = self.of(arm, self.known.nrmse[-1])
        return learners_of(self.config, arm).start + int(
            np.argsort(errors, kind="stable")[(len(errors) - 1) // 2]
        )

    def true_field(self, x: Float64[Tensor, "*batch d"]) -> Float64[Tensor, "*batch d"]:
        """In the precision that it always is asked in."""
        return self.training.world.field(x.float()).double()


def studied(config: ActiveDynamicsConfig, state: State, dataset: Dataset) -> Study:
    """All that the figures need of a learner."""
    training, met = TrainingState.from_state(config, dataset, state), int(state.transitions)
    return Study(
        config=config,
        dataset=dataset,
        training=training,
        known=estimate_field(config, training.learner, state, dataset),
        ahead=predictions(config, training.world, training.learner, dataset.held_out),
        actions=state.replay.actions[:, :met].numpy(force=True),
        path=state.path[:, :met].numpy(force=True),
    )


def recorded(
    study: Study, history: History, name: str, arm: str
) -> Float[np.ndarray, "replicate point"]:
    """A metric of an arm as its replicates have it."""
    full = f"{name}.{arm}"
    names = (
        [full]
        if study.config.seeds == 1
        else [f"{full}/seed/{one}" for one in range(study.config.seeds)]
    )
    return np.stack([history[one][1] for one in names])


class Kept(NamedTuple):
    """Checkpoints of which a record tells, these records, and what they tell."""

    steps: Shaped[np.ndarray, " point"]
    records: Shaped[np.ndarray, " point"]
    values: Float[np.ndarray, "replicate point"]


def at_checkpoints(study: Study, history: History, arm: str) -> Kept:
    """Information gained, which each record tells as it was at the last checkpoint."""
    last = np.searchsorted(study.steps, history[f"information_gained.{arm}"][0], side="right") - 1
    records = np.flatnonzero(np.diff(last, prepend=-1) > 0)
    values = recorded(study, history, "information_gained", arm)
    return Kept(np.array(study.steps)[last[records]], records, values[:, records])


class Paths(NamedTuple):
    """From the same starts along the true field, and along that of each row."""

    true: Float64[np.ndarray, "time start d"]
    learned: Float64[np.ndarray, "learner time start d"]


@torch.no_grad()
def undriven(study: Study, starts: Float64[np.ndarray, "start d"], transitions: int) -> Paths:
    """Steps of dt without actions and without noise."""
    rows, alignment, dt = study.training.learner, study.alignment, study.config.env.dt
    x = torch.tensor(starts)
    z = alignment.to_latent(x.expand(study.config.learners, -1, -1))
    true, learned = [x], [x.expand(study.config.learners, -1, -1)]
    for _ in range(transitions):
        x = x + study.true_field(x) * dt
        z = z + rows.drift(rows.weights, z.float()).double() * dt
        true.append(x)
        learned.append(alignment.to_state(z))
    return Paths(torch.stack(true).numpy(force=True), torch.stack(learned, 1).numpy(force=True))
