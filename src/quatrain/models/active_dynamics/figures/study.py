"""trained state, dataset -> everything the figures show, computed once"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
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
from quatrain.plots import EndLabel
from quatrain.progress import History

# Number of dimensions that can be drawn as a map.
PLANE = 2


class Study(NamedTuple):
    """Holds a trained state and what was computed from it.

    prediction_r2: R² of predicted states. actions, path: the action of each transition, and the
    state it led to.
    """

    config: ActiveDynamicsConfig
    dataset: Dataset
    training: TrainingState
    estimate: FieldEstimate
    prediction_r2: dict[str, Float64[np.ndarray, " learner"]]
    actions: Float32[np.ndarray, "learner transition action"]
    path: Float32[np.ndarray, "learner transition d"]

    @property
    def arms(self) -> tuple[str, ...]:
        return self.config.train.arms

    @property
    def radius(self) -> float:
        return self.config.env.region_radius

    @property
    def steps(self) -> tuple[int, ...]:
        return checkpoint_steps(self.config)

    @property
    def pair(self) -> tuple[str, ...]:
        """Returns the arms that maps show: the active (or first) one and, if any, a plain one."""
        shown = "active" if "active" in self.arms else self.arms[0]
        others = [arm for arm in self.arms if arm != shown]
        return (shown, *(["random"] if "random" in others else others[:1]))

    def pair_text(self, ends: Sequence[EndLabel]) -> str:
        """Joins the labels of the arms that maps show. ends: one of each arm."""
        return ", ".join(
            end.text for arm, end in zip(self.arms, ends, strict=True) if arm in self.pair
        )

    @property
    def alignment(self) -> AffineAlignment:
        """Returns the maps from latent to true states, in double precision."""
        learner = self.training.learner
        alignment = learner.alignment(learner.weights, self.dataset.held_out)
        return AffineAlignment(alignment.matrix.double(), alignment.offset.double())

    def of_arm(
        self, arm: str, values: Shaped[np.ndarray, "learner ..."]
    ) -> Shaped[np.ndarray, "replicate ..."]:
        return values[learners_of(self.config, arm)]

    def median_learner(self, arm: str) -> int:
        """Returns an arm's learner of median final error, the better one of two in the middle."""
        errors = self.of_arm(arm, self.estimate.nrmse[-1])
        order = np.argsort(errors, kind="stable")
        return learners_of(self.config, arm).start + int(order[(len(errors) - 1) // 2])

    def true_field(self, x: Float64[Tensor, "*batch d"]) -> Float64[Tensor, "*batch d"]:
        """Evaluates the true field in single precision, as the environment does."""
        return self.training.world.field(x.float()).double()


def make_study(config: ActiveDynamicsConfig, state: State, dataset: Dataset) -> Study:
    training = TrainingState(config, dataset, state)
    transitions = int(state.transitions)
    return Study(
        config=config,
        dataset=dataset,
        training=training,
        estimate=estimate_field(config, training.learner, state, dataset),
        prediction_r2=predictions(config, training.world, training.learner, dataset.held_out),
        actions=state.replay.actions[:, :transitions].numpy(force=True),
        path=state.path[:, :transitions].numpy(force=True),
    )


def arm_metric(
    study: Study, history: History, name: str, arm: str
) -> Float[np.ndarray, "replicate point"]:
    names = [f"{name}.{arm}"]
    if study.config.seeds > 1:
        names = [f"{name}.{arm}/seed/{seed}" for seed in range(study.config.seeds)]
    return np.stack([history[name][1] for name in names])


class CheckpointRecords(NamedTuple):
    """Holds the checkpoints that records cover, the places of these records, and their values."""

    steps: Shaped[np.ndarray, " point"]
    records: Shaped[np.ndarray, " point"]
    values: Float[np.ndarray, "replicate point"]


def information_at_checkpoints(study: Study, history: History, arm: str) -> CheckpointRecords:
    """Returns the information gained. A record has the value of the last checkpoint before it."""
    recorded_steps = history[f"information_gained.{arm}"][0]
    last = np.searchsorted(study.steps, recorded_steps, side="right") - 1
    records = np.flatnonzero(np.diff(last, prepend=-1) > 0)
    values = arm_metric(study, history, "information_gained", arm)
    return CheckpointRecords(np.array(study.steps)[last[records]], records, values[:, records])
