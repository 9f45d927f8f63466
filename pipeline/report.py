"""scores, verdicts, plots and speed of all models -> reports/report.md and .html: one page for a person and for CI."""

import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline.judging import verdicts
from pipeline.reporting.marks import LEGEND, as_svg, as_text
from pipeline.reporting.page import as_html
from pipeline.reporting.sections import Draw, Result, judged_rows, plain, section, table
from pipeline.reporting.speed import read_results
from pipeline.runtime.command import run_guarded
from pipeline.storage import artifacts
from pipeline.storage.atomic_write import write_together
from pipeline.storage.params_file import read_params
from pipeline.tracking.run import Run
from quatrain.registry import MODELS


def gathered(root: Path, preset: str) -> list[Result]:
    """All models, in the order of the registry.

    Raises:
        ArtifactError: scores, verdict, baseline, learner or speed of a model cannot be read.
    """
    return [
        Result(
            verdicts.check(root, model, preset),
            artifacts.load(root / "models" / model).info["run_key"],
            [
                f"{model}/plots/{path.name}"
                for path in sorted((root / "reports" / model / "plots").glob("*.png"))
            ],
            read_results(root, model),
        )
        for model in MODELS
    ]


def page(results: Sequence[Result], draw: Draw) -> str:
    """The whole page in Markdown: the verdict first, then a section per model."""
    parts = [verdict(results), overview(results, draw), *(section(one, draw) for one in results)]
    return "\n\n".join(parts) + "\n"


def title(results: Sequence[Result]) -> str:
    """Passed or broken, in one line."""
    return f"{'Broken' if any(one.broken for one in results) else 'Passed'}: preset {results[0].judged.preset}"


def verdict(results: Sequence[Result]) -> str:
    """What a person reads if nothing else: how many scores hold their baselines, and why where one does not."""
    count = sum(len(one.lines) for one in results)
    broken = sum(len(one.broken) for one in results)
    reasons = dict.fromkeys(
        f"* **{one.model}**: {plain(line.why)}" for one in results for line in one.broken
    )
    better = sum(line.status == "better" for one in results for line in one.lines)
    told = [
        f"# {plain(title(results))}",
        f"**{broken} of {count} scores broke.**"
        if broken
        else f"**All {count} scores hold their baselines.**",
        "\n".join(reasons),
        f"{better} better than the baseline: `make promote` would store that."
        if better and not broken
        else "",
    ]
    return "\n\n".join(part for part in told if part)


def overview(results: Sequence[Result], draw: Draw) -> str:
    """A row per model with the first metric that it is judged by."""
    head = ("model", "verdict", "judged by", "score", "baseline", "difference", "where it stands")
    rows = [
        [f"[{one.model}](#{one.model})", hold(one), *judged_rows(one, draw)[0][:-1]]
        for one in results
    ]
    half = "half of the difference's 95 % interval, from those of both sides"
    spread = "they tell the spread over seeds where there are several, else over held-out data"
    return f"{table(head, rows)}\n\n{LEGEND}. ± {half}; {spread}."


def hold(result: Result) -> str:
    """How many scores of a model hold."""
    count = len(result.lines)
    return (
        f"**{len(result.broken)} of {count} broken**"
        if result.broken
        else f"{count} of {count} hold"
    )


def report() -> None:
    """Write the page twice: as Markdown for git and pull requests, and as one file for a browser."""
    root = Path.cwd()
    params, reports = read_params(root), root / "reports"
    results = gathered(root, params.preset)
    whole = as_html(page(results, as_svg), title(results), reports)
    text = page(results, as_text)
    write_together(reports, {"report.md": text.encode(), "report.html": whole.encode()})
    with Run.of_pipeline(root, params, artifacts.file_digest(reports / "report.md")) as run:
        lines = [(one.model, line) for one in results for line in one.lines]
        run.metrics(
            (f"{model}/{line.metric}", 0, line.value)
            for model, line in lines
            if line.value is not None
        )
        run.artifact(reports / "report.html", "report")


if __name__ == "__main__":
    sys.exit(run_guarded("report", report))
