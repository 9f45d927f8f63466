"""A trial's archive in the storage is whole or absent, and nothing in it can do harm."""

import io
import os
import shutil
import tarfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.storage.checkpoints import Checkpoints
from pipeline.tracking.outbox import Outbox
from pipeline.trials import node
from pipeline.trials import storage as storages
from pipeline.trials.storage import Storage, StorageFailed, open_storage, restore, save
from pipeline.trials.trial import OUTCOME
from tests.pipeline.fixture_types import Patch
from tests.pipeline.recorded_runs import header

RUN = Path(".state/train@allo/run-key")
KEPT = ("models/allo/manifest.json", "reports/allo/a/b.png", "stages.log", "usage.json")


def make_trial(folder: Path, *steps: int) -> Path:
    """What a trial leaves that has saved checkpoints at these steps."""
    checkpoints = Checkpoints(folder / RUN)
    for step in steps:
        checkpoints.save(step, {"kernel": np.full((40, 40), step, np.float32)})
    left_out = ("dataset/data/allo/x", "inputs/allo/map.txt", "models/allo/w.safetensors.partial")
    for name in (*KEPT, *left_out, "params.yaml", ".state/locks/train@allo/lock"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    Outbox(folder / ".state/outbox/train@allo-1.sqlite").begin(header("k1"))
    return folder


def files(folder: Path) -> dict[str, bytes]:
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def step_of(folder: Path) -> int | None:
    latest = Checkpoints(folder / RUN).latest()
    if latest is not None:
        expected = np.full((40, 40), latest.step, np.float32)
        np.testing.assert_array_equal(latest.arrays["kernel"], expected)
    return None if latest is None else latest.step


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(str(tmp_path / "shared"))


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "target").mkdir()
    return tmp_path / "target"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_trial(tmp_path / "source", 100, 200, 300)


def stored(storage: Storage) -> list[str]:
    return [path.name for path in Path(storage.path).iterdir()]


def test_a_trial_comes_back_with_checkpoints_and_outboxes(
    storage: Storage, source: Path, target: Path
):
    assert stored(storage) == []
    restore(storage, "k", target)
    assert files(target) == {}
    save(storage, "k", source)
    restore(storage, "k", target)
    assert files(target).items() <= files(source).items()
    assert {name for name in files(target) if not name.startswith(str(RUN))} == {
        *KEPT,
        ".state/outbox/train@allo-1.sqlite",
    }
    assert step_of(target) == 300


def test_a_trial_that_has_ended_is_not_replaced_by_a_second_attempt(
    storage: Storage, source: Path, target: Path, tmp_path: Path
):
    save(storage, "k", source)
    (source / OUTCOME).write_text("the outcome")
    save(storage, "k", source)
    assert stored(storage) == ["k-ended.tar"]
    save(storage, "k", make_trial(tmp_path / "second", 100))
    restore(storage, "k", target)
    assert (target / OUTCOME).read_text() == "the outcome"
    with tarfile.open(Path(storage.path) / "k-ended.tar") as archive:
        assert archive.getnames()[-1] == OUTCOME


def test_each_new_checkpoint_is_stored_and_what_there_is_at_the_end(
    storage: Storage, tmp_path: Path, monkeypatch: Patch
):
    saved: list[int | None] = []
    monkeypatch.setattr(node, "save", lambda *place: saved.append(step_of(place[-1])))
    folder = make_trial(tmp_path / "source", 100)
    with node.Archive(storage, "k", folder) as archive:
        assert not archive.is_stopped()
        for step in (200, 300):
            Checkpoints(folder / RUN).save(step, {"kernel": np.full((40, 40), step, np.float32)})
            assert not archive.is_stopped()
            assert not archive.is_stopped()
        archive.stop()
        assert archive.is_stopped()
    assert saved == [200, 300, 300]


def test_a_slot_that_is_replaced_meanwhile_is_left_out(
    storage: Storage, source: Path, target: Path, monkeypatch: Patch
):
    kept = list(storages._kept(source))
    kept[0].unlink()
    monkeypatch.setattr(storages, "_kept", lambda _: kept)
    save(storage, "k", source)
    restore(storage, "k", target)
    assert step_of(target) is not None


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.5, 0.7, 0.9])
def test_of_a_truncated_archive_nothing_torn_is_trusted(
    share: float, storage: Storage, source: Path, target: Path
):
    save(storage, "k", source)
    archive = Path(storage.path) / "k.tar"
    os.truncate(archive, int(share * archive.stat().st_size))
    restore(storage, "k", target)
    assert (step_of(target) is None) == (share < 0.3)


def entry(name: str, **values: Any) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for key, value in values.items():
        setattr(info, key, value)
    return info


@pytest.mark.parametrize(
    "bad",
    [
        entry("../outside.txt", size=4),
        entry("models/../../outside.txt", size=4),
        entry("/outside.txt", size=4),
        entry("models/outside.txt", type=tarfile.SYMTYPE, linkname="../../outside.txt"),
        entry("models/outside.txt", type=tarfile.LNKTYPE, linkname="../outside.txt"),
        entry("outside.txt", type=tarfile.FIFOTYPE),
    ],
    ids=["parent", "hidden parent", "absolute", "symbolic link", "hard link", "pipe"],
)
def test_an_archive_writes_nothing_outside_its_folder(
    bad: tarfile.TarInfo, storage: Storage, target: Path, tmp_path: Path
):
    with tarfile.open(Path(storage.path) / "k.tar", "w") as archive:
        archive.addfile(bad, io.BytesIO(b"evil"))
    before = {path for path in tmp_path.rglob("*") if not path.is_relative_to(target)}
    restore(storage, "k", target)
    assert {path for path in tmp_path.rglob("*") if not path.is_relative_to(target)} == before
    assert not Path("/outside.txt").exists()
    assert not [path for path in target.rglob("*") if path.is_symlink() or path.is_fifo()]


# A storage that fails.


def fill_up(source: Any, stream: Any) -> None:
    stream.write(source.read(700))
    raise OSError(28, "No space left on device")


def test_a_full_storage_is_one_line_and_keeps_the_archive_before(
    storage: Storage, source: Path, monkeypatch: Patch
):
    save(storage, "k", source)
    before = files(Path(storage.path))
    monkeypatch.setattr(shutil, "copyfileobj", fill_up)
    with pytest.raises(StorageFailed) as caught:
        save(storage, "k", make_trial(source, 400))
    assert caught.value.exit_code == 5
    assert str(caught.value) == (
        f"storage {storage.uri}: [Errno 28] No space left on device; "
        "mend it, then the same command continues"
    )
    assert files(Path(storage.path)) == before
    assert [path for path in source.iterdir() if path.name.startswith("tmp")] == []


@pytest.mark.parametrize(
    ("uri", "line"),
    [
        ("FILE", "mend it, then the same command continues"),
        ("ftp://host/folder", "Unrecognized filesystem type"),
        ("s3:///", "mend it"),
        ("s3://KEY:hidden@b/f", "give them by AWS_ACCESS_KEY_ID"),
        ("s3://b/f?region=x&secret_key=hidden", "give them by AWS_ACCESS_KEY_ID"),
    ],
)
def test_a_storage_that_cannot_be_used_is_refused(uri: str, line: str, tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageFailed, match=r"^storage[^\n]*$") as caught:
        open_storage(uri.replace("FILE", str(tmp_path / "file")))
    assert line in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_a_storage_that_never_answers_is_given_up(tmp_path: Path, monkeypatch: Patch):
    monkeypatch.setattr(storages, "OPENING_SECONDS", 0.1)
    monkeypatch.setattr(storages, "write", lambda *_: time.sleep(2))
    with pytest.raises(StorageFailed, match=r"opening: no complete answer within 0.1 s"):
        open_storage(str(tmp_path))


def test_a_storage_that_went_away_is_one_line(storage: Storage, source: Path, target: Path):
    away = Path(storage.path)
    away.rmdir()
    away.write_text("")
    for broken in (lambda: save(storage, "k", source), lambda: restore(storage, "k", target)):
        with pytest.raises(StorageFailed, match=rf"^storage {away}: .*; mend it, then the same"):
            broken()
