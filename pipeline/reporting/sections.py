"""judgements, pictures and speed -> the report in Markdown, which pull requests show, too."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import quote

from pipeline.judging.gate import promote_hint
from pipeline.judging.machine import describe, machine_of
from pipeline.judging.render import (
    cells,
    markdown_table,
    plain,
    scores_table,
    status,
    summary,
    verdict,
)
from pipeline.reporting.marks import LEGEND, mark, name_of
from pipeline.storage.stored_pictures import MEDIA, read_picture
from pipeline.tracking.ui import EXPERIMENTS_PAGE
from quatrain.baselines import Rule
from quatrain.errors import DataError
from quatrain.judgement import Judgement, Line, Scores
from quatrain.seeds import SEEDS_OF_INTERVAL
from quatrain.storage import folders

INTERVALS = (
    f"Intervals are over seeds, of which there are at least {SEEDS_OF_INTERVAL}; "
    "± half of the difference's 95 % interval, from the sides that have one."
)


class Plot(NamedTuple):
    """Holds a picture's path relative to the report, and its caption."""

    path: str
    caption: str


class Result(NamedTuple):
    """Holds what the report shows of one model."""

    judgement: Judgement
    plots: Sequence[Plot]
    speed: str


def read_plots(reports: Path, model: str) -> list[Plot]:
    """Returns the pictures of a model, in the order of the story that they tell.

    Raises:
        DataError: one of them is no picture.
    """
    paths = [path for path in (reports / model / "plots").glob("*") if path.suffix in MEDIA]
    stored = {path: read_picture(path) for path in sorted(paths)}
    return [
        Plot(f"{model}/plots/{path.name}", stored[path].caption)
        for path in sorted(stored, key=lambda path: stored[path].place)
    ]


def read_speed(root: Path, model: str) -> str:
    """Returns what a model's benchmark says of its speed, in a line.

    Raises:
        DataError: its results have another form.
    """
    path = Path("benchmarks", "results", f"{model}.json")
    command = f"`make bench BENCH={model}`"
    if not (root / path).exists():
        return f"Speed: not measured yet; {command} does."
    content = folders.read_json(root / path)
    try:
        summary, cpu = content["summary"], content["machine"]["cpu"]
    except (KeyError, TypeError):
        remedy = f"{command} writes it anew"
        raise DataError(f"{path}: has no summary of its results", remedy=remedy) from None
    return f"Speed: {plain(summary)}, by {command} on {plain(cpu)}; docs/benchmarks.md has all."


def title_of(judgements: Sequence[Judgement]) -> str:
    return f"{verdict(judgements)}: preset {judgements[0].preset}"


def page(results: Sequence[Result]) -> str:
    """Returns the whole page: the verdict first, then a section per model."""
    judgements = [result.judgement for result in results]
    head = ("model", "verdict", "judged by", "score", "baseline", "difference", "where it stands")
    rows = [
        [f"[{each.model}](#{each.model})", count(each), *score_row(each, each.lines[0])[:-1]]
        for each in judgements
    ]
    settings = [each.learner["settings"] for each in judgements if each.learner]
    machines = dict.fromkeys(describe(machine_of(each)) for each in settings)
    parts = [
        f"# {plain(title_of(judgements))}",
        summary(judgements),
        markdown_table(head, rows),
        f"{LEGEND}. {INTERVALS}",
        f"Machine: {plain('; '.join(machines) or 'unknown')}.",
        f"All runs: [in `make ui`]({EXPERIMENTS_PAGE}).",
        *map(model_section, results),
    ]
    return "\n\n".join(parts) + "\n"


def count(judgement: Judgement) -> str:
    """Returns how many scores hold, in a cell."""
    if judgement.only_lacks_a_baseline:
        return "**no baseline yet**"
    total, broken = len(judgement.lines), len(judgement.broken)
    return f"**{broken} of {total} broken**" if broken else f"{total} of {total} hold"


def model_section(result: Result) -> str:
    judgement = result.judgement
    model = judgement.model
    first = f"Scores: {count(judgement)}."
    if judgement.only_lacks_a_baseline:
        first += f" {promote_hint(judgement.preset, model)} stores one."
    head = ("metric", "score", "baseline", "difference", "where it stands", "status")
    parts = [
        f"## {model}",
        f"{first} {baseline_origin(judgement.provenance)}",
        meanings(judgement.lines),
        markdown_table(head, [score_row(judgement, line) for line in judgement.lines]),
        plots_section(result.plots),
        folded("Rules and references of each score", rules_table(judgement)),
        result.speed,
    ]
    if judgement.learner:
        parts.append(folded(f"All scores of {model}", all_scores(judgement.scores)))
        # Run ids differ from store to store, the run key does not.
        search = f"tags.\"quatrain.run_key\" = '{judgement.learner['run_key']}'"
        link = f"[in `make ui`]({EXPERIMENTS_PAGE}&searchFilter={quote(search, safe='')})"
        parts.append(f"Run: {link}, or search any tracking server for `{search}`")
    return "\n\n".join(part for part in parts if part)


def score_row(judgement: Judgement, line: Line) -> list[str]:
    return [plain(line.metric), *cells(line), mark(line, judgement.scores), status(line.status)]


def meanings(lines: Sequence[Line]) -> str:
    """Returns what each judged metric measures, a line each."""
    rules = [line.rule for line in lines if line.rule is not None and line.rule.meaning]
    return "\n".join(f"* **{plain(rule.metric)}**: {plain(rule.meaning)}" for rule in rules)


def rules_table(judgement: Judgement) -> str:
    """Returns a table of the rules, with the references of this evaluation."""
    rows = [
        [
            plain(rule.metric),
            rule.direction,
            f"{rule.tolerance:g}",
            "-" if rule.goal is None else f"{rule.goal:g}",
            reference_cell(rule, rule.lower_references, judgement.scores),
            reference_cell(rule, rule.upper_references, judgement.scores),
        ]
        for rule in (line.rule for line in judgement.lines)
        if rule is not None
    ]
    head = ("metric", "better", "tolerance", "goal", "must beat", "compares with")
    return markdown_table(head, rows)


def reference_cell(rule: Rule, names: Sequence[str], scores: Scores) -> str:
    """Returns a cell with a short line per reference, the best first: `random numbers 0.083`."""
    is_higher = rule.direction == "higher"
    worst = -math.inf if is_higher else math.inf
    values = {name: scores.get(name) for name in names}
    numbers = {name: worst if value is None else value for name, value in values.items()}
    lines = [
        f"{plain(name_of(rule, name))} {'-' if values[name] is None else f'{values[name]:.3f}'}"
        for name in sorted(names, key=numbers.__getitem__, reverse=is_higher)
    ]
    return "<br>".join(lines) or "-"


def baseline_origin(provenance: Mapping[str, Any]) -> str:
    if not provenance:
        return "Baseline: none."
    number = provenance.get("seeds")
    seeds = f"{number} seed{'' if number == 1 else 's'}"
    why = f"; stored although worse: {plain(provenance['why'])}" if provenance.get("why") else ""
    return (
        f"Baseline: {plain(provenance.get('date'))}, commit {plain(provenance.get('commit'))}, "
        f"{seeds}{why}."
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
    number = f"{len(plots)} picture{'' if len(plots) == 1 else 's'}"
    return folded(number, "\n\n".join(images), " open")


def all_scores(scores: Scores) -> str:
    ends = {f"{name}{end}" for name in scores for end in ("_low", "_high")}
    return scores_table(scores, sorted(scores.keys() - ends, key=natural_order))


def natural_order(name: str) -> tuple[str, int]:
    """Returns a key that sorts cosine/2 before cosine/10."""
    stem, _, index = name.rpartition("/")
    return (stem, int(index)) if index.isdigit() else (name, -1)


def folded(summary: str, body: str, state: str = "") -> str:
    return f"<details{state}><summary>{summary}</summary>\n\n{body}\n\n</details>"
