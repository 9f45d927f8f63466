"""search space, ended trials -> the values of the next trial, by Optuna or from a grid."""

import hashlib
import json
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.study import StudyDirection
from optuna.trial import TrialState

from pipeline.scaling.records import Trial
from pipeline.scaling.space import Dimension, Space, Values, json_text


class Search:
    """Chooses values; a trial that ended is told, also one of an earlier run of the sweep.

    The sampler has a seed of its own for each trial, so that values do not depend on where a sweep
    was interrupted. With tpe they depend on the scores that are known by then: with several trials
    at a time it does not repeat, each trial does.
    """

    def __init__(self, space: Space) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
        self._space = space
        self._grid = list(space.grid()) if space.sweep.search == "grid" else []
        direction = StudyDirection.MAXIMIZE if space.is_higher_better else StudyDirection.MINIMIZE
        self._study = optuna.create_study(direction=direction)
        self._asked: dict[int, int] = {}
        self._distributions = {
            key: distribution(dimension) for key, dimension in space.sweep.space.items()
        }

    def values(self, number: int, tried: Sequence[Values]) -> Values:
        """Returns the values of trial `number`; of a grid, the first point that was not tried."""
        if self._grid:
            done = {json_text(values) for values in tried}  # 1 and 1.0 are two choices
            return next(point for point in self._grid if json_text(point) not in done)
        self._study.sampler = self._sampler(number)
        asked = self._study.ask(self._distributions)
        self._asked[number] = asked.number
        return {
            key: self._value(dimension, asked.params[key])
            for key, dimension in self._space.sweep.space.items()
        }

    def tell(self, trial: Trial) -> None:
        """Makes an ended trial known; one that was stopped by its last watched value."""
        state = self._state(trial)
        last = trial.last if state == TrialState.PRUNED else None
        number = self._asked.pop(trial.number, None)
        if number is None:
            self._add(trial, state)
            return
        if last is not None:
            asked = optuna.trial.Trial(self._study, self._study.trials[number]._trial_id)
            asked.report(last.value, last.step)
        self._study.tell(number, trial.score if state == TrialState.COMPLETE else None, state)

    def tell_all(self, trials: Iterable[Trial]) -> None:
        for trial in trials:
            if trial.has_ended and trial.role != "confirm":
                self.tell(trial)

    def _add(self, trial: Trial, state: TrialState) -> None:
        last = trial.last if state == TrialState.PRUNED else None
        params = self._params(trial.values)
        if params is None:
            return
        self._study.add_trial(
            optuna.trial.create_trial(
                state=state,
                params=params,
                distributions=self._distributions,
                value=trial.score if state == TrialState.COMPLETE else None,
                intermediate_values={last.step: last.value} if last else None,
            )
        )

    def _params(self, values: Values) -> dict[str, Any] | None:
        """Returns values as Optuna stores them; None if one lies outside the space, as a start
        may.
        """
        params = {}
        for key, dimension in self._space.sweep.space.items():
            value = values.get(key)
            params[key] = json_text(value) if dimension.of is not None else value
            try:
                internal = self._distributions[key].to_internal_repr(params[key])
            except ValueError:
                return None
            if not self._distributions[key]._contains(internal):
                return None
        return params

    def _state(self, trial: Trial) -> TrialState:
        if trial.state == "finished" and trial.score is not None:
            return TrialState.COMPLETE
        if trial.state == "stopped" and trial.last is not None:
            return TrialState.PRUNED
        return TrialState.FAIL

    def _sampler(self, number: int) -> BaseSampler:
        text = f"{self._space.sweep.seed}/{number}"
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little")
        sampler = TPESampler if self._space.sweep.search == "tpe" else RandomSampler
        return sampler(seed=seed)

    def _value(self, dimension: Dimension, value: Any) -> Any:
        return json.loads(value) if dimension.of is not None else value


def distribution(dimension: Dimension) -> BaseDistribution:
    """Returns Optuna's form of a dimension; choices are JSON, because a value may be a list."""
    if dimension.of is not None:
        return CategoricalDistribution(dimension.labels)
    is_log = dimension.scale == "log"
    if dimension.is_whole:
        return IntDistribution(int(dimension.low), int(dimension.high), log=is_log)
    return FloatDistribution(float(dimension.low), float(dimension.high), log=is_log)
