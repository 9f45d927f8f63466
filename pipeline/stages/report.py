"""judgements, plots and speed of all models -> reports/report.md and reports/report.html."""

import time
from pathlib import Path

from pipeline.judging import render
from pipeline.reporting import stills
from pipeline.reporting.page import as_html
from pipeline.reporting.sections import page, read_all, title_of
from pipeline.storage.params_file import read_params
from pipeline.tracking.costs import table
from pipeline.tracking.origin import DESCRIPTION_TAG, title
from pipeline.tracking.run import Run
from pipeline.tracking.verdicts import pipeline_name, record_verdicts, tags_of_all
from quatrain.storage import folders
from quatrain.storage.atomic_write import write_exactly, write_together


def report() -> None:
    """Writes the page as Markdown for pull requests, and as one HTML file for a browser; the run of
    the pipeline gets it with the verdict.
    """
    started = time.monotonic()
    root = Path.cwd()
    reports = root / "reports"
    params = read_params(root)
    results = read_all(root, params)
    judgements = [result.judgement for result in results]
    markdown = page(results)
    html = as_html(page(results, whole=True), title_of(judgements), reports)
    shown = {
        each.judgement.model: next(iter(each.plots), stills.still_path(each.judgement.model))
        for each in results
        if each.plots or each.still
    }
    write_exactly(reports / stills.FOLDER, stills.stills_of(reports, shown))
    write_together(reports, {"report.md": markdown.encode(), "report.html": html.encode()})
    digest = folders.file_digest(reports / "report.md")
    verdicts = record_verdicts(root, judgements)
    # Of models that did not run here, the commit's scores are shown, and are of no run of ours.
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
        run.artifact(reports / "report.html", "report")
        tags = tags_of_all(pipeline_name(root, params, judgements) or title(params), judgements)
        if costs := table(root, params):
            tags[DESCRIPTION_TAG] += f"\n\n{costs}"
        for tag, text in tags.items():
            run.put("tag", tag, text)
    verdict = render.verdict(judgements).lower()
    reason = "" if verdict == "passed" else "; `make gate` says why"
    seconds = time.monotonic() - started
    print(f"report: reports/report.html, {verdict}{reason}, {seconds:.1f} s")
