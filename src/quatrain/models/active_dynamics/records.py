"""what transitions noted -> metrics by name; and the line that says where learning broke."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from quatrain.models.active_dynamics.state import Trial
from quatrain.progress import TrainingDiverged, by_seed

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
    found = {
        name: column.sum(0) if name in SUMS else column.mean(0) for name, column in columns.items()
    }
    found |= {"information_gained": trial.gained} | _of_the_field(trial)
    values = {
        name: value.numpy(force=True).reshape(len(trial.config.train.arms), -1)
        for name, value in found.items()
    }
    named = {name: value.mean(0)[None] for name, value in values.items()}
    for name, value in values.items():
        named |= {
            f"{name}.{arm}": own[None]
            for arm, own in zip(trial.config.train.arms, value, strict=True)
        }
    return by_seed(named)


@torch.no_grad()
def _of_the_field(trial: Trial) -> dict[str, Float[Tensor, " row"]]:
    """How sure each row is of the field, and how wrong."""
    rows, (grid, truth) = trial.rows, trial.monitored
    gauge = rows.gauge(rows.weights, trial.dataset.held_out)
    mean, variance = rows.moments(gauge.inward(grid.expand(trial.config.rows, -1, -1)))
    error = (gauge.velocity(mean) - truth).square().sum((1, 2)) / truth.square().sum()
    return {
        "field_sd": gauge.spread(variance).mean((1, 2)).sqrt(),
        "monitor/field_nrmse": error.sqrt(),
    }


def refuse_divergence(trial: Trial, columns: Mapping[str, Float[Tensor, "transition row"]]) -> None:
    """Raise where something noted, or what is believed at the end of a yield, is not finite.

    Raises:
        TrainingDiverged: names the transition, what it was, the row, and the keys to lower.
    """
    for name, column in columns.items():
        broken = (~column.isfinite()).nonzero()
        if len(broken):
            place, row = broken[0].tolist()
            step = trial.transitions - len(column) + place + 1
            raise TrainingDiverged(
                f"{_where(trial, step, name, row)} is {column[place, row]:g}; {trial.rows.REMEDY}"
            )
    for name, row in _broken(
        {**trial.rows.state(), "information_gained": trial.gained}, trial.config.rows
    ):
        where = _where(trial, trial.transitions, name, row)
        raise TrainingDiverged(f"{where} is not finite; {trial.rows.REMEDY}")


class _Broken(NamedTuple):
    """row: None where a tensor is not of rows."""

    name: str
    row: int | None


def _broken(tree: Any, rows: int, name: str = "", row: int | None = None) -> Iterator[_Broken]:
    """Each tensor that is not finite, by its path, in which the number of a row is left out."""
    if isinstance(tree, Tensor):
        broken = ~tree.isfinite()
        if broken.any():
            of_rows = row is None and broken.shape[:1] == (rows,)
            yield _Broken(name, int(broken.view(rows, -1).any(1).nonzero()[0]) if of_rows else row)
    elif hasattr(tree, "_asdict") or isinstance(tree, dict):
        for key, child in (tree if isinstance(tree, dict) else tree._asdict()).items():
            yield from _broken(child, rows, f"{name}/{key}" if name else key, row)
    elif tree is not None:
        by_row = len(tree) == rows and len({type(child) for child in tree}) == 1
        for place, child in enumerate(tree):
            yield from _broken(child, rows, name, place if by_row else row)


def _where(trial: Trial, step: int, name: str, row: int | None) -> str:
    stopped = f"active_dynamics stopped at transition {step}: {name}"
    if row is None:
        return stopped
    arm, replicate = divmod(row, trial.config.seeds)
    return f"{stopped} of row {trial.config.train.arms[arm]}/{replicate}"
