"""what transitions noted -> metrics by name; and the line that says where learning broke."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from quatrain.models.active_dynamics.agents.trials import Trial
from quatrain.progress import TrainingDiverged, by_learner

SUMS = ("truncations",)
"""What is counted; of everything else the mean over the transitions of a yield is told."""


def metrics_of(
    trial: Trial, noted: Sequence[Mapping[str, Float[Tensor, " row"]]]
) -> dict[str, Float[np.ndarray, "..."]]:
    """One entry for the transitions of a yield: of each arm `NAME.ARM`, and of all arms `NAME`.

    Raises:
        TrainingDiverged: something is not finite.
    """
    columns = {name: torch.stack([one[name] for one in noted]).double() for name in noted[0]}
    refuse_divergence(trial, columns)
    found = {name: column.sum(0) if name in SUMS else column.mean(0) for name, column in columns.items()}
    found |= {"information_gained": trial.gained} | _of_the_field(trial)
    values = {name: value.numpy(force=True).reshape(len(trial.config.train.arms), -1) for name, value in found.items()}
    named = {name: value.mean(0)[None] for name, value in values.items()}
    for name, value in values.items():
        named |= {f"{name}.{arm}": own[None] for arm, own in zip(trial.config.train.arms, value, strict=True)}
    return by_learner(named)


@torch.no_grad()
def _of_the_field(trial: Trial) -> dict[str, Float[Tensor, " row"]]:
    """How sure each row is of the field, and how wrong."""
    rows, (grid, truth) = trial.rows, trial.monitored
    gauge = rows.gauge(rows.weights, trial.dataset.held_out)
    mean, variance = rows.moments(gauge.inward(grid.expand(trial.config.rows, -1, -1)))
    error = (gauge.velocity(mean) - truth).square().sum((1, 2)) / truth.square().sum()
    return {"field_sd": gauge.spread(variance).mean((1, 2)).sqrt(), "monitor/field_nrmse": error.sqrt()}


def refuse_divergence(trial: Trial, columns: Mapping[str, Float[Tensor, "transition row"]]) -> None:
    """Raise where something noted, or a row, is not finite.

    Raises:
        TrainingDiverged: names the transition, what it was, the row, and the keys to lower.
    """
    for name, column in columns.items():
        broken = (~column.isfinite()).nonzero()
        if len(broken):
            place, row = broken[0].tolist()
            step = trial.transitions - len(column) + place + 1
            raise TrainingDiverged(f"{_where(trial, step, name, row)} is {column[place, row]:g}; {trial.rows.REMEDY}")
    for name, value in trial.rows.weights.items():
        rows = (~value.isfinite()).flatten(1).any(1).nonzero()
        if len(rows):
            where = _where(trial, trial.transitions, name, int(rows[0]))
            raise TrainingDiverged(f"{where} is not finite; {trial.rows.REMEDY}")


def _where(trial: Trial, step: int, name: str, row: int) -> str:
    arm, replicate = divmod(row, trial.config.seeds)
    return f"active_dynamics stopped at transition {step}: {name} of row {trial.config.train.arms[arm]}/{replicate}"
