"""sweep, trials so far -> the trials that are left: the start, the search's, then the confirmed."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from pipeline.scaling.records import Point, Trial, read_trials, write_trial
from pipeline.scaling.result import rank
from pipeline.scaling.space import Space
from quatrain.errors import ConfigError

Changed = Callable[[Trial], None]


class Ledger:
    """Holds the trials of a sweep, each in a file: what a later driver continues from."""

    def __init__(self, folder: Path, is_higher_better: bool) -> None:
        self._folder = folder
        self.is_higher_better = is_higher_better
        self.trials = {trial.number: trial for trial in read_trials(folder)}

    def put(self, trial: Trial) -> None:
        write_trial(self._folder, trial)
        self.trials[trial.number] = trial

    def update(self, number: int, **changes: Any) -> Trial:
        trial = Trial.model_validate(self.trials[number].model_dump() | changes)
        self.put(trial)
        return trial

    def saw(self, number: int, point: Point, seconds: float) -> None:
        """Notes the last watched row; it is written with the trial's end."""
        changes = {"last": point, "seconds": seconds}
        self.trials[number] = self.trials[number].model_copy(update=changes)

    @property
    def next_number(self) -> int:
        return max(self.trials, default=-1) + 1

    def of_role(self, *roles: str) -> list[Trial]:
        return [trial for trial in self.trials.values() if trial.role in roles]

    def ranked(self, *roles: str) -> list[Trial]:
        """Returns the finished trials of these roles that have a score, the best first."""
        return rank(self.of_role(*roles), self.is_higher_better)


class Plan(Protocol):
    """Hands out the trials of a phase, `total` in all."""

    total: int

    def next(self) -> Trial | None:
        """Returns the next trial; None if all have begun."""

    def ended(self, trial: Trial) -> None:
        """Takes note of a trial's end."""

    def includes(self, trial: Trial) -> bool:
        """Returns whether a trial belongs to this phase."""


class SearchPlan:
    """Hands out the trials of the search; those that an earlier driver began come first."""

    def __init__(self, space: Space, ledger: Ledger, on_refused: Changed) -> None:
        from pipeline.scaling.search import Search  # Optuna may not be installed.

        self._space = space
        self._ledger = ledger
        self._on_refused = on_refused
        self.total = space.sweep.trials + 1
        self._search = Search(space)
        self._begun = [t for t in ledger.of_role("start", "search") if not t.has_ended]
        self._search.tell_all(ledger.trials.values())

    def next(self) -> Trial | None:
        """Returns the next trial; None if all have begun."""
        while (trial := self._begun.pop(0) if self._begun else self._new()) is not None:
            try:
                self._space.params_of(trial)
                return trial
            except ConfigError as error:
                trial = self._ledger.update(trial.number, state="refused", reason=str(error))
                self.ended(trial)
                self._on_refused(trial)
        return None

    def _new(self) -> Trial | None:
        if not self._ledger.of_role("start"):
            return self._begin("start", self._space.start())
        searched = self._ledger.of_role("search")
        if len(searched) >= self._space.sweep.trials:
            return None
        tried = [trial.values for trial in searched]
        return self._begin("search", self._search.values(self._ledger.next_number, tried))

    def includes(self, trial: Trial) -> bool:
        return trial.role != "confirm"

    def ended(self, trial: Trial) -> None:
        self._search.tell(trial)

    def _begin(self, role: str, values: Mapping[str, Any]) -> Trial:
        trial = Trial.model_validate(
            {
                "number": self._ledger.next_number,
                "role": role,
                "values": dict(values),
                "seed": self._space.raw["seed"],
                "seeds": self._space.sweep.seeds,
            }
        )
        self._ledger.put(trial)
        return trial


class ConfirmPlan:
    """Hands out repetitions of the start and of the best trials, with another seed."""

    def __init__(self, space: Space, ledger: Ledger) -> None:
        self._ledger = ledger
        self._confirm = space.sweep.confirm
        self._originals: list[Trial] = []
        if self._confirm is not None:
            best = ledger.ranked("search")[: self._confirm.top]
            self._originals = [*ledger.of_role("start"), *best]
        self.total = len(self._originals)
        self._originals = [each for each in self._originals if not self._is_confirmed(each)]

    @property
    def left(self) -> int:
        return len(self._originals)

    def next(self) -> Trial | None:
        if not self._originals:
            return None
        original = self._originals.pop(0)
        trial = self._begun(original)
        if trial is None:
            trial = Trial(
                number=self._ledger.next_number,
                role="confirm",
                values=original.values,
                **self._setting(original),
            )
            self._ledger.put(trial)
        return trial

    def ended(self, trial: Trial) -> None:
        """Does nothing: nothing is searched any more."""

    def includes(self, trial: Trial) -> bool:
        """Returns whether a trial confirms with this seed and so many learners."""
        confirm = self._confirm
        return (
            confirm is not None
            and trial.role == "confirm"
            and (trial.seed, trial.seeds) == (confirm.seed, confirm.seeds)
        )

    def _setting(self, original: Trial) -> dict[str, Any]:
        assert self._confirm is not None
        return {
            "repeats": original.number,
            "seed": self._confirm.seed,
            "seeds": self._confirm.seeds,
        }

    def _begun(self, original: Trial) -> Trial | None:
        """Returns the trial that repeats this one already."""
        setting = self._setting(original)
        confirming = self._ledger.of_role("confirm")
        return next((t for t in confirming if t.model_dump(include={*setting}) == setting), None)

    def _is_confirmed(self, original: Trial) -> bool:
        trial = self._begun(original)
        return trial is not None and trial.has_ended
