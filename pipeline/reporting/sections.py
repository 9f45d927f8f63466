"""what is known of one model -> its part of the report, in Markdown that a pull request shows, too."""

import html
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import quote

from pipeline.judging.verdicts import Judged, shown, shown_difference
from pipeline.reporting.marks import Mark, mark_of
from pipeline.reporting.speed import Results, comparisons, path_of, reach
from quatrain.baselines import PASSED, Line, Scores

UI = "http://127.0.0.1:5000/#/experiments/1/runs"
"""Where `make ui` lists the runs of the default store, which has made one experiment."""

Draw = Callable[[Mark], str]


class Result(NamedTuple):
    """What the report tells of one model. pictures: paths as seen from the report."""

    judged: Judged
    run_key: str
    pictures: Sequence[str]
    speed: Results | None

    @property
    def model(self) -> str:
        return self.judged.model

    @property
    def lines(self) -> tuple[Line, ...]:
        """The judged metrics."""
        return self.judged.verdict.lines

    @property
    def broken(self) -> list[Line]:
        """The judged metrics that do not hold."""
        return [line for line in self.lines if line.status not in PASSED]


def section(result: Result, draw: Draw) -> str:
    """A model's part: judged metrics between floors and ceilings, where they come from, speed, pictures, all scores."""
    name = result.model
    parts = [
        f"## {name}",
        f"{standing(result)} {origin(result.judged.entry['provenance'])}",
        judged_table(result, draw),
        run_link(result.run_key),
        folded("Rules, floors and ceilings", rules_table(result.judged)),
        speed(name, result.speed),
        pictures(result.pictures),
        folded(f"All scores of {name}", all_scores(result.judged.scores))
        if result.judged.scores
        else "",
    ]
    return "\n\n".join(part for part in parts if part)


def standing(result: Result) -> str:
    """`Passed: 3 of 3 scores hold.`, the status in bold where it is not."""
    count, broken = len(result.lines), len(result.broken)
    return (
        f"**Broken:** {broken} of {count} scores."
        if broken
        else f"Passed: {count} of {count} scores hold."
    )


def judged_table(result: Result, draw: Draw) -> str:
    """A row per judged metric."""
    head = ("metric", "score", "baseline", "difference", "where it stands", "status")
    return table(head, judged_rows(result, draw))


def judged_rows(result: Result, draw: Draw) -> list[list[str]]:
    """Of each judged metric what it is, what it was, how sure the difference is, and between which others it stands."""
    scores, rows = result.judged.scores, []
    for line, found in zip(result.lines, result.judged.comparisons, strict=True):
        stored = result.judged.entry["metrics"].get(line.metric, {})
        mark = mark_of(line, stored, found, scores)
        rows.append(
            [
                plain(line.metric),
                with_interval(line.metric, scores),
                shown(line.baseline) + bounds(stored.get("interval", (None, None))),
                shown_difference(found),
                "-" if mark is None else draw(mark),
                line.status if line.status in PASSED else f"**{line.status}**",
            ]
        )
    return rows


def with_interval(metric: str, scores: Scores) -> str:
    """A score, and its 95 % interval where the evaluation tells one."""
    return shown(scores.get(metric)) + bounds(
        (scores.get(f"{metric}_low"), scores.get(f"{metric}_high"))
    )


def bounds(interval: Sequence[float | None]) -> str:
    """` (0.1 to 0.2)`, or nothing."""
    low, high = interval
    return "" if low is None or high is None else f" ({shown(low)} to {shown(high)})"


def rules_table(judged: Judged) -> str:
    """By what each metric is judged, and the neighbours that were stored with its baseline."""
    rows = []
    for line in judged.verdict.lines:
        stored = judged.entry["metrics"].get(line.metric, {})
        neighbours = [named(stored.get(kind, {})) for kind in ("floors", "ceilings")]
        goal = "-" if stored.get("goal") is None else f"{stored['goal']:g}"
        rows.append([plain(line.metric), line.direction, f"{line.tolerance:g}", goal, *neighbours])
    return table(("metric", "better", "tolerance", "goal", "floors", "ceilings"), rows)


def named(values: Mapping[str, float]) -> str:
    """`floor_random 0.083, floor_constant 0.091` -> a cell of short lines."""
    return (
        "<br>".join(f"{plain(name)} {value:.3f}" for name, value in sorted(values.items())) or "-"
    )


def origin(provenance: Mapping[str, Any]) -> str:
    """Where the baseline comes from."""
    if not provenance:
        return "Baseline: none."
    seeds = f"{provenance.get('seeds')} seed{'' if provenance.get('seeds') == 1 else 's'}"
    why = f"; stored although worse: {plain(provenance['why'])}" if provenance.get("why") else ""
    return f"Baseline: {plain(provenance.get('date'))}, commit {plain(provenance.get('commit'))}, {seeds}{why}."


def run_link(run_key: str) -> str:
    """Run ids differ from store to store, so a run is linked by the search that finds it in any of them."""
    search = f"tags.\"quatrain.run_key\" = '{run_key}'"
    return f"Run: [in `make ui`]({UI}?searchFilter={quote(search, safe='')}), or search any tracking server for `{search}`"


def speed(model: str, results: Results | None) -> str:
    """How many times as fast as plain references, and who measured that."""
    command = f"make bench BENCH={model}"
    if results is None:
        return f"Speed: not measured yet; `{command}` does."
    found = comparisons(results)
    met = [one.met for one in found if one.met is not None]
    told = (
        f"Speed: {reach(results)} that of plain references; {sum(met)} of {len(met)} goals reached"
    )
    machine = f"{plain(results.cpu)}, {plain(results.backend)}, {plain(results.threads)} threads"
    origin = f"medians (least to greatest) of {results.rounds} rounds by `{command}` on {machine}"
    marks = {None: "", True: ", reached", False: ", **missed**"}
    rows = [[plain(one.work), one.ratio, plain(one.goal) + marks[one.met]] for one in found]
    body = table(("work", "times as fast", "goal"), rows)
    return folded(
        told, f"{origin[0].upper()}{origin[1:]}; all rows in `{path_of(model)}`.\n\n{body}"
    )


def pictures(paths: Sequence[str]) -> str:
    """The plots under their names, one below the other, for some are as wide as the page."""
    if not paths:
        return "No plots."
    names = [plain(PurePosixPath(path).stem) for path in paths]
    drawn = [
        f"**{name}**\n\n![{name}]({quote(path)})" for name, path in zip(names, paths, strict=True)
    ]
    return folded(
        f"{len(paths)} picture{'' if len(paths) == 1 else 's'}", "\n\n".join(drawn), "open"
    )


def all_scores(scores: Scores) -> str:
    """A row per score; an interval stands in the row of its score."""
    ends = {f"{name}{end}" for name in scores for end in ("_low", "_high")}
    rows = [
        [plain(name), with_interval(name, scores)]
        for name in sorted(scores.keys() - ends, key=natural)
    ]
    return table(("metric", "score"), rows)


def natural(name: str) -> tuple[str, int]:
    """cosine/2 before cosine/10."""
    stem, _, index = name.rpartition("/")
    return (stem, int(index)) if index.isdigit() else (name, -1)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows of Markdown cells."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def folded(summary: str, body: str, state: str = "") -> str:
    """What a reader opens who wants it."""
    return f"<details{state and f' {state}'}><summary>{summary}</summary>\n\n{body}\n\n</details>"


def plain(text: object) -> str:
    """Words from a file that stay words: no markup, no second line, no end of a table's cell."""
    one_line = html.escape(" ".join(str(text).split()), quote=False)
    return re.sub(r"([\\`*\[\]|~]|(?<![^\W_])_|_(?![^\W_]))", r"\\\1", one_line)
