"""scores, verdicts, plots and speed of all models -> reports/report.md and reports/report.html."""

from collections.abc import Sequence
from pathlib import Path

from pipeline.judging import verdicts
from pipeline.judging.machine import describe, machine_of
from pipeline.reporting.marks import LEGEND, as_svg, as_text
from pipeline.reporting.page import as_html
from pipeline.reporting.sections import Draw, Plot, Result, model_section, plain, score_rows
from pipeline.reporting.speed import read_results
from pipeline.reporting.tables import markdown_table
from pipeline.storage import artifacts
from pipeline.storage.params_file import read_params
from pipeline.storage.stored_pictures import MEDIA, read_picture
from pipeline.tracking.description import description
from pipeline.tracking.records import now
from pipeline.tracking.run import Run
from pipeline.tracking.runs_page import EXPERIMENTS_PAGE
from quatrain.registry import MODELS
from quatrain.seeds import SEEDS_OF_INTERVAL
from quatrain.storage.atomic_write import write_together


def read_all(root: Path, preset: str) -> list[Result]:
    """Returns the results of all models, in the order of the registry.

    Raises:
        DataError: scores, verdict, baseline, weights or speed of a model cannot be read.
    """
    results = []
    for model in MODELS:
        loaded = artifacts.load(root / "models" / model)
        results.append(
            Result(
                model_verdict=verdicts.check(root, model, preset),
                run_key=loaded.info["run_key"],
                plots=read_plots(root / "reports", model),
                speed=read_results(root, model),
                machine=describe(machine_of(loaded.info["settings"])),
            )
        )
    return results


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


def page(results: Sequence[Result], draw: Draw) -> str:
    """Returns the whole page in Markdown: the verdict first, then a section per model."""
    parts = [headline(results), overview(results, draw)]
    parts.append(f"All runs: [in `make ui`]({EXPERIMENTS_PAGE}).")
    return "\n\n".join([*parts, *(model_section(result, draw) for result in results)]) + "\n"


def title(results: Sequence[Result]) -> str:
    """Returns whether the preset passed or is broken, in one line."""
    broken = [result.model_verdict for result in results if result.broken]
    word = "Broken" if broken else "Passed"
    if broken and all(verdict.only_lacks_a_baseline for verdict in broken):
        word = "No baseline yet"
    return f"{word}: preset {results[0].model_verdict.preset}"


def headline(results: Sequence[Result]) -> str:
    """Returns how many scores hold their baselines, and why the others do not."""
    parts = [f"# {plain(title(results))}"]
    lines = [line for result in results for line in result.lines]
    better = sum(line.status == "better" for line in lines)
    broken = [(result.model, line.why) for result in results for line in result.broken]
    if broken:
        reasons = dict.fromkeys(f"* **{model}**: {plain(why)}" for model, why in broken)
        count = f"{len(broken)} of {len(lines)} scores"
        lacking = title(results).startswith("No baseline")
        what = f"{count} have no baseline yet" if lacking else f"{count} broke"
        parts += [f"**{what}.**", "\n".join(reasons)]
    else:
        parts.append(f"**All {len(lines)} scores hold their baselines.**")
    if better and not broken:
        parts.append(f"{better} better than the baseline: `make promote` would store that.")
    return "\n\n".join(parts)


def overview(results: Sequence[Result], draw: Draw) -> str:
    """Returns a table with a row per model: its verdict and its first judged metric."""
    head = ("model", "verdict", "judged by", "score", "baseline", "difference", "where it stands")
    rows = []
    for result in results:
        holding = f"{len(result.lines)} of {len(result.lines)} hold"
        if result.broken:
            holding = f"**{len(result.broken)} of {len(result.lines)} broken**"
            if result.model_verdict.only_lacks_a_baseline:
                holding = "**no baseline yet**"
        link = f"[{result.model}](#{result.model})"
        rows.append([link, holding, *score_rows(result, draw)[0][:-1]])
    spread = f"over seeds, of which there are at least {SEEDS_OF_INTERVAL}"
    half = "half of the difference's 95 % interval, from the sides that have one"
    machine = "; ".join(dict.fromkeys(result.machine for result in results))
    return (
        f"{markdown_table(head, rows)}\n\n{LEGEND}. Intervals are {spread}; ± {half}.\n\n"
        f"Machine: {plain(machine)}."
    )


def report() -> None:
    """Writes the page as Markdown for pull requests, and as one HTML file for a browser."""
    root = Path.cwd()
    reports = root / "reports"
    started = now()
    params = read_params(root)
    results = read_all(root, params.preset)
    pages = {
        "report.md": page(results, as_text).encode(),
        "report.html": as_html(page(results, as_svg), title(results), reports).encode(),
    }
    write_together(reports, pages)
    digest = artifacts.file_digest(reports / "report.md")
    with Run.of_pipeline(root, params, digest, started) as run:
        run.metrics(
            (f"{result.model}/{line.metric}", 0, line.value)
            for result in results
            for line in result.lines
            if line.value is not None
        )
        run.artifact(reports / "report.html", "report")
        run.describe(description(root, params, None, [result.model_verdict for result in results]))
