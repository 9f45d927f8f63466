"""Whatever lies where a stage or a command expects a file or a folder is named in one line, and
nothing is lost.
"""

import errno
import itertools
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import quatrain
from pipeline.commands import gate, grids, promote, results
from pipeline.dvc import repro
from pipeline.runtime import compile_cache
from pipeline.runtime.command import run_guarded
from pipeline.storage.params_file import read_params
from pipeline.studies.grids import PAPER
from quatrain.errors import DataError, DiskError
from quatrain.registry import MODELS
from quatrain.storage.disk_errors import MACHINE
from tests.campaign.obstacles import put
from tests.campaign.promises import (
    accepted,
    broken,
    content_of,
    refused,
    see,
    unchanged,
)
from tests.campaign.stages import see_stage
from tests.conftest import ROOT
from tests.pipeline.fixture_types import Capture, Patch
from tests.pipeline.scored_workspace import Workspace
from tests.pipeline.small_project import Project

# What cannot be a folder, what cannot be replaced by a file, what cannot be read as one.
NO_FOLDER = ("file", "link to nothing", "loop", "pipe", "socket", "device")
NO_OUT = ("folder",)
REPLACED = ("file", "link to nothing", "loop", "pipe", "socket", "device", "not UTF-8")
NO_LOCK = ("folder", "link to nothing", "loop", "pipe", "socket", "device")
NO_DATA = (
    "file",
    "folder",
    "link to nothing",
    "loop",
    "pipe",
    "socket",
    "device",
    "not UTF-8",
    "deep",
    "empty",
)

# Stages.

STAGES: dict[tuple[str, tuple[str, ...]], tuple[str, ...]] = {
    ("collect", NO_FOLDER): (".state", ".state/locks", ".state/locks/collect@M", "data", "data/M"),
    ("collect", NO_LOCK): (".state/locks/collect@M/lock",),
    ("collect", NO_OUT): ("data/M/dataset.safetensors", "data/M/manifest.json"),
    ("train", NO_FOLDER): (
        ".state/train@M",
        ".state/journal",
        "JOURNAL",
        "JOURNAL/writer",
        "models",
        "models/M",
        "data",
        "data/M",
    ),
    ("train", NO_LOCK): ("JOURNAL/writer/lock",),
    ("train", NO_OUT): ("models/M/weights.safetensors", "models/M/manifest.json"),
    ("train", NO_DATA): ("data/M/dataset.safetensors", "data/M/manifest.json"),
    ("evaluate", NO_FOLDER): ("reports", "reports/M", "reports/M/plots", "models", "models/M"),
    ("evaluate", NO_OUT): (
        "reports/M/scores.json",
        "reports/M/metrics.json",
        "reports/M/verdict.json",
        "reports/M/plots/empty.png",
    ),
    ("evaluate", NO_DATA): (
        "models/M/manifest.json",
        "models/M/weights.safetensors",
        "models/M/history.csv",
        "data/M/dataset.safetensors",
    ),
}
# Whatever is there gives way to what the stage writes.
WRITTEN = {
    "collect": ("data/M/dataset.safetensors", "data/M/manifest.json"),
    "train": ("models/M/weights.safetensors", "models/M/manifest.json"),
    "evaluate": ("reports/M/scores.json", "reports/M/verdict.json", "reports/M/plots/empty.png"),
}


class StageRow(NamedTuple):
    model: str
    verb: str
    path: str
    thing: str


def stage_rows(*cells: tuple[str, str, str]) -> list[Any]:
    """A model for each (verb, path, thing), one after the other."""
    models = itertools.cycle(MODELS)
    rows = [StageRow(next(models), *cell) for cell in cells]
    rows.sort(key=lambda row: list(MODELS).index(row.model))
    return [pytest.param(row, id="-".join(row)) for row in rows]


REFUSED = stage_rows(
    *(
        (verb, path, thing)
        for (verb, things), paths in STAGES.items()
        for path in paths
        for thing in things
    )
)
ACCEPTED = stage_rows(
    *(
        (verb, path, thing)
        for verb, paths in WRITTEN.items()
        for path in paths
        for thing in REPLACED
    )
)


def place_of(project: Project, path: str) -> Path:
    key = next((project.root / ".state" / project.name("train")).iterdir()).name
    journal = f".state/journal/{project.name('train')}-{key[:16]}"
    path = path.replace("JOURNAL", journal).replace("@M", f"@{project.model}")
    return project.root / path.replace("/M", f"/{project.model}")


def kept(root: Path) -> dict[str, str]:
    """What no failed stage may change: all but locks and journals."""
    ours = (".state/locks/", ".state/journal/")
    return {name: value for name, value in content_of(root).items() if not name.startswith(ours)}


@pytest.mark.parametrize("row", REFUSED)
def test_a_stage_names_what_is_in_its_way(
    row: StageRow, finished: Callable[[str], Project], capsys: Capture
):
    project = finished(row.model)
    path = place_of(project, row.path)
    put(row.thing, path)
    before = kept(project.root)
    outcome = see_stage(row.verb, row.model, capsys)
    refused(outcome, 3, str(path.relative_to(project.root)))
    unchanged(before, kept(project.root))


@pytest.mark.parametrize("row", ACCEPTED)
def test_a_stage_replaces_what_lies_where_it_writes_and_nothing_behind_it(
    row: StageRow, finished: Callable[[str], Project], capsys: Capture
):
    project = finished(row.model)
    right = project.hashes()
    put(row.thing, place_of(project, row.path))
    accepted(see_stage(row.verb, row.model, capsys))
    if project.hashes() != right:
        broken("lost", "the stage wrote other bytes")


@pytest.mark.parametrize("thing", NO_LOCK)
def test_a_cache_of_programs_that_cannot_be_locked_costs_a_warning(
    thing: str, params_folder: Path, monkeypatch: Patch
):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    params = read_params(params_folder)
    folder = params_folder / compile_cache.FOLDER / compile_cache.folder_name(params)
    put(thing, folder / compile_cache.LOCK)
    with pytest.warns(UserWarning, match="compiled programs are not kept"):
        compile_cache.enable(params_folder, params)


# Failures of the machine.

NUMBERS = (
    *("EACCES", "EPERM", "EROFS", "ENOSPC", "EDQUOT", "EFBIG", "EIO", "EMFILE", "ENFILE", "ENOMEM"),
    *("ESTALE", "EBUSY", "ETXTBSY", "ENOLCK", "ENOTDIR", "EISDIR", "ELOOP", "ENAMETOOLONG"),
    *("EINVAL", "EBADF", "EEXIST", "ENOTEMPTY", "ENOENT", "ENXIO", "ENODEV", "EXDEV"),
)


@pytest.mark.parametrize("is_write", [False, True], ids=["read", "write"])
@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("verb", ["collect", "train", "evaluate"])
def test_each_error_of_the_disk_is_one_line(
    verb: str,
    name: str,
    is_write: bool,
    finished: Callable[[str], Project],
    monkeypatch: Patch,
    capsys: Capture,
):
    """As a user without rights, or a broken disk, would see it: root may read everything."""
    number = getattr(errno, name)
    project = finished("allo")
    target = ".partial" if is_write else "manifest.json"
    open_before = os.open

    def fails(path: Any, *arguments: Any, **named: Any) -> int:
        if str(path).endswith(target):
            raise OSError(number, os.strerror(number), str(path))
        return open_before(path, *arguments, **named)

    if not is_write and verb == "collect":
        target = "lock"
    monkeypatch.setattr(os, "open", fails)
    before = kept(project.root)
    outcome = see_stage(verb, "allo", capsys)
    refused(
        outcome, 5 if number in MACHINE else 3, "(?i)lock|manifest|partial|json|journal|data|png"
    )
    unchanged(before, kept(project.root))


# Commands.

READ = ("folder", "loop", "pipe", "socket", "device", "not UTF-8", "deep", "empty")
# A link that leads nowhere or in circles is as no file there: a verdict is missing, exit 4.
READ_BY_GATE = tuple(thing for thing in READ if thing != "loop")
OF_GATE = ("baselines/M.json", "reports/M/scores.json", "reports/M/verdict.json")
GATE_ROWS = stage_rows(*(("gate", path, thing) for path in OF_GATE for thing in READ_BY_GATE))
PROMOTE_ROWS = stage_rows(*(("promote", path, thing) for path in OF_GATE for thing in READ_BY_GATE))


@pytest.fixture
def workspace(scored: Path, tmp_path: Path, monkeypatch: Patch) -> Path:
    """All models trained and judged, as the current folder."""
    root = tmp_path / "work"
    shutil.copytree(scored, root)
    monkeypatch.chdir(root)
    return root


@pytest.mark.parametrize("row", [*GATE_ROWS, *PROMOTE_ROWS])
def test_gate_and_promote_name_what_they_cannot_read(
    row: StageRow, workspace: Path, capsys: Capture
):
    path = Workspace(workspace, row.model).root / row.path.replace("M", row.model)
    put(row.thing, path)
    before = content_of(workspace)
    command = {"gate": gate.main, "promote": promote.main}[row.verb]
    outcome = see(lambda: command([row.model]), capsys)
    if outcome.code == 4:  # the digest in the verdict is compared first
        refused(outcome, 4, "the scores changed after the verdict; run `make repro`")
    else:
        refused(outcome, 3, f"{path.parent.name}/{path.name}")
    unchanged(before, content_of(workspace))


PAGES = [
    (command, argument, page, thing)
    for command, argument, page in (
        (gate, "--page", "README.md"),
        (results, "--page", "docs/results.md"),
    )
    for thing in (*READ[:6], "link to nothing")
]


@pytest.mark.parametrize(("command", "argument", "page", "thing"), PAGES)
def test_a_page_that_is_no_text_is_named(
    command: Any, argument: str, page: str, thing: str, workspace: Path, capsys: Capture
):
    put(thing, workspace / page)
    refused(see(lambda: command.main([argument]), capsys), 3, page)


DVC_ROWS = [
    (path, thing)
    for paths, things in (
        (
            (".dvc", ".dvc/tmp", ".dvc/cache", ".state", ".state/journal", "data", "models"),
            NO_FOLDER,
        ),
        (("dvc.lock", "dvc.yaml", ".dvc/config", ".dvc/tmp/rwlock", ".dvc/tmp/lock"), NO_LOCK),
        ((".dvc/config", ".dvc/config.local"), ("file", "not UTF-8", "deep")),
        (("inputs/mine.txt", "baselines/mine.json"), NO_LOCK[1:]),
        (("data/allo/mine", "models/iqn/mine", "reports/allo/plots/mine.png"), NO_LOCK[2:]),
        (("inputs/\udcff.txt", "data/allo/\udcfe", "models/allo/\udcfd.csv"), ("file", "folder")),
        ((".dvc/cache/files/md5/00/" + "0" * 30,), ("pipe", "socket", "loop")),
    )
    for path in paths
    for thing in things
]


@pytest.mark.parametrize(("path", "thing"), DVC_ROWS)
def test_repro_names_what_dvc_would_wait_for_or_fail_on(
    path: str, thing: str, workspace: Path, monkeypatch: Patch, capsys: Capture
):
    monkeypatch.setattr(repro, "dvc", lambda *_: broken("silent", "dvc was started"))
    put(thing, workspace / path)
    before = content_of(workspace)
    work = lambda: run_guarded("repro", lambda: repro.run(workspace, "default", ["allo"]))  # noqa: E731
    refused(see(work, capsys), 3, path.encode("unicode_escape").decode().replace("\\", "."))
    unchanged(before, content_of(workspace))


PRESET_ROWS = [
    (path, thing) for path, thing in itertools.product((".presets", ".presets/smoke"), NO_FOLDER)
] + [
    (f".presets/smoke/{name}", "folder")
    for name in ("params.yaml", "src/a.py", ".dvc/config.local", "docs/d.md")
]


@pytest.mark.parametrize(("path", "thing"), PRESET_ROWS)
def test_a_preset_names_what_is_in_the_way_of_its_copy(
    path: str, thing: str, checkout: Path, monkeypatch: Patch, capsys: Capture
):
    monkeypatch.setattr(repro, "dvc", lambda *_: broken("silent", "dvc was started"))
    put(thing, checkout / path)
    work = lambda: run_guarded("repro", lambda: repro.run(checkout, "smoke", ["allo"]))  # noqa: E731
    before = content_of(checkout / path)
    refused(see(work, capsys), 3, path)
    unchanged(before, content_of(checkout / path))


@pytest.mark.parametrize("name", ["params.yaml", "src/a.py"])
def test_a_preset_never_writes_through_a_link(
    name: str, checkout: Path, monkeypatch: Patch, capsys: Capture
):
    monkeypatch.setattr(repro, "dvc", lambda *_: 1)
    (checkout / "mine").write_text("a user's own\n")
    copy = checkout / ".presets" / "smoke" / name
    copy.parent.mkdir(parents=True)
    copy.symlink_to(checkout / "mine")
    see(lambda: run_guarded("repro", lambda: repro.run(checkout, "smoke", ["allo"])), capsys)
    if (checkout / "mine").read_text() != "a user's own\n" or copy.is_symlink():
        broken("lost", "written through a link")


@pytest.mark.parametrize("thing", ["file", "folder", "pipe", "loop", "link to nothing", "empty"])
def test_grids_names_a_folder_that_holds_no_map(thing: str, workspace: Path, capsys: Capture):
    put(thing, workspace / "maps" / "m.txt" if thing != "file" else workspace / "maps")
    (workspace / PAPER.parent).mkdir(parents=True)
    shutil.copy(ROOT / PAPER, workspace / PAPER)
    refused(see(lambda: grids.main(["maps", "--preset", "smoke"]), capsys), 2, "maps?")


# The API.

PATHS = ("\0", "n" * 300, "n/" * 3000, "\udcff", "\ud800")


@pytest.fixture
def result(all_stages_of: Callable[[str], Project], monkeypatch: Patch) -> Any:
    project = all_stages_of("allo")
    monkeypatch.chdir(project.root)
    loaded = quatrain.load(project.weights)
    loaded.scores = {"cosine_mean": 0.5}
    return loaded


def fails_in_one_line(work: Callable[[], object], capsys: Capture) -> None:
    """The package raises an error of its own, of one line."""

    def reported() -> int:
        with suppress(DataError, DiskError, quatrain.ConfigError):
            work()
            return 0
        return 3

    if see(reported, capsys).code != 3:
        broken("silent", "accepted")


@pytest.mark.parametrize("thing", [*NO_FOLDER, "not UTF-8"])
@pytest.mark.parametrize("verb", ["load", "save"])
def test_the_api_names_what_is_no_folder(
    verb: str, thing: str, result: Any, tmp_path: Path, capsys: Capture
):
    put(thing, tmp_path / "mine")
    work = {"load": quatrain.load, "save": result.save}[verb]
    fails_in_one_line(lambda: work(tmp_path / "mine"), capsys)


@pytest.mark.parametrize("path", PATHS, ids=ascii)
@pytest.mark.parametrize("verb", ["load", "save", "layout"])
def test_the_api_names_paths_that_no_disk_has(
    verb: str, path: str, result: Any, tmp_path: Path, monkeypatch: Patch, capsys: Capture
):
    monkeypatch.chdir(tmp_path)
    if (verb, path) == ("save", "\udcff"):
        assert result.save(path).exists()
        return
    work = {
        "load": quatrain.load,
        "save": result.save,
        "layout": lambda name: quatrain.config("allo", env={"layout": f"{name}.txt"}),
    }[verb]
    fails_in_one_line(lambda: work(path), capsys)


# The console.


@pytest.mark.parametrize("text", ["±", "\udcff", "\x1b[2J", "é" * 5000])
def test_no_text_ends_a_command(text: str, capsys: Capture):
    outcome = see(lambda: run_guarded("x", lambda: print(text)), capsys)
    accepted(outcome)
