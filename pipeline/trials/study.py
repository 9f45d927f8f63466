"""rows of trials -> their scores, in a file of results and in a table.

A study says what its rows vary, and which columns the table has. What was trained before comes from
the ledger (`trial`).
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from pydantic import ConfigDict, TypeAdapter

from pipeline.judging.render import markdown_table
from pipeline.reporting.result_files import read_file, write_lines
from pipeline.runtime import console
from pipeline.runtime.devices import settings
from pipeline.runtime.processes import core_count
from pipeline.trials.engine import run_all
from pipeline.trials.local import Machine
from pipeline.trials.trial import Outcome, Trial, make_trial
from quatrain.devices import device_of
from quatrain.errors import ConfigError
from quatrain.judgement import Scores
from quatrain.presets import read_raw
from quatrain.registry import MODELS
from quatrain.statistics import format_mean
from quatrain.validation import overlaid

# How often a trial begins again whose stage was killed.
RETRIES = 1


class Row(NamedTuple):
    """Holds the trials of a row, which differ in their seeds alone.

    facts: what is known of the row beside its scores. refused: why it has no trials.
    """

    name: str
    trials: Sequence[Trial]
    facts: Mapping[str, Any] = {}
    refused: str = ""


class Result(NamedTuple):
    """Holds a row whose trials have finished. machine: what their numbers depend on."""

    machine: Mapping[str, str]
    facts: Mapping[str, Any]
    outcomes: Sequence[Outcome]

    def values(self, metric: str) -> Float[np.ndarray, " trial"]:
        """Returns a score of each trial; NaN where it does not exist."""
        return np.array([each.scores.get(metric) for each in self.outcomes], float)


Results = Mapping[str, Result]
Column = Callable[[Result], str]
FORM = TypeAdapter(dict[str, Result], config=ConfigDict(strict=True))


class Study(NamedTuple):
    """Declares a study. file: of results; rows of other runs stay in it. page: what is printed."""

    rows: Sequence[Row]
    file: Path
    page: Callable[[Results], str]


def perform(root: Path, study: Study) -> None:
    """Runs the trials that have not ended yet, stores the rows, and prints the page.

    Raises:
        ConfigError: rows have no scores; a line for each says why.
        DataError: the file of results has another form.
    """
    read_results(root, study.file)  # refused before anything is trained
    trials = [trial for row in study.rows for trial in row.trials]
    labels = [row.name for row in study.rows for _ in row.trials]
    threads = max((trial.params.threads for trial in trials), default=1)
    # Two trainings on one GPU would each want the larger part of its memory.
    gpus = max((trial.params.devices for trial in trials if _wants_gpu(trial)), default=0)
    with Machine(root, min(threads, core_count()), gpus, retries=RETRIES) as machine:
        outcomes = iter(run_all(root, trials, labels, machine))
    results = {}
    for row in study.rows:
        of_row = [next(outcomes) for _ in row.trials]
        reasons = [each.reason for each in of_row if each.state != "finished"]
        if row.refused or reasons:
            console.info(f"passed over {row.name}: {row.refused or reasons[0]}")
            continue
        trial = row.trials[0]
        shaped_by = settings(trial.params, MODELS[trial.model])
        results[row.name] = Result(shaped_by, row.facts, of_row)
    write_lines(root / study.file, read_results(root, study.file) | results, depth=3)
    print(study.page(results))
    if missing := len(study.rows) - len(results):
        reason = f"{missing} of {len(study.rows)} rows have no scores; the lines above say why"
        raise ConfigError(reason)


def _wants_gpu(trial: Trial) -> bool:
    return device_of(trial.params, MODELS[trial.model]) == "cuda"


def read_results(root: Path, file: Path) -> dict[str, Result]:
    return read_file(root, file, FORM, f"rm {file}` and the study's command; `git checkout`") or {}


def varied(root: Path, model: str, preset: str | None, changes: Mapping[str, Any]) -> Trial:
    """Returns the trial of a preset with values of the model's section changed.

    Raises:
        ConfigError: the values cannot be used.
    """
    return make_trial(root, model, overlaid(read_raw(root, preset), {model: changes}))


# Columns, and lines below them.


def table(head: str, columns: Mapping[str, Column], results: Results) -> str:
    """Formats a line for each result; `head` stands above their names."""
    lines = [[row, *(cell(result) for cell in columns.values())] for row, result in results.items()]
    return markdown_table((head, *columns), lines)


def fact(name: str, style: str = "{}") -> Column:
    return lambda result: style.format(result.facts[name])


def score(name: str) -> Column:
    """Returns a column: the score of the only trial, with its interval."""
    return lambda result: format_score(result.outcomes[0].scores, name, ".3g")


def mean(name: str, decimals: int = 4, has_interval: bool = False) -> Column:
    """Returns a column: the mean over trials, or "-" where one does not have the score."""

    def cell(result: Result) -> str:
        values = result.values(name)
        if np.isnan(values).any():
            return "-"
        return format_mean(values if has_interval else values.mean(keepdims=True), decimals)

    return cell


def cpu_seconds(*verbs: str) -> Column:
    """Returns a column: the CPU seconds of these stages, or of all, with the start of processes."""

    def cell(result: Result) -> str:
        spent = [each.cpu_seconds for each in result.outcomes]
        return f"{sum(each.get(verb, 0) for each in spent for verb in verbs or each):.0f}"

    return cell


def format_score(scores: Scores, name: str, style: str) -> str:
    """Formats a score with its interval, if it has a finite one; "-" if there is no score."""
    value = scores.get(name)
    if value is None:
        return "-"
    low, high = (scores.get(f"{name}_{end}") for end in ("low", "high"))
    interval = "" if low is None or high is None else f" ({low:{style}} to {high:{style}})"
    return f"{value:{style}}{interval}"


def goal_line(goal: str, margins: Mapping[str, Float[np.ndarray, " trial"]]) -> str:
    """Says on how many rows a goal is reached, by a margin of 0 or more in all trials."""
    missed = [row for row, margin in margins.items() if not margin.min() >= 0]
    line = f"{goal} on {len(margins) - len(missed)} of {len(margins)}"
    return f"{line}; not on {', '.join(missed)}" if missed else line
