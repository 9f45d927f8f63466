"""Damage that DVC does not see is found, named, and can be mended as the line says."""

import os
import shutil
import stat
from pathlib import Path

import pytest

from pipeline.commands import verify
from pipeline.dvc import repro
from tests.pipeline.small_project import flip_bit

Capture = pytest.CaptureFixture[str]
TOY = """
stages:
  collect:
    cmd: mkdir -p data/allo && echo walks > data/allo/dataset && echo manifest > data/allo/manifest
    outs: [data/allo]
  report:
    cmd: echo fine > report
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
    (root / "dvc.yaml").write_text(
        TOY.replace("echo fine > report", "echo fine > report && echo {} > scores.json")
    )
    assert repro.dvc(root, root, "repro", "--quiet") == 0
    return root


@pytest.fixture
def toy(created: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What `dvc repro` made, with its cache."""
    root = tmp_path / "toy"
    shutil.copytree(created, root)
    monkeypatch.chdir(root)
    return root


def object_of(root: Path, text: str) -> Path:
    """The cache object with this content."""
    result = [path for path in root.glob(".dvc/cache/files/md5/*/*") if text in path.read_text()]
    (path,) = result
    return path


def damage_silently(path: Path) -> None:
    """Turn a bit, and leave time, size and mode as they were."""
    before = path.stat()
    path.chmod(0o644)
    flip_bit(path)
    path.chmod(stat.S_IMODE(before.st_mode))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.usefixtures("toy")
def test_an_intact_checkout_is_read_whole(capsys: Capture):
    """Five objects (four files and a list; DVC keeps uncached outs too) and four files of outs."""
    assert verify.main([]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("verify: 9 files with ")
    assert printed.out.endswith(
        " bytes read: every cache object is what its name says, every out what dvc.lock says\n"
    )
    assert printed.err == ""


def test_a_damaged_object_is_found_though_dvc_trusts_it(toy: Path, capsys: Capture):
    damaged = object_of(toy, "walks")
    damage_silently(damaged)
    assert repro.dvc(toy, toy, "status", "--quiet") == 0
    assert verify.main([]) == 3
    printed = capsys.readouterr()
    lines = printed.err.splitlines()
    assert lines[0] == (
        f"verify: {damaged.relative_to(toy)}: is not what its name says; remove it, then `dvc "
        f"fetch` or `dvc repro`"
    )
    assert lines[1].startswith("verify: 1 damaged; 9 files with ")
    assert lines[1].endswith(" bytes read [exit 3]")
    assert printed.out == ""
    damaged.unlink()
    assert repro.dvc(toy, toy, "repro", "--quiet") == 0
    assert verify.main([]) == 0
    assert damaged.read_text() == "walks\n"


def test_a_damaged_list_of_files_is_found(toy: Path, capsys: Capture):
    damage_silently(object_of(toy, "relpath"))
    assert verify.main([]) == 3
    assert ".dir: is not what its name says" in capsys.readouterr().err


def test_a_damaged_out_is_found_named_and_restored(toy: Path, capsys: Capture):
    damage_silently(toy / "data" / "allo" / "dataset")
    assert verify.main([]) == 3
    assert capsys.readouterr().err.splitlines()[0] == (
        "verify: data/allo: is not what dvc.lock says (dataset); "
        "remove it, then `dvc checkout data/allo`, or `dvc repro` if it was you who changed it"
    )
    shutil.rmtree(toy / "data" / "allo")
    assert repro.dvc(toy, toy, "checkout", "--quiet", "data/allo") == 0
    assert verify.main([]) == 0


def test_files_too_many_or_too_few_in_a_folder_are_named(toy: Path, capsys: Capture):
    (toy / "data" / "allo" / "manifest").unlink()
    (toy / "data" / "allo" / "stray").write_text("of somebody\n")
    assert verify.main([]) == 3
    assert (
        "verify: data/allo: is not what dvc.lock says (manifest, stray); "
        in capsys.readouterr().err
    )


def test_a_single_file_and_one_outside_the_cache_are_outs_too(toy: Path, capsys: Capture):
    (toy / "report").write_text("fake\n")
    (toy / "scores.json").write_text("[]\n")
    assert verify.main([]) == 3
    printed = capsys.readouterr().err
    assert "verify: report: is not what dvc.lock says; " in printed
    assert (
        "verify: scores.json: is not what dvc.lock says; `git checkout scores.json` restores "
        "it, or `dvc repro`" in printed
    )
    assert "verify: 2 damaged; " in printed


def test_without_the_list_a_folder_is_judged_all_the_same(toy: Path, capsys: Capture):
    shutil.rmtree(toy / ".dvc" / "cache")
    assert verify.main([]) == 0
    damage_silently(toy / "data" / "allo" / "dataset")
    assert verify.main([]) == 3
    assert "verify: data/allo: is not what dvc.lock says; remove it" in capsys.readouterr().err


def test_outs_that_are_not_here_are_no_damage(toy: Path, capsys: Capture):
    """As in a fresh clone."""
    shutil.rmtree(toy / ".dvc" / "cache")
    shutil.rmtree(toy / "data")
    (toy / "report").unlink()
    assert verify.main([]) == 0
    assert capsys.readouterr().out.endswith(
        "; 2 outs are not here (`dvc pull` or `make repro` brings them)\n"
    )


def test_presets_are_read_too(toy: Path, tmp_path: Path, capsys: Capture):
    work = toy / ".presets" / "smoke"
    shutil.copytree(toy, tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / ".dvc" / "cache")
    shutil.copytree(tmp_path / "copy", work)
    damage_silently(work / "report")
    assert verify.main([]) == 3
    assert "verify: .presets/smoke/report: is not what dvc.lock says; " in capsys.readouterr().err


def test_where_nothing_was_made_there_is_nothing_to_read(toy: Path, capsys: Capture):
    (toy / "dvc.lock").unlink()
    shutil.rmtree(toy / ".dvc" / "cache")
    assert verify.main([]) == 0
    assert capsys.readouterr().out.startswith("verify: 0 files with 0 bytes read")


def test_dvcs_temporary_files_are_no_objects(toy: Path):
    (object_of(toy, "walks").parent / "tmp.1234").write_text("half")
    assert verify.main([]) == 0


def test_a_lock_that_dvc_refuses_is_one_line(toy: Path, capsys: Capture):
    (toy / "dvc.lock").write_text("{")
    assert verify.main([]) == 3
    printed = capsys.readouterr().err
    assert printed == (
        "verify: dvc cannot read toy: unable to read: 'dvc.lock', YAML file structure is "
        "corrupted; "
        "`git checkout` or `make repro` mends it [exit 3]\n"
    )


def test_outside_a_checkout_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
):
    monkeypatch.chdir(tmp_path)
    assert verify.main([]) == 2
    assert capsys.readouterr().err == (
        "verify: this is no folder of DVC's; run from the repository root [exit 2]\n"
    )
