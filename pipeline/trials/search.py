"""a sweep -> the trials of its search, by Optuna, whose journal is the only record of the search.

Optuna numbers the trials and keeps their values, watched rows and states. Trial 0 has the preset's
own values. Killed at any moment, a search continues from its journal.
"""

import itertools
import json
import os
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import optuna
from optuna.pruners import BasePruner, NopPruner, SuccessiveHalvingPruner
from optuna.samplers import PartialFixedSampler, RandomSampler, TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from pipeline.runtime.console import redact
from pipeline.trials.engine import Record
from pipeline.trials.progress import Progress
from pipeline.trials.space import Dimension, Space, Values
from pipeline.trials.trial import Outcome, Point, Trial, make_trial
from quatrain.errors import ConfigError, DataError
from quatrain.seeds import named_seed

OUTCOME = "outcome"
STATES = {"finished": TrialState.COMPLETE, "stopped": TrialState.PRUNED}


class Row(NamedTuple):
    """Holds what is known of a trial of the search.

    score: the judged metric; None unless `finished`. last: the last row of the watched metric.
    reason: why it has no score.
    """

    number: int
    values: Values
    state: str
    score: float | None
    last: Point | None
    reason: str

    @property
    def name(self) -> str:
        return f"{self.number:04d}"


def rank(rows: Iterable[Row], is_higher_better: bool) -> list[Row]:
    """Returns the trials with a score, the best first; of equal ones the older first."""
    sign = -1 if is_higher_better else 1
    scored = [(sign * row.score, row.number, row) for row in rows if row.score is not None]
    return [row for *_, row in sorted(scored)]


class Search:
    """Hands out the trials of a search, as a plan; those that an earlier driver began come first.

    Each value of each trial is drawn with a seed of its own, so that values do not depend on where
    a search was interrupted. With tpe they depend on the scores that are known by then: with
    several trials at a time a search does not repeat, each of its trials does.

    record: is told of each trial that has ended, with its name.

    Raises:
        DataError: the journal is damaged.
    """

    def __init__(self, space: Space, journal: Path, record: Record) -> None:
        self.study = open_study(space, journal)
        self._space = space
        self._record = record
        self._points = fixed_points(space)
        trials = self.study.get_trials(deepcopy=False)
        begun = [each._trial_id for each in trials if not each.state.is_finished()]
        self._begun = [optuna.trial.Trial(self.study, each) for each in begun]
        self._asked: dict[str, list[optuna.trial.Trial]] = {}
        self._progress = Progress(space.sweep.trials + 1, len(trials) - len(begun))

    def next(self) -> Trial | None:
        """Returns the next trial; None if all have begun. What params refuse is a row."""
        while self._begun or len(self.rows()) <= self._space.sweep.trials:
            asked = self._begun.pop(0) if self._begun else self.study.ask()
            self._suggest(asked)
            try:
                trial = self.trial(self.rows()[asked.number])
            except ConfigError as error:
                self._tell(asked, Outcome("refused", reason=str(error)))
                continue
            self._asked.setdefault(trial.key, []).append(asked)
            return trial
        return None

    def saw(self, trial: Trial, point: Point) -> bool:
        """Takes a row; returns whether the schedule stops the trial before its last step.

        The start is compared, and never stopped, nor is one that is equal to it. The journal knows
        at once, so that a driver that is killed while the trial saves has not lost the decision.
        """
        asked = [each for each in self._asked[trial.key] if self._is_running(each)]
        for each in asked:
            each.report(point.value, point.step)  # ignored if the journal has it
        if point.step >= getattr(trial.params, trial.model).train.steps:
            return False
        hopeless = [each.should_prune() for each in asked]
        if not hopeless or not all(hopeless) or asked[0].number == 0:
            return False
        for each in asked:
            self._tell(each, Outcome("stopped"))
        return True

    def ended(self, trial: Trial, outcome: Outcome) -> None:
        for asked in self._asked.pop(trial.key, []):
            if self._is_running(asked):
                self._tell(asked, outcome)
            self._record(trial, self.rows()[asked.number].name)

    def rows(self) -> list[Row]:
        return [self._row(frozen) for frozen in self.study.get_trials(deepcopy=False)]

    def trial(self, row: Row, seed: int | None = None) -> Trial:
        """Returns the training of a row, or one that repeats it with another seed.

        Raises:
            ConfigError: the values do not go together.
        """
        raw = self._space.trial_raw(row.values if row.number else {}, seed)
        return make_trial(self._space.root, self._space.sweep.model, raw)

    def _is_running(self, asked: optuna.trial.Trial) -> bool:
        return not self.study.get_trials(deepcopy=False)[asked.number].state.is_finished()

    def _suggest(self, asked: optuna.trial.Trial) -> None:
        """Chooses the values that the journal does not have; those of the start that lie outside
        the space stay untold.
        """
        sweep, number = self._space.sweep, asked.number
        fixed = self._points[number] if number < len(self._points) else {}
        for key, dimension in sweep.space.items():
            seed = named_seed(sweep.seed, str(number), key)
            sampler = TPESampler(seed=seed) if sweep.search == "tpe" else RandomSampler(seed=seed)
            self.study.sampler = PartialFixedSampler(fixed, sampler)
            if not fixed or fixed[key] is not None:
                suggest(asked, key, dimension)

    def _tell(self, asked: optuna.trial.Trial, outcome: Outcome) -> None:
        judge = self._space.sweep.judge
        score = outcome.scores.get(judge)
        state, reason = outcome.state, redact(outcome.reason)
        if state == "finished" and score is None:
            state, reason = "failed", f"{judge} is not a finite number"
        asked.set_user_attr(OUTCOME, [state, reason])
        self.study.tell(asked, score, STATES.get(state, TrialState.FAIL))
        best = rank(self.rows(), self._space.is_higher_better)
        so_far = f"best {best[0].score:.5g} (trial {best[0].number})" if best else ""
        shown = state if score is None else f"{state}, {score:.5g}"
        self._progress.ended(f"trial {asked.number}", shown, reason, so_far)

    def _row(self, frozen: FrozenTrial) -> Row:
        is_told = frozen.state.is_finished()
        state, reason = frozen.user_attrs[OUTCOME] if is_told else ("running", "")
        space, step = self._space.sweep.space, frozen.last_step
        values = {
            key: value if space[key].of is None else json.loads(value)
            for key, value in frozen.params.items()
        }
        return Row(
            frozen.number,
            values if frozen.number else self._space.start(),
            state,
            frozen.value if state == "finished" else None,
            None if step is None else Point(step, frozen.intermediate_values[step]),
            reason,
        )


def fixed_points(space: Space) -> list[Values]:
    """Returns the values that no sampler draws, as Optuna stores them: those of the start, and with
    search: grid the points, the last key fastest.
    """
    keys = space.sweep.space
    start = {key: keys[key].stored(value) for key, value in space.start().items()}
    if space.sweep.search != "grid":
        return [start]
    grid = itertools.product(*(dimension.labels for dimension in keys.values()))
    return [start, *(dict(zip(keys, point, strict=True)) for point in grid)]


def open_study(space: Space, journal: Path) -> optuna.Study:
    """Returns the study of a journal, without what a killed driver left: half a line, its lock."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    warnings.filterwarnings("ignore", "The reported value is ignored")
    journal.parent.mkdir(parents=True, exist_ok=True)
    journal.with_name(f"{journal.name}.lock").unlink(missing_ok=True)
    if journal.exists():
        os.truncate(journal, journal.read_bytes().rfind(b"\n") + 1)
    schedule = space.sweep.schedule
    pruner: BasePruner = NopPruner()
    if schedule.kind == "asha":
        pruner = SuccessiveHalvingPruner(schedule.first, schedule.factor)
    try:
        return optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(journal))),
            study_name=space.name,
            pruner=pruner,
            direction="maximize" if space.is_higher_better else "minimize",
            load_if_exists=True,
        )
    except (ValueError, KeyError) as error:
        raise DataError(
            f"{journal}: is damaged ({error}); remove it: trials that have ended do not run again"
        ) from None


def suggest(asked: optuna.trial.Trial, key: str, dimension: Dimension) -> None:
    if dimension.between is None:
        asked.suggest_categorical(key, dimension.labels)
        return
    is_whole = all(type(end) is int for end in dimension.between)
    draw: Callable[..., float] = asked.suggest_int if is_whole else asked.suggest_float
    draw(key, *dimension.between, log=dimension.scale == "log")
