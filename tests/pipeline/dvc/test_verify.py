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
    """Turn a bit, and leave time, size and mode as they were."""
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
    """Its objects are four files and a list: DVC keeps uncached outs, too."""
    path = object_of(toy, "walks")
    path.with_name(f"{path.name}.tmp").write_text("half")
    assert main(["verify"]) == 0
    printed = capsys.readouterr()
    assert printed.out == (
        "verify: 5 cache objects and 3 outs read: all are what their names and dvc.lock say\n"
    )
    assert printed.err == ""


def test_a_damaged_object_is_found_though_dvc_trusts_it(toy: Path, capsys: Capture):
    damaged = object_of(toy, "walks")
    damage_silently(damaged)
    with verify.opened(toy) as repo:
        assert repo.status() == {}
    name = damaged.relative_to(toy)
    remedy = "remove it, then `dvc fetch` or `dvc repro`"
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
    (toy / "data" / "allo" / "stray").write_text("of somebody\n")
    (toy / "scores.json").write_text("[]\n")
    folder, uncached, preset = damage(capsys)
    mine = ", or `dvc repro` if it was you who changed it"
    assert folder == (
        "data/allo: is not what dvc.lock says (dataset, manifest, stray); "
        f"remove it, then `dvc checkout data/allo`{mine}"
    )
    restored = "`git checkout scores.json` restores it"
    assert uncached == f"scores.json: is not what dvc.lock says; {restored}{mine}"
    assert preset.startswith(".presets/smoke/report: is not what dvc.lock says; remove it, ")

    shutil.rmtree(toy / "data" / "allo")
    with verify.opened(toy) as repo:
        repo.checkout(["data/allo"])
    assert len(damage(capsys)) == 2


def test_a_link_to_nothing_is_damage_and_an_ignored_file_is_none(toy: Path, capsys: Capture):
    (toy / ".dvcignore").write_text("*.pyc\n")
    (toy / "data" / "allo" / "stray.pyc").touch()
    assert main(["verify"]) == 0
    for path in (toy / "report", toy / "data" / "allo" / "dataset"):
        path.unlink()
        path.symlink_to("nowhere")
    folder, file = damage(capsys)
    assert folder.startswith("data/allo: data/allo/dataset is a link that leads nowhere; remove it")
    assert file.startswith("report: report is a link that leads nowhere; remove it, then `dvc ")


def test_a_damaged_or_absent_list_of_files_hides_no_damage(toy: Path, capsys: Capture):
    damage_silently(toy / "data" / "allo" / "dataset")
    damage_silently(object_of(toy, "relpath"))
    listing, folder = damage(capsys)
    assert ".dir: is not what its name says" in listing
    assert folder.startswith("data/allo: is not what dvc.lock says")
    shutil.rmtree(toy / ".dvc" / "cache")
    (folder,) = damage(capsys)
    assert folder.startswith("data/allo: is not what dvc.lock says; remove it")


def test_outs_that_are_not_here_are_no_damage(toy: Path, capsys: Capture):
    """As in a fresh clone, and in a checkout where nothing was made."""
    shutil.rmtree(toy / ".dvc" / "cache")
    shutil.rmtree(toy / "data")
    (toy / "report").unlink()
    assert main(["verify"]) == 0
    rest = "; 2 outs are not here (`dvc pull` or `make repro` brings them)\n"
    assert capsys.readouterr().out.endswith(rest)
    (toy / "dvc.lock").unlink()
    assert main(["verify"]) == 0
    assert capsys.readouterr().out.startswith("verify: 0 cache objects and 0 outs read")


def test_what_dvc_refuses_is_one_line(toy: Path, monkeypatch: Patch, failure: Failure):
    (toy / "dvc.lock").write_text("{")
    assert failure(main, "verify", code=3) == (
        "verify: dvc cannot read toy: unable to read: 'dvc.lock', YAML file structure is "
        "corrupted; `git checkout` or `make repro` mends it"
    )
    monkeypatch.chdir(toy.parent)
    why = "verify: this is no folder of DVC's; run from the repository root"
    assert failure(main, "verify", code=2) == why
