"""a trial of a sweep -> a JSON file, so that the sweep continues after its driver was killed."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from pipeline.runtime.console import redact
from quatrain.baselines import FiniteNumber, Record
from quatrain.errors import DataError
from quatrain.storage import folders

Role = Literal["start", "search", "confirm"]
State = Literal["running", "finished", "stopped", "diverged", "refused", "failed"]


class Point(Record):
    """Holds one row of the watched train metric."""

    step: int
    value: FiniteNumber


class Trial(Record):
    """Holds what is known of one trial.

    role: `start` has the preset's own values, `search` those of the searcher, `confirm` repeats
    the trial `repeats` with another seed and more seeds. seed, seeds: of params.yaml. score: the
    judged metric at the end; None unless `finished`. low, high: its 95 % interval, where the model
    gives one. last: the last watched row, which is the score of a `stopped` trial. seconds: of its
    stages. reason: why it was `diverged`, `refused` or `failed`.
    """

    number: int = Field(ge=0)
    role: Role
    values: dict[str, Any]
    repeats: int | None = None
    seed: int = 0
    seeds: int = 1
    state: State = "running"
    score: FiniteNumber | None = None
    low: FiniteNumber | None = None
    high: FiniteNumber | None = None
    last: Point | None = None
    seconds: float = 0.0
    reason: str = ""

    @property
    def name(self) -> str:
        return f"{self.number:04d}"

    @property
    def has_ended(self) -> bool:
        return self.state != "running"


def write_trial(folder: Path, trial: Trial) -> None:
    content = trial.model_dump(mode="json") | {"reason": redact(trial.reason)}
    folders.write_json(folder / f"{trial.name}.json", content)


def read_trials(folder: Path) -> list[Trial]:
    """Returns the trials of a folder by number.

    Raises:
        DataError: a file is not one that `write_trial` writes.
    """
    return [_read_trial(path) for path in sorted(folder.glob("*.json"))]


def _read_trial(path: Path) -> Trial:
    try:
        return Trial.model_validate(folders.read_json(path))
    except ValidationError as error:
        reason = f"{path}: {error.errors()[0]['msg']}"
    except DataError as error:
        reason = error.reason
    raise DataError(f"{reason}; remove it, and another trial takes its place")
