"""judgements, plots and speed of all models -> reports/report.md and reports/report.html."""

from pathlib import Path

from pipeline.judging import render
from pipeline.reporting import stills
from pipeline.reporting.page import as_html
from pipeline.reporting.sections import page, read_all, title_of
from pipeline.runtime import console
from pipeline.storage.params_file import read_params
from pipeline.tracking.origin import changes
from pipeline.tracking.run import Run
from quatrain.storage import folders
from quatrain.storage.atomic_write import write_exactly, write_together


def report() -> None:
    """Writes the page as Markdown for pull requests, and as one HTML file for a browser; the run of
    the pipeline gets it with the verdict.
    """
    root = Path.cwd()
    reports = root / "reports"
    params = read_params(root)
    results = read_all(root, params)
    judgements = [result.judgement for result in results]
    markdown = page(results)
    html = as_html(page(results, whole=True), title_of(judgements), reports)
    shown = {each.judgement.model: next(iter(each.plots)) for each in results if each.plots}
    write_exactly(reports / stills.FOLDER, stills.stills_of(reports, shown))
    write_together(reports, {"report.md": markdown.encode(), "report.html": html.encode()})
    digest = folders.file_digest(reports / "report.md")
    with Run.of_pipeline(root, params, digest) as run:
        run.metrics(
            (f"{judgement.model}/{line.metric}", 0, line.value)
            for judgement in judgements
            for line in judgement.lines
            if line.value is not None
        )
        run.artifact(reports / "report.html", "report")
        scores = f"{render.summary(judgements)}\n\n{render.markdown(judgements)}"
        run.describe(f"{scores}\n\n{changes(root, params.preset, None)}")
    if not all(judgement.passed for judgement in judgements):
        console.info("report: not every score holds its baseline; `make gate` says why")
