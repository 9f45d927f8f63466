"""rows of trials -> their scores, in a file of results and in a table.

A study says what its rows vary, and which columns the table has. What was trained before comes from
the ledger (`trial`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from pydantic import ConfigDict, TypeAdapter

from pipeline.judging.render import markdown_table
from pipeline.reporting.result_files import read_file, write_lines
from pipeline.runtime import console
from pipeline.runtime.devices import settings
from pipeline.trials.engine import run_all
from pipeline.trials.local import Machine
from pipeline.trials.place import RETRIES, needs_of
from pipeline.trials.trial import Outcome, Trial, folder_of, make_trial
from quatrain.baselines import Rule
from quatrain.errors import ConfigError
from quatrain.judgement import Scores, interval_over_seeds
from quatrain.presets import read_raw
from quatrain.registry import MODELS
from quatrain.statistics import format_mean
from quatrain.validation import overlaid

STAGES = ("collect", "train", "evaluate")


class Row(NamedTuple):
    """Holds trials that differ in their seeds alone. facts: what the table says before scores."""

    trials: Sequence[Trial]
    facts: Mapping[str, Any] = {}


class Result(NamedTuple):
    """Holds a row whose trials have finished. machine: what their numbers depend on."""

    machine: Mapping[str, str]
    facts: Mapping[str, Any]
    outcomes: Sequence[Outcome]

    def values(self, metric: str) -> Float[np.ndarray, " trial"]:
        """Returns a score of each trial; NaN where it does not exist."""
        return np.array([each.scores.get(metric) for each in self.outcomes], float)


Results = Mapping[str, Result]
FORM = TypeAdapter(dict[str, Result], config=ConfigDict(strict=True))


class Study(NamedTuple):
    """Declares a study. file: of results; rows of other runs stay in it. page: what is printed."""

    rows: Mapping[str, Row]
    file: Path
    page: Callable[[Results], str]


def perform(root: Path, study: Study) -> None:
    """Runs the trials that have not ended yet, stores the rows, and prints the page.

    Raises:
        ConfigError: trials have no scores; the engine has said why.
        DataError: the file of results has another form.
    """
    read_results(root, study.file)  # refused before anything is trained
    labels = [name for name, row in study.rows.items() for _ in row.trials]
    trials = [trial for row in study.rows.values() for trial in row.trials]
    with Machine(root, **needs_of(trials), retries=RETRIES) as machine:
        outcomes = iter(run_all(root, trials, labels, machine))
    results = {}
    for name, row in study.rows.items():
        of_row = [next(outcomes) for _ in row.trials]
        if all(each.state == "finished" for each in of_row):
            first = row.trials[0]
            shaped_by = settings(first.params, MODELS[first.model])
            results[name] = Result(shaped_by, row.facts, of_row)
            console.info(f"{name}: plots are in {folder_of(Path(), first)}/reports")
    write_lines(root / study.file, read_results(root, study.file) | results, depth=3)
    print(study.page(results))
    if missing := len(study.rows) - len(results):
        reason = f"{missing} of {len(study.rows)} rows have no scores; the lines above say why"
        raise ConfigError(reason)


def read_results(root: Path, file: Path) -> dict[str, Result]:
    return read_file(root, file, FORM, f"git checkout {file}") or {}


def varied(root: Path, model: str, preset: str | None, changes: Mapping[str, Any]) -> Trial:
    """Returns the trial of a preset with values of the model's section changed.

    Raises:
        ConfigError: the values cannot be used.
    """
    return make_trial(root, model, overlaid(read_raw(root, preset), {model: changes}))


def table(varies: str, columns: Mapping[str, str], rules: Sequence[Rule], results: Results) -> str:
    """Formats a line for each result, and which goals of the gate are reached.

    varies: what is another in each row. columns: their names -> the scores that they show.
    """
    facts = next((result.facts for result in results.values()), {})
    head = [varies, *facts, *columns, f"CPU seconds ({' + '.join(STAGES)})"]
    lines = []
    for name, result in results.items():
        scores = [cell(result, metric) for metric in columns.values()]
        lines.append([name, *map(str, result.facts.values()), *scores, cpu_seconds(result)])
    return "\n\n".join([markdown_table(head, lines), *goal_lines(rules, results)])


def cell(result: Result, metric: str) -> str:
    """Formats the score of the only trial, or the mean over trials; "-" if one does not have it."""
    if len(result.outcomes) == 1:
        return format_score(result.outcomes[0].scores, metric)
    values = result.values(metric)
    return "-" if np.isnan(values).any() else format_mean(values, 4)


def format_score(scores: Scores, metric: str) -> str:
    """Formats a score with its interval over seeds, if it has one; "-" if there is no score."""
    value, interval = scores.get(metric), interval_over_seeds(metric, scores)
    if value is None:
        return "-"
    return f"{value:.4g}" + (" ({:.4g} to {:.4g})".format(*interval) if interval else "")


def cpu_seconds(result: Result) -> str:
    """Formats what each stage took, over all trials, with the start of its processes."""
    spent = [each.cpu_seconds for each in result.outcomes]
    return " + ".join(f"{sum(each.get(verb, 0) for each in spent):.0f}" for verb in STAGES)


def goal_lines(rules: Sequence[Rule], results: Results) -> Iterator[str]:
    """Yields for each goal which rows miss it: those of which not every trial reaches it."""
    for rule in rules:
        if rule.goal is None or not results:
            continue
        sign, most = (-1, "most") if rule.direction == "lower" else (1, "least")
        missed = [
            name
            for name, result in results.items()
            if not (sign * (result.values(rule.metric) - rule.goal) >= 0).all()
        ]
        by = f"missed by {'; '.join(missed)}" if missed else f"reached by all {len(results)} rows"
        yield f"goal {rule.metric} at {most} {rule.goal:g}: {by}"
