"""a sweep -> the trials of its search, by Optuna, whose journal is the only record of the search.

Optuna numbers the trials and keeps their values, watched rows and states. Trial 0 has the preset's
own values. Killed at any moment, a search continues from its journal.
"""

import os
import warnings
from collections.abc import Callable
from pathlib import Path

import optuna
from optuna.pruners import BasePruner, NopPruner, SuccessiveHalvingPruner
from optuna.samplers import PartialFixedSampler, RandomSampler, TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from pipeline.runtime.console import redact
from pipeline.trials.comparison import Row
from pipeline.trials.space import Dimension, Space
from pipeline.trials.trial import Outcome, Point, Trial, make_trial
from quatrain.errors import ConfigError, DataError
from quatrain.seeds import named_seed

OUTCOME = "outcome"
STATES = {"finished": TrialState.COMPLETE, "stopped": TrialState.PRUNED}


OnEnded = Callable[[Row, Trial | None], None]


class Search:
    """Hands out the trials of a search, as a plan; those that an earlier driver began come first.

    Each value of each trial is drawn with a seed of its own, so that values do not depend on where
    a search was interrupted. With tpe they depend on the scores that are known by then: with
    several trials at a time a search does not repeat, each of its trials does.

    Raises:
        DataError: the journal is damaged.
    """

    def __init__(self, space: Space, journal: Path, on_ended: OnEnded) -> None:
        self.study = open_study(space, journal)
        self._space = space
        self._on_ended = on_ended
        self._grid = list(space.grid()) if space.sweep.search == "grid" else []
        self._begun = [row.number for row in self.rows() if row.state == "running"]
        self._asked: dict[str, list[optuna.trial.Trial]] = {}

    def next(self) -> Trial | None:
        """Returns the next trial; None if all have begun. What params refuse is a row."""
        while self._begun or len(self._frozen) <= self._space.sweep.trials:
            asked = self._ask()
            self._suggest(asked)
            try:
                trial = self.trial(self._row(self._frozen[asked.number]))
            except ConfigError as error:
                self._tell(asked, Outcome("refused", reason=str(error)))
                self._on_ended(self._row(self._frozen[asked.number]), None)
                continue
            self._asked.setdefault(trial.key, []).append(asked)
            return trial
        return None

    def saw(self, trial: Trial, point: Point) -> bool:
        """Reports a row that the schedule compares; returns whether the trial is hopeless.

        The start is compared, and never stopped, nor is one that is equal to it.
        """
        steps = getattr(trial.params, trial.model).train.steps
        asked = [each for each in self._asked[trial.key] if self._is_running(each)]
        verdicts = [self._is_hopeless(each, point, steps) for each in asked]
        is_hopeless = bool(verdicts) and all(verdicts)
        for each in asked if is_hopeless else ():
            self._tell(each, Outcome("stopped"))
        return is_hopeless

    def ended(self, trial: Trial, outcome: Outcome) -> None:
        for asked in self._asked.pop(trial.key, []):
            if self._is_running(asked):
                self._tell(asked, outcome)
            self._on_ended(self._row(self._frozen[asked.number]), trial)

    def rows(self) -> list[Row]:
        return [self._row(frozen) for frozen in self._frozen]

    def trial(self, row: Row, seed: int | None = None) -> Trial:
        """Returns the training of a row, or one that repeats it with another seed.

        Raises:
            ConfigError: the values do not go together.
        """
        raw = self._space.trial_raw(row.values if row.number else {}, seed)
        return make_trial(self._space.root, self._space.sweep.model, raw)

    @property
    def _frozen(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False)

    def _is_running(self, asked: optuna.trial.Trial) -> bool:
        return not self._frozen[asked.number].state.is_finished()

    def _ask(self) -> optuna.trial.Trial:
        if not self._begun:
            return self.study.ask()
        return optuna.trial.Trial(self.study, self._frozen[self._begun.pop(0)]._trial_id)

    def _suggest(self, asked: optuna.trial.Trial) -> None:
        """Chooses the values that the journal does not have; those of the start that lie outside
        the space stay untold.
        """
        sweep, fixed = self._space.sweep, self._space.start()
        if asked.number:
            fixed = self._grid[asked.number - 1] if self._grid else {}
        for key, dimension in sweep.space.items():
            seed = named_seed(sweep.seed, str(asked.number), key)
            sampler = TPESampler if sweep.search == "tpe" else RandomSampler
            fixed_value = {key: dimension.to_stored(fixed[key])} if fixed else {}
            self.study.sampler = PartialFixedSampler(fixed_value, sampler(seed=seed))
            if not fixed or dimension.contains(fixed[key]):
                suggest(asked, key, dimension)

    def _is_hopeless(self, asked: optuna.trial.Trial, point: Point, steps: int) -> bool:
        schedule = self._space.sweep.schedule
        if schedule.kind == "none":
            return False
        last = self._frozen[asked.number].last_step or 0
        rung = schedule.first
        while rung <= last:
            rung *= schedule.factor
        if rung <= point.step < steps:
            asked.report(point.value, point.step)
        elif point.step != last:  # a driver may have been killed before it compared the last one
            return False
        return asked.should_prune() and asked.number > 0

    def _tell(self, asked: optuna.trial.Trial, outcome: Outcome) -> None:
        judge = self._space.sweep.judge
        score = outcome.scores.get(judge) if outcome.state == "finished" else None
        if outcome.state == "finished" and score is None:
            outcome = outcome._replace(state="failed", reason=f"{judge} is not a finite number")
        note = {
            "state": outcome.state,
            "seconds": outcome.seconds,
            "reason": redact(outcome.reason),
        }
        asked.set_user_attr(OUTCOME, note)
        self.study.tell(asked, score, STATES.get(outcome.state, TrialState.FAIL))

    def _row(self, frozen: FrozenTrial) -> Row:
        space = self._space.sweep.space
        values = {key: space[key].from_stored(value) for key, value in frozen.params.items()}
        note = frozen.user_attrs.get(OUTCOME, {})
        is_told = frozen.state.is_finished()
        step = frozen.last_step
        return Row(
            frozen.number,
            values if frozen.number else self._space.start(),
            note["state"] if is_told else "running",
            frozen.value if frozen.state == TrialState.COMPLETE else None,
            None if step is None else Point(step, frozen.intermediate_values[step]),
            note["seconds"] if is_told else 0.0,
            note["reason"] if is_told else "",
        )


def open_study(space: Space, journal: Path) -> optuna.Study:
    """Returns the study of a journal, without what a killed driver left: half a line, its lock."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
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
            direction=StudyDirection.MAXIMIZE
            if space.is_higher_better
            else StudyDirection.MINIMIZE,
            load_if_exists=True,
        )
    except (ValueError, KeyError) as error:
        raise DataError(
            f"{journal}: is damaged ({error}); remove it: trials that have ended do not run again"
        ) from None


def suggest(asked: optuna.trial.Trial, key: str, dimension: Dimension) -> None:
    if dimension.of is not None:
        asked.suggest_categorical(key, dimension.labels)
        return
    low, high = dimension.range
    is_log = dimension.scale == "log"
    if dimension.is_whole:
        asked.suggest_int(key, int(low), int(high), log=is_log)
    else:
        asked.suggest_float(key, low, high, log=is_log)
