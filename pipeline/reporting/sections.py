"""the results of one model -> its part of the report, in Markdown for pull requests, too."""

import html
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import quote

from pipeline.judging.tables import format_difference, format_score
from pipeline.judging.verdicts import ModelVerdict, promote_hint
from pipeline.reporting.marks import Mark, mark_of, name_of
from pipeline.reporting.speed import Results, goal_of, main_rows, path_of, ratio_of, reach
from pipeline.reporting.tables import markdown_table
from pipeline.tracking.runs_page import EXPERIMENTS_PAGE
from quatrain.baselines import Rule
from quatrain.judgement import PASSED, Line, Scores, interval_over_seeds

Draw = Callable[[Mark], str]


class Plot(NamedTuple):
    """Holds a picture's path relative to the report, and its caption."""

    path: str
    caption: str


class Result(NamedTuple):
    """Holds what the report shows of one model."""

    model_verdict: ModelVerdict
    run_key: str
    plots: Sequence[Plot]
    speed: Results | None
    machine: str

    @property
    def model(self) -> str:
        return self.model_verdict.model

    @property
    def lines(self) -> tuple[Line, ...]:
        return self.model_verdict.verdict.lines

    @property
    def broken(self) -> list[Line]:
        return [line for line in self.lines if line.status not in PASSED]


def model_section(result: Result, draw: Draw) -> str:
    verdict = result.model_verdict
    head = ("metric", "score", "baseline", "difference", "where it stands", "status")
    count = len(result.lines)
    summary = f"Passed: {count} of {count} scores hold."
    if result.model_verdict.only_lacks_a_baseline:
        summary = f"**No baseline yet:** {promote_hint(result.model, verdict.preset)} stores one."
    elif result.broken:
        summary = f"**Broken:** {len(result.broken)} of {count} scores."
    search = f"tags.\"quatrain.run_key\" = '{result.run_key}'"
    link = f"[in `make ui`]({EXPERIMENTS_PAGE}&searchFilter={quote(search, safe='')})"
    parts = [
        f"## {result.model}",
        f"{summary} {baseline_origin(verdict.baseline.provenance)}",
        meanings(verdict.rules),
        markdown_table(head, score_rows(result, draw)),
        plots_section(result.plots),
        folded("Rules and references of each score", rules_table(verdict)),
        speed_section(result.model, result.speed),
    ]
    if verdict.scores:
        parts.append(folded(f"All scores of {result.model}", all_scores(verdict.scores)))
    # Run ids differ from store to store, the run key does not.
    parts.append(f"Run: {link}, or search any tracking server for `{search}`")
    return "\n\n".join(part for part in parts if part)


def meanings(rules: Sequence[Rule]) -> str:
    """Returns a line for each judged metric that says what it measures."""
    return "\n".join(
        f"* **{plain(rule.metric)}**: {plain(rule.meaning)}" for rule in rules if rule.meaning
    )


def score_rows(result: Result, draw: Draw) -> list[list[str]]:
    scores = result.model_verdict.scores
    rules = rules_by_metric(result.model_verdict)
    rows = []
    for line, comparison in zip(result.lines, result.model_verdict.comparisons, strict=True):
        stored = result.model_verdict.baseline.metrics.get(line.metric)
        interval = "" if stored is None else format_interval(stored.interval_over_seeds)
        mark = mark_of(rules.get(line.metric), comparison, scores)
        rows.append(
            [
                plain(line.metric),
                score_with_interval(line.metric, scores),
                format_score(line.baseline) + interval,
                format_difference(comparison),
                "-" if mark is None else draw(mark),
                line.status if line.status in PASSED else f"**{line.status}**",
            ]
        )
    return rows


def score_with_interval(metric: str, scores: Scores) -> str:
    return format_score(scores.get(metric)) + format_interval(interval_over_seeds(metric, scores))


def format_interval(interval: tuple[float, float] | None) -> str:
    """Returns ` (0.1 to 0.2)`; an empty text without an interval."""
    if interval is None:
        return ""
    return f" ({format_score(interval[0])} to {format_score(interval[1])})"


def rules_table(verdict: ModelVerdict) -> str:
    """Returns a table of the rules, with the references of this evaluation."""
    rules = rules_by_metric(verdict)
    rows = []
    for line in verdict.verdict.lines:
        row = [plain(line.metric), line.direction, f"{line.tolerance:g}", "-", "-", "-"]
        rule = rules.get(line.metric)
        if rule is not None:
            row[3:] = [
                "-" if rule.goal is None else f"{rule.goal:g}",
                reference_cell(rule, rule.lower_references, verdict.scores),
                reference_cell(rule, rule.upper_references, verdict.scores),
            ]
        rows.append(row)
    head = ("metric", "better", "tolerance", "goal", "must beat", "compares with")
    return markdown_table(head, rows)


def rules_by_metric(verdict: ModelVerdict) -> dict[str, Rule]:
    return {rule.metric: rule for rule in verdict.rules}


def reference_cell(rule: Rule, names: Sequence[str], scores: Scores) -> str:
    """Returns a cell with a short line per reference, the best first: `random numbers 0.083`."""
    values = {name: scores.get(name) for name in names}
    worst = -math.inf if rule.direction == "higher" else math.inf
    lines = [
        f"{plain(name_of(rule, name))} {'-' if value is None else f'{value:.3f}'}"
        for name, value in sorted(
            values.items(),
            key=lambda item: worst if item[1] is None else item[1],
            reverse=rule.direction == "higher",
        )
    ]
    return "<br>".join(lines) or "-"


def baseline_origin(provenance: Mapping[str, Any]) -> str:
    if not provenance:
        return "Baseline: none."
    count = provenance.get("seeds")
    seeds = f"{count} seed{'' if count == 1 else 's'}"
    why = f"; stored although worse: {plain(provenance['why'])}" if provenance.get("why") else ""
    return (
        f"Baseline: {plain(provenance.get('date'))}, commit {plain(provenance.get('commit'))}, "
        f"{seeds}{why}."
    )


def speed_section(model: str, results: Results | None) -> str:
    command = f"make bench BENCH={model}"
    if results is None:
        return f"Speed: not measured yet; `{command}` does."
    machine, rows = results.machine, main_rows(results)
    reached = [row.goal_reached for row in rows if row.goal_reached is not None]
    marks = {None: "", True: ", reached", False: ", **missed**"}
    return folded(
        f"Speed: {reach(results)} that of plain references; "
        f"{sum(reached)} of {len(reached)} goals reached",
        f"Medians (least to greatest) of {results.rounds} rounds by `{command}` on "
        f"{plain(machine.cpu)}, {plain(machine.backend)}, {plain(machine.threads)} threads; "
        f"all rows in `{path_of(model)}`.\n\n"
        + markdown_table(
            ("work", "times as fast", "goal"),
            [
                [plain(row.name), ratio_of(row), plain(goal_of(row)) + marks[row.goal_reached]]
                for row in rows
            ],
        ),
    )


def plots_section(plots: Sequence[Plot]) -> str:
    if not plots:
        return "No plots."
    images = []
    for plot in plots:
        name = plain(PurePosixPath(plot.path).stem.replace("_", " "))
        part, colon, text = plain(plot.caption).partition(":")
        caption = f"**{part}**{colon}{text}" if plot.caption else f"**{name}**"
        images.append(f"{caption}\n\n![{name}]({quote(plot.path)})")
    count = f"{len(plots)} picture{'' if len(plots) == 1 else 's'}"
    return folded(count, "\n\n".join(images), " open")


def all_scores(scores: Scores) -> str:
    ends = {f"{name}{end}" for name in scores for end in ("_low", "_high")}
    names = sorted(scores.keys() - ends, key=natural_order)
    return markdown_table(
        ("metric", "score"), [[plain(name), score_with_interval(name, scores)] for name in names]
    )


def natural_order(name: str) -> tuple[str, int]:
    """Returns a key that sorts cosine/2 before cosine/10."""
    stem, _, index = name.rpartition("/")
    return (stem, int(index)) if index.isdigit() else (name, -1)


def folded(summary: str, body: str, state: str = "") -> str:
    return f"<details{state}><summary>{summary}</summary>\n\n{body}\n\n</details>"


def plain(text: object) -> str:
    """Escapes text from a file: no markup, one line, and no end of a table's cell."""
    line = html.escape(" ".join(str(text).split()), quote=False)
    return re.sub(r"([\\`*\[\]|~]|(?<![^\W_])_|_(?![^\W_]))", r"\\\1", line)
