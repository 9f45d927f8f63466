"""What the campaign interrupts: the commands that write several files, beside results of all
models. Those that write one file (`write_durably`) are held by tests/storage/test_atomic_write.py.
"""

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from pipeline.cli import main
from pipeline.dvc.workspace import alone, prepare_workspace
from pipeline.runtime.command import run_guarded
from pipeline.stages import report
from pipeline.storage.figures import png
from pipeline.tracking import outbox
from pipeline.tracking.outbox import Outbox
from quatrain.registry import MODELS
from tests.campaign.lives import broken
from tests.campaign.works import Work, files_in, recorded_in, surroundings, watched_commit
from tests.pipeline.recorded_runs import arrived, client_of, expected, recorded
from tests.pipeline.scored_workspace import make_workspace
from tests.pipeline.small_checkout import git

COMMANDS = ["promote", "report", "preset", "sync"]
PRESET = "smoke"


def commands(root: Path) -> Iterator[Work]:
    """Yields the commands; each begins with older results of its own."""
    scored = make_scored(root / "scored")
    promote = partial(main, ["promote", *MODELS])
    for name, run, written in (
        ("promote", promote, "baselines"),
        ("report", run_report, "reports"),
    ):
        yield Work(name, scored, run, partial(results, written), (written,))
    checkout = make_checkout(scored, root / "checkout")
    yield Work("preset", checkout, run_preset, preset_of, ())
    outboxes = make_outboxes(root / "outboxes")
    yield Work("sync", outboxes, run_sync, delivered, (), full=6)


def results(written: str, root: Path) -> dict[str, Any]:
    return files_in(root, written) | recorded_in(root)


def make_scored(root: Path) -> Path:
    """Returns a folder whose models are better than their baselines, with older pages."""
    root.mkdir(parents=True)
    for model, space in make_workspace(root).items():
        space.train("b" * 64)
        space.score(more=1.0)
        plots = root / "reports" / model / "plots"
        plots.mkdir()
        (plots / "empty.png").write_bytes(png(Figure(figsize=(1, 1)), "0 empty"))
    for page in ("report.md", "report.html"):
        (root / "reports" / page).write_text("older")
    return root


def make_checkout(scored: Path, root: Path) -> Path:
    shutil.copytree(scored, root)
    (root / ".gitignore").write_text(".presets/\n/models/\n/.dvc/tmp\n")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "start")
    return root


def make_outboxes(root: Path) -> Path:
    """Returns a folder with the outboxes of two runs, and an empty store."""
    for number, run_key in ((1, "k1"), (2, "k2")):
        recorded(root / ".state" / "outbox" / f"train@allo-{number}.sqlite", run_key)
    client_of(store_of(root))._tracking_client.store.engine.dispose()
    return root


def store_of(root: Path) -> str:
    (root / ".mlflow").mkdir(exist_ok=True)
    return f"sqlite:///{root / '.mlflow' / 'mlflow.db'}"


def run_sync() -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outbox, "commit", watched_commit)
        return main(["sync"])


def run_report() -> int:
    with surroundings():
        return run_guarded("report", report.report)


def run_preset() -> int:
    def prepare() -> None:
        with alone(Path.cwd(), PRESET):
            prepare_workspace(Path.cwd(), PRESET)

    return run_guarded("repro", prepare)


def preset_of(root: Path) -> dict[str, Any]:
    """Returns the preset's copy of the checkout, which each run compares with the checkout."""
    files = files_in(root, f".presets/{PRESET}")
    copies = {name: data for name, data in files.items() if "/.state/" not in name}
    return {name: data.replace(bytes(root), b"") for name, data in copies.items()}


def delivered(root: Path) -> dict[str, Any]:
    """Returns what the store has of each outbox's run, which is each metric once."""
    content: dict[str, Any] = {}
    for path in sorted(root.glob(".state/outbox/*.sqlite")):
        part = Outbox(path)
        assert part.header is not None
        key = part.header.run_key
        content[key] = arrived(client_of(store_of(root)), key)
        if content[key] != expected(part):
            broken("lost", f"the store has not each metric of {key} once")
    return content
