"""judgements, plots and speed of all models -> reports/report.md and reports/report.html."""

import time
from collections.abc import Sequence
from pathlib import Path

from pipeline.judging import render
from pipeline.reporting import stills
from pipeline.reporting.page import as_html
from pipeline.reporting.sections import COSTS_PAGE, COSTS_TITLE, Result, page, read_all, title_of
from pipeline.storage.params_file import read_params
from pipeline.tracking.costs import table
from pipeline.tracking.origin import DESCRIPTION_TAG, title
from pipeline.tracking.run import Run
from pipeline.tracking.verdicts import pipeline_name, record_verdicts, tags_of_all
from quatrain.judgement import Judgement
from quatrain.params import Params
from quatrain.storage import folders
from quatrain.storage.atomic_write import write_exactly, write_together


def report() -> None:
    """Writes the page as Markdown for pull requests, and as one HTML file for a browser; the run of
    the pipeline gets it with the verdict.
    """
    started = time.monotonic()
    root = Path.cwd()
    params = read_params(root)
    results = read_all(root, params)
    judgements = [result.judgement for result in results]
    costs = table(root, params)
    write_pages(root / "reports", results, costs)
    record(root, params, judgements, costs)
    verdict = render.heading(judgements).lower()
    reason = "" if verdict == "passed" else "; `make gate` says why"
    seconds = time.monotonic() - started
    print(f"report: reports/report.html, {verdict}{reason}, {seconds:.1f} s")


def write_pages(reports: Path, results: Sequence[Result], costs: str) -> None:
    """Writes the report, a still of each model, and what stages took: a file that DVC does not
    know, for no two runs take the same.
    """
    title = title_of([result.judgement for result in results])
    pages = {
        "report.md": page(results),
        "report.html": as_html(page(results, whole=True), title, reports),
        COSTS_PAGE: as_html(COSTS_TITLE + costs, "Costs", reports),
    }
    shown = {
        each.judgement.model: next(iter(each.plots), stills.still_path(each.judgement.model))
        for each in results
        if each.plots or each.still
    }
    write_exactly(reports / stills.FOLDER, stills.stills_of(reports, shown))
    write_together(reports, {name: text.encode() for name, text in pages.items()})


def record(root: Path, params: Params, judgements: Sequence[Judgement], costs: str) -> None:
    """Delivers verdicts, scores and the report to the tracking store.

    Of models that did not run here, the scores are the commit's, and of no run of ours.
    """
    digest = folders.file_digest(root / "reports" / "report.md")
    verdicts = record_verdicts(root, judgements)
    judgements = [each for each in judgements if (root / "models" / each.model).exists()]
    if not judgements:
        return
    with Run.of_pipeline(root, params, digest, verdicts) as run:
        run.metrics(
            (f"{judgement.model}/{line.metric}", 0, line.value)
            for judgement in judgements
            for line in judgement.lines
            if line.value is not None
        )
        run.artifact(root / "reports" / "report.html", "report")
        tags = tags_of_all(pipeline_name(root, params, judgements) or title(params), judgements)
        tags[DESCRIPTION_TAG] += f"\n\n{costs}"
        for tag, text in tags.items():
            run.put("tag", tag, text)
