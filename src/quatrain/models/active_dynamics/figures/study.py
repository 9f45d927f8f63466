"""trained state, dataset -> everything the figures show, computed once"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64, Shaped
from torch import Tensor

from quatrain.models.active_dynamics.collect import Dataset
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.evaluate import Known, knowledge, predictions
from quatrain.models.active_dynamics.learner import Gauge
from quatrain.models.active_dynamics.state import Trial, checkpoint_steps, restored, rows_of
from quatrain.models.active_dynamics.train import State
from quatrain.plots import EndLabel
from quatrain.progress import History

PLANE = 2
"""Number of dimensions that can be drawn as a map."""


class Study(NamedTuple):
    """Holds a trained state and what was computed from it.

    prediction_r2: R² of predicted states. actions, path: the action of each transition, and the
    state it led to.
    """

    config: ActiveDynamicsConfig
    dataset: Dataset
    trial: Trial
    estimate: Known
    prediction_r2: dict[str, Float64[np.ndarray, " row"]]
    actions: Float32[np.ndarray, "row transition action"]
    path: Float32[np.ndarray, "row transition d"]

    @property
    def arms(self) -> tuple[str, ...]:
        return self.config.train.arms

    @property
    def radius(self) -> float:
        """Returns the radius of the region of interest."""
        return self.config.env.region_radius

    @property
    def steps(self) -> tuple[int, ...]:
        """Returns the transitions of the checkpoints."""
        return checkpoint_steps(self.config)

    @property
    def pair(self) -> tuple[str, ...]:
        """Returns the arms that maps show: the active (or first) one and, if any, a plain one."""
        shown = "active" if "active" in self.arms else self.arms[0]
        others = [arm for arm in self.arms if arm != shown]
        return (shown, "random") if "random" in others else (shown, *others[:1])

    def pair_text(self, ends: Sequence[EndLabel]) -> str:
        """Joins the labels of the arms that maps show. ends: one of each arm."""
        labels = zip(self.arms, ends, strict=True)
        return ", ".join(end.text for arm, end in labels if arm in self.pair)

    @property
    def gauge(self) -> Gauge:
        """Returns the maps from latent to true states, in double precision."""
        rows = self.trial.rows
        return Gauge(*(part.double() for part in rows.gauge(rows.weights, self.dataset.held_out)))

    def of_arm(
        self,
        arm: str,
        values: Shaped[np.ndarray, "row ..."],
    ) -> Shaped[np.ndarray, "replicate ..."]:
        """Selects the learners of an arm."""
        return values[rows_of(self.config, arm)]

    def median_learner(self, arm: str) -> int:
        """Returns an arm's learner of median final error, the better one of two in the middle."""
        errors = self.of_arm(arm, self.estimate.nrmse[-1])
        order = np.argsort(errors, kind="stable")
        return rows_of(self.config, arm).start + int(order[(len(errors) - 1) // 2])

    def true_field(self, x: Float64[Tensor, "*batch d"]) -> Float64[Tensor, "*batch d"]:
        """Evaluates the true field in single precision, as the environment does."""
        return self.trial.world.field(x.float()).double()


def make_study(config: ActiveDynamicsConfig, state: State, dataset: Dataset) -> Study:
    """Computes what the figures show of a trained state."""
    trial = restored(config, dataset, state)
    transitions = int(state.transitions)
    return Study(
        config=config,
        dataset=dataset,
        trial=trial,
        estimate=knowledge(config, trial.rows, state, dataset),
        prediction_r2=predictions(config, trial.world, trial.rows, dataset.held_out),
        actions=state.replay.actions[:, :transitions].numpy(force=True),
        path=state.path[:, :transitions].numpy(force=True),
    )


def arm_metric(
    study: Study,
    history: History,
    name: str,
    arm: str,
) -> Float[np.ndarray, "replicate point"]:
    """Returns a recorded metric of each replicate of an arm."""
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


class Paths(NamedTuple):
    """Holds paths from the same starts along the true field and along that of each learner."""

    true: Float64[np.ndarray, "time start d"]
    learned: Float64[np.ndarray, "row time start d"]


@torch.no_grad()
def undriven_paths(
    study: Study,
    starts: Float64[np.ndarray, "start d"],
    transitions: int,
) -> Paths:
    """Integrates the fields in steps of dt, without actions and noise."""
    rows = study.trial.rows
    gauge = study.gauge
    dt = study.config.env.dt
    x = torch.tensor(starts)
    x_by_learner = x.expand(study.config.rows, -1, -1)
    z = gauge.inward(x_by_learner)
    true = [x]
    learned = [x_by_learner]
    for _ in range(transitions):
        x = x + study.true_field(x) * dt
        z = z + rows.drift(rows.weights, z.float()).double() * dt
        true.append(x)
        learned.append(gauge.outward(z))
    return Paths(torch.stack(true).numpy(force=True), torch.stack(learned, 1).numpy(force=True))
