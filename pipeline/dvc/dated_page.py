"""reports/report.html, and the run that made it -> reports/index.html, which also says when, where
and from which commit, and links the runs of this store. DVC hashes the former: that knows no clock.
"""

import hashlib
import html
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from pipeline.judging.machine import describe, machine_of
from pipeline.storage import artifacts
from pipeline.storage.params_file import read_params
from pipeline.tracking.run import code_tags
from pipeline.tracking.runs_page import EXPERIMENTS_PAGE, runs_page
from quatrain.storage import folders
from quatrain.storage.atomic_write import write_durably

PAGE = "index.html"


def write_dated_page(
    root: Path, work: Path, models: Sequence[str], seconds: float | None = None
) -> Path:
    """Writes the page, unless it is there for this very report; returns what to open.

    root: the checkout. work: the folder of params, models and reports. seconds: the time of the
    command that made the report, if that is known.
    """
    report = work / "reports" / "report.html"
    page = report.with_name(PAGE)
    if not report.exists():
        return report.with_suffix(".md")
    with folders.open_file(report) as file:
        content = file.read()
    mark = f"<!-- {hashlib.sha256(content).hexdigest()} -->\n".encode()
    if not (page.is_file() and page.read_bytes().startswith(mark)):
        linked = content.replace(EXPERIMENTS_PAGE.encode(), runs_page(root).encode())
        before, heading, after = linked.partition(b"</h1>\n")
        facts = html.escape(" · ".join(describe_run(root, work, models, seconds)))
        head = f'<p class="made">{facts}</p>\n'.encode()
        write_durably(page, mark + before + heading + head + after)
    return page


def describe_run(root: Path, work: Path, models: Sequence[str], seconds: float | None) -> list[str]:
    """Returns commit, date, seed, machine and time of the run that has just ended."""
    tags = code_tags(root)
    changed = ", with changes that are not committed" if tags["git.dirty"] == "true" else ""
    settings = [artifacts.load(work / "models" / model).info["settings"] for model in models]
    machines = dict.fromkeys(describe(machine_of(each)) for each in settings)
    facts = [
        f"Commit {tags['git.commit'][:12]}{changed}",
        datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        f"seed {read_params(work).seed}",
        *machines,
    ]
    return facts if seconds is None else [*facts, f"made in {duration(seconds)}"]


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
