"""scores, verdicts and plots of all models -> reports/report.md: one page for a person and for CI."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline import artifacts, verdicts
from pipeline.durable import write_durably
from pipeline.params import read_params
from pipeline.stage import guarded
from pipeline.verdicts import Judged, shown
from quatrain.baselines import PASSED, Line
from quatrain.registry import MODELS

Scores = Mapping[str, float | None]


def page(root: Path, preset: str) -> str:
    """The whole page: the verdict first, then a section per model.

    Raises:
        ArtifactError: scores, verdict, baseline or learner of a model cannot be read.
    """
    judged = [verdicts.check(root, model, preset) for model in MODELS]
    passed = all(one.verdict.passed for one in judged)
    lines = [(one.model, line) for one in judged for line in one.verdict.lines]
    broken = dict.fromkeys((model, line.why) for model, line in lines if line.status not in PASSED)
    head = [
        f"# {'Passed' if passed else 'Broken'}: preset {preset}",
        "",
        "Every judged score holds its baseline." if passed else "Not every judged score holds its baseline:",
        "",
        *(f"* **{model}**: {why}" for model, why in broken),
        *([""] if broken else []),
    ]
    return "\n".join([*head, *(section(root, one) for one in judged)])


def section(root: Path, judged: Judged) -> str:
    """A model's part of the page: judged metrics between floors and ceilings, pictures, all scores."""
    scores = verdicts.read_scores(verdicts.files(root, judged.model).scores)
    run_key = artifacts.load(root / "models" / judged.model).info["run_key"]
    return "\n\n".join(
        [
            f"## {judged.model}: {'passed' if judged.verdict.passed else 'broken'}",
            judged_table(judged, scores),
            origin(judged.entry["provenance"]),
            f"Run: in MLflow (`make ui`) search for `tags.\"quatrain.run_key\" = '{run_key}'`",
            pictures(root, judged.model),
            f"<details><summary>All scores of {judged.model}</summary>",
            all_scores(scores),
            "</details>\n",
        ]
    )


def judged_table(judged: Judged, scores: Scores) -> str:
    """A row per judged metric."""
    rows = [
        "| metric | score | baseline | tolerance | better | goal | floors | ceilings | status |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    rows += [row(line, judged.entry["metrics"].get(line.metric, {}), scores) for line in judged.verdict.lines]
    return "\n".join(rows)


def row(line: Line, entry: Mapping[str, Any], scores: Scores) -> str:
    """One metric: what it is, what it should be, and between which others it stands."""
    status = line.status if line.status in PASSED else f"**{line.status}**"
    cells = [
        line.metric,
        with_interval(line.metric, scores),
        shown(line.baseline),
        f"{line.tolerance:g}",
        line.direction,
        shown(entry.get("goal")),
        named(entry.get("floors", {})),
        named(entry.get("ceilings", {})),
        status,
    ]
    return f"| {' | '.join(cells)} |"


def with_interval(metric: str, scores: Scores) -> str:
    """A score, and its 95 % interval over learners where the evaluation tells one."""
    low, high = scores.get(f"{metric}_low"), scores.get(f"{metric}_high")
    interval = f" ({shown(low)} to {shown(high)})" if low is not None and high is not None else ""
    return shown(scores.get(metric)) + interval


def named(values: Mapping[str, float]) -> str:
    """`floor_random 0.083, floor_constant 0.091` -> a cell of short lines."""
    return "<br>".join(f"{name} {value:.3f}" for name, value in sorted(values.items())) or "-"


def origin(provenance: Mapping[str, Any]) -> str:
    """Where the baseline comes from."""
    if not provenance:
        return "Baseline: none."
    seeds = f"{provenance.get('seeds')} seed{'' if provenance.get('seeds') == 1 else 's'}"
    why = f"; stored although worse: {provenance['why']}" if provenance.get("why") else ""
    return f"Baseline: {provenance.get('date')}, commit {provenance.get('commit')}, {seeds}{why}."


def pictures(root: Path, model: str) -> str:
    """The plots, one below the other, for some are as wide as the page."""
    found = sorted((root / "reports" / model / "plots").glob("*.png"))
    return "\n\n".join(f"![{path.stem}]({model}/plots/{path.name})" for path in found) or "No plots."


def all_scores(scores: Scores) -> str:
    """A row per score; an interval stands in the row of its score."""
    bounds = {f"{name}{end}" for name in scores for end in ("_low", "_high")}
    rows = [f"| {name} | {with_interval(name, scores)} |" for name in sorted(scores.keys() - bounds, key=natural)]
    return "\n".join(["| metric | score |", "|---|---|", *rows])


def natural(name: str) -> tuple[str, int]:
    """cosine/2 before cosine/10."""
    stem, _, index = name.rpartition("/")
    return (stem, int(index)) if index.isdigit() else (name, -1)


def report() -> None:
    """Write the page."""
    root = Path.cwd()
    write_durably(root / "reports" / "report.md", page(root, read_params(root).preset).encode())


if __name__ == "__main__":
    sys.exit(guarded("report", report))
