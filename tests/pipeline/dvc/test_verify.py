"""Damage that DVC does not see is found, named, and can be mended as the line says."""

import os
import shutil
import stat
from contextlib import chdir
from pathlib import Path

import pytest

from pipeline.cli import main
from pipeline.dvc import verify
from tests.pipeline.fixture_types import Capture, Failure, Patch
from tests.pipeline.small_project import flip_bit

# Of dvc's libraries about one another.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

TOY = """
stages:
  collect:
    cmd: mkdir -p data/allo && echo walks > data/allo/dataset && echo manifest > data/allo/manifest
    outs: [data/allo]
  report:
    cmd: echo fine > report && echo {} > scores.json
    deps: [data/allo]
    outs: [report]
    metrics:
      - scores.json: {cache: false}
"""


@pytest.fixture(scope="module")
def created(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made") / "toy"
    (root / ".dvc").mkdir(parents=True)
    (root / ".dvc" / "config").write_text("[core]\n    analytics = false\n    no_scm = true\n")
    (root / "dvc.yaml").write_text(TOY)
    with chdir(root), verify.opened(root) as repo:
        repo.reproduce()
    return root


@pytest.fixture
def toy(created: Path, tmp_path: Path, monkeypatch: Patch) -> Path:
    """What `dvc repro` made, with its cache."""
    root = tmp_path / "toy"
    shutil.copytree(created, root)
    monkeypatch.chdir(root)
    return root


def object_of(root: Path, text: str) -> Path:
    """The cache object with this content."""
    (path,) = (path for path in root.glob(".dvc/cache/files/md5/*/*") if text in path.read_text())
    return path


def damage_silently(path: Path) -> None:
    """Turns a bit, and leaves time, size and mode as they were."""
    before = path.stat()
    path.chmod(0o644)
    flip_bit(path)
    path.chmod(stat.S_IMODE(before.st_mode))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def damage(capsys: Capture) -> list[str]:
    """What is told of damaged files."""
    capsys.readouterr()
    assert main(["verify"]) == 3
    printed = capsys.readouterr()
    assert printed.out == ""
    *lines, last = printed.err.splitlines()
    assert last.startswith(f"verify: {len(lines)} damaged; ")
    assert last.endswith(" outs read [exit 3]")
    return [line.removeprefix("verify: ") for line in lines]


def test_an_intact_checkout_is_read_whole(toy: Path, capsys: Capture):
    """Its objects are four files and a list: DVC keeps uncached outs, too. What DVC ignores or is
    writing is no part of it, and neither is an out that is not here, as in a fresh clone.
    """
    path = object_of(toy, "walks")
    path.with_name(f"{path.name}.tmp").write_text("half")
    (toy / ".dvcignore").write_text("*.pyc\n")
    (toy / "data" / "allo" / "stray.pyc").touch()
    everything = "all are what their names and dvc.lock say"
    assert main(["verify"]) == 0
    assert capsys.readouterr() == (f"verify: 5 cache objects and 3 outs read: {everything}\n", "")
    shutil.rmtree(toy / ".dvc" / "cache")
    shutil.rmtree(toy / "data")
    (toy / "report").unlink()
    assert main(["verify"]) == 0
    absent = "2 outs are not here (`dvc pull` or `make repro` brings them)"
    assert capsys.readouterr().out == (
        f"verify: 0 cache objects and 1 outs read: {everything}; {absent}\n"
    )


def test_a_damaged_object_is_found_though_dvc_trusts_it(toy: Path, capsys: Capture):
    damaged = object_of(toy, "walks")
    damage_silently(damaged)
    with verify.opened(toy) as repo:
        assert repo.status() == {}
    remedy = "remove it, then `dvc fetch` or `dvc repro`"
    name = damaged.relative_to(toy)
    assert damage(capsys) == [f"{name}: is not what its name says; {remedy}"]
    damaged.unlink()
    with verify.opened(toy) as repo:
        repo.reproduce()
    assert main(["verify"]) == 0
    assert damaged.read_text() == "walks\n"


def test_a_damaged_out_of_any_kind_is_named_and_can_be_restored(
    created: Path, toy: Path, capsys: Capture
):
    work = toy / ".presets" / "smoke"
    shutil.copytree(created, work, ignore=shutil.ignore_patterns("cache"))
    damage_silently(work / "report")
    damage_silently(toy / "data" / "allo" / "dataset")
    (toy / "data" / "allo" / "manifest").unlink()
    (toy / "data" / "allo" / "manifest").symlink_to("nowhere")
    (toy / "scores.json").write_text("[]\n")
    fault, mine = "is not what dvc.lock says", "or `dvc repro` if it was you who changed it"
    assert damage(capsys) == [
        f"data/allo: {fault}; remove it, then `dvc checkout data/allo`, {mine}",
        f"scores.json: {fault}; `git checkout scores.json` restores it, {mine}",
        f".presets/smoke/report: {fault}; remove it, then `dvc checkout report`, {mine}",
    ]
    shutil.rmtree(toy / "data" / "allo")
    with verify.opened(toy) as repo:
        repo.checkout(["data/allo"])
    assert len(damage(capsys)) == 2


def test_what_dvc_refuses_is_one_line(toy: Path, failure: Failure):
    (toy / "dvc.lock").write_text("{")
    assert failure(main, "verify", code=3) == (
        "verify: dvc cannot read toy: unable to read: 'dvc.lock', YAML file structure is "
        "corrupted; `git checkout` or `make repro` mends it"
    )
