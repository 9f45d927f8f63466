"""judgements and pictures -> the report in Markdown, which pull requests show, too."""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import quote

from pipeline.judging import render
from pipeline.judging.changes import CODE
from pipeline.judging.gate import judge_committed
from pipeline.judging.machine import describe, machine_of
from pipeline.judging.render import plain
from pipeline.judging.scores import path_of
from pipeline.reporting.marks import LEGEND, mark, name_of
from pipeline.reporting.stills import still_path
from pipeline.runtime.hints import promote_hint
from pipeline.storage.stored_pictures import MEDIA, read_picture
from pipeline.tracking.records import padded
from pipeline.tracking.ui import EXPERIMENTS_PAGE
from quatrain.baselines import KEPT, Rule
from quatrain.judgement import Judgement, Line, Scores
from quatrain.params import Params
from quatrain.registry import MODELS
from quatrain.seeds import SEEDS_OF_INTERVAL

# Beside the report, for its numbers differ from run to run.
COSTS_PAGE = "costs.html"
COSTS_TITLE = "# What each stage took here\n\n[The report](report.html)\n\n"
COSTS_LINK = f"What each stage took here, in seconds and memory: [{COSTS_PAGE}]({COSTS_PAGE})."
INTERVALS = (
    f"Intervals are over seeds, of which there are at least {SEEDS_OF_INTERVAL}; "
    "± half of the difference's 95 % interval, from the sides that have one."
)


class Result(NamedTuple):
    """Holds what the report shows of one model; plots: path relative to the report -> caption, the
    first of them on the model's card. still: whether git has one, for what did not run here.
    """

    judgement: Judgement
    plots: Mapping[str, str]
    still: bool = False


def read_all(root: Path, params: Params) -> list[Result]:
    """Returns the results of all models, in the order of the registry; of a preset, which may have
    settings for some, of those that were evaluated. Of what did not run here, the commit's scores.

    Raises:
        DataError: scores, baseline, learner or pictures of a model cannot be read.
    """
    return [
        Result(
            judge_committed(root, model, params),
            read_plots(root, model),
            (root / "reports" / still_path(model)).exists(),
        )
        for model in MODELS
        if params.preset == "default" or path_of(root, model).exists()
    ]


def read_plots(root: Path, model: str) -> dict[str, str]:
    """Returns path -> caption of a model's pictures, in the order of the story that they tell."""
    files = sorted((root / "reports" / model / "plots").glob("*"))
    pictures = [(file, read_picture(file)) for file in files if file.suffix in MEDIA]
    pictures.sort(key=lambda picture: picture[1].place)
    return {f"{model}/plots/{file.name}": stored.caption for file, stored in pictures}


def title_of(judgements: Sequence[Judgement]) -> str:
    return f"{render.heading(judgements)}: preset {judgements[0].preset}"


def page(results: Sequence[Result], whole: bool = False) -> str:
    """Returns the page: the verdict, a card per model, all judged scores, a section per model.

    whole: with all pictures, for a browser; git has a still of each model's first alone.
    """
    judgements = [result.judgement for result in results]
    parts = [
        f"# {plain(title_of(judgements))}",
        render.summary(judgements),
        cards(results, whole),
        "" if whole else "All pictures: `report.html`, which `make repro` writes beside this page.",
        "## Scores",
        judged_scores(judgements),
        f"{LEGEND}. {INTERVALS}",
        f"{machine(judgements)} All runs: [in `make ui`]({EXPERIMENTS_PAGE}).",
        COSTS_LINK if whole else "",
        *(model_section(result, whole) for result in results),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def cards(results: Sequence[Result], whole: bool) -> str:
    """Returns a card per model: verdict, first score, first picture."""
    return render.side_by_side([card(result, whole) for result in results])


def card(result: Result, whole: bool) -> str:
    judgement = result.judgement
    model, line = judgement.model, judgement.lines[0]
    score = f"{plain(line.metric)} {render.number(line.value)}"
    lines = [
        f"[{model}](#{model}): {count(judgement)}",
        f"{score}, baseline {render.number(line.baseline)}: {render.status(line.status)}",
    ]
    for path, caption in islice(result.plots.items(), 1):
        shown = f"{render.enlarged_by_click(model, quote(path))}<small>{plain(caption)}</small>"
        lines.append(shown if whole else f"![{model}]({still_path(model)})")
    if not result.plots and result.still:
        lines.append(f"![{model}]({still_path(model)})")
    return "<br>".join(lines)


def judged_scores(judgements: Sequence[Judgement]) -> str:
    """Returns a table of all judged scores, each model named in its first row."""
    head = ("model", "metric", "score", "baseline", "difference", "where it stands", "status")
    rows = [
        ["" if place else f"[{each.model}](#{each.model})", *score_row(each, line)]
        for each in judgements
        for place, line in enumerate(each.lines)
    ]
    return render.markdown_table(head, rows)


def machine(judgements: Sequence[Judgement]) -> str:
    settings = [each.learner["settings"] for each in judgements if each.learner]
    machines = dict.fromkeys(describe(machine_of(each)) for each in settings)
    return f"Machine: {plain('; '.join(machines) or 'unknown')}."


def count(judgement: Judgement) -> str:
    """Returns how many scores hold, in a cell."""
    if judgement.only_lacks_a_baseline:
        return "**no baseline yet**"
    total, broken = len(judgement.lines), len(judgement.broken)
    return f"**{broken} of {total} broken**" if broken else f"{total} of {total} hold"


def model_section(result: Result, whole: bool) -> str:
    judgement = result.judgement
    model = judgement.model
    first = f"Scores: {count(judgement)}."
    if judgement.only_lacks_a_baseline:
        first += f" {promote_hint(judgement.preset, model)} stores one."
    parts = [
        f"## {model}",
        f"{first} {baseline_origin(judgement.provenance)}",
        meanings(judgement.lines),
        changes_section(judgement, whole),
        plots_section(dict(islice(result.plots.items(), 1, None))) if whole else "",
        champions_section(judgement),
        folded("Rules and references of each score", rules_table(judgement)),
    ]
    if judgement.learner:
        gated = {line.metric for line in judgement.lines}
        others = other_scores(judgement.scores, gated)
        parts.append(folded(f"Scores of {model} that are not judged", others))
        # Run ids differ from store to store, the run key does not.
        search = f"tags.\"quatrain.run_key\" = '{judgement.learner['run_key']}'"
        link = f"[in `make ui`]({EXPERIMENTS_PAGE}&searchFilter={quote(search, safe='')})"
        parts.append(f"Run: {link}, or search any tracking server for `{search}`")
    return "\n\n".join(part for part in parts if part)


def score_row(judgement: Judgement, line: Line) -> list[str]:
    return [
        plain(line.metric),
        *render.cells(line),
        mark(line, judgement.scores),
        render.status(line.status),
    ]


def meanings(lines: Sequence[Line]) -> str:
    """Returns what each judged metric measures, a line each."""
    rules = [line.rule for line in lines if line.rule is not None and line.rule.meaning]
    return "\n".join(f"* **{plain(rule.metric)}**: {plain(rule.meaning)}" for rule in rules)


def rules_table(judgement: Judgement) -> str:
    """Returns a table of the rules, with the references of this evaluation."""
    scores = judgement.scores
    rows = [
        [
            plain(rule.metric),
            rule.direction,
            f"{rule.tolerance:g}",
            "-" if rule.goal is None else f"{rule.goal:g}",
            reference_cell(rule, rule.lower_references, scores),
            reference_cell(rule, rule.upper_references, scores),
        ]
        for line in judgement.lines
        if (rule := line.rule) is not None
    ]
    head = ("metric", "better", "tolerance", "goal", "must beat", "compares with")
    return render.markdown_table(head, rows)


def reference_cell(rule: Rule, names: Iterable[str], scores: Scores) -> str:
    """Returns a cell with a short line per reference, the best first: `random numbers 0.083`."""
    sign = -1 if rule.direction == "higher" else 1
    values = {plain(name_of(rule, name)): scores.get(name) for name in names}
    ranks = {name: math.inf if value is None else sign * value for name, value in values.items()}
    best_first = sorted(values, key=ranks.__getitem__)
    return "<br>".join(f"{name} {render.number(values[name], 3)}" for name in best_first) or "-"


def baseline_origin(provenance: Mapping[str, Any]) -> str:
    if not provenance:
        return "Baseline: none."
    date, commit, seeds, why = map(provenance.get, ("date", "commit", "seeds", "why"))
    learners = f"{plain(seeds)} seed{'' if seeds == 1 else 's'}"
    reason = f"; why: {plain(why)}" if why else ""
    return f"Baseline: {plain(date)}, commit {plain(commit)}, {learners}{reason}."


def changes_section(judgement: Judgement, whole: bool) -> str:
    """Returns what changed since the baseline; of code in git no commits, which the next one is
    part of.
    """
    if not judgement.changes:
        return ""
    if not whole:
        lines = ["code" if line.startswith(CODE) else line for line in judgement.changes]
        judgement = judgement._replace(changes=tuple(lines))
    return f"What changed since the baseline:\n\n{render.changes(judgement)}"


def champions_section(judgement: Judgement) -> str:
    """Returns a table of this baseline and those that it replaced: who stored them, when, why, and
    their first score.
    """
    if not judgement.history:
        return ""
    metric = judgement.lines[0].metric
    entries = [
        (judgement.provenance, judgement.lines[0].baseline),
        *((each.provenance, each.scores.get(metric)) for each in judgement.history),
    ]
    rows = [
        [*(plain(about.get(key) or "-") for key in KEPT[1:]), render.number(score)]
        for about, score in entries
    ]
    head = (*KEPT[1:], plain(metric))
    return folded(f"{len(rows)} champions, the newest first", render.markdown_table(head, rows))


def plots_section(plots: Mapping[str, str]) -> str:
    if not plots:
        return ""
    images = []
    for path, caption in plots.items():
        name = PurePosixPath(path).stem.replace("_", " ")
        text = plain(caption or name)
        part = re.split(r"(?<=\?)|:", text, maxsplit=1)[0]
        images.append(f"**{part}**{text[len(part) :]}\n\n![{plain(name)}]({quote(path)})")
    title = f"{len(plots)} picture{'' if len(plots) == 1 else 's'}"
    return folded(title, "\n\n".join(images), " open")


def other_scores(scores: Scores, gated: Collection[str]) -> str:
    ends = {f"{name}{end}" for name in scores for end in ("_low", "_high")}
    return render.scores_table(scores, sorted(scores.keys() - ends - {*gated}, key=padded))


def folded(summary: str, body: str, state: str = "") -> str:
    return f"<details{state}><summary>{summary}</summary>\n\n{body}\n\n</details>"
