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

from pipeline.scaling import snapshots
from pipeline.scaling.snapshots import Storage, StorageFailed, open_storage, restore, save
from pipeline.storage.checkpoints import Checkpoints
from pipeline.tracking.outbox import Outbox
from pipeline.tracking.records import Header
from tests.pipeline.fixture_types import Patch

RUN = Path(".state/train@allo/run-key")


def make_trial(folder: Path, *steps: int) -> Path:
    """What a trial leaves that has saved checkpoints at these steps."""
    checkpoints = Checkpoints(folder / RUN)
    for step in steps:
        checkpoints.save(step, {"kernel": np.full((40, 40), step, np.float32)})
    for name in (
        ".state/outbox/locks/train@allo-1/lock",
        ".state/locks/train@allo/lock",
        "data/allo/dataset.safetensors",
        "inputs/allo/map.txt",
        "stages.log",
        "params.yaml",
        "models/allo/weights.safetensors.partial",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    outbox = Outbox(folder / ".state/outbox/train@allo-1.sqlite")
    outbox.begin(Header("k1", "quatrain", "a run", {}, {}))
    return folder


def train(folder: Path) -> None:
    for name in ("models/allo/manifest.json", "models/allo/history.csv", "reports/allo/a/b.png"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(str(tmp_path / "shared"), "tried-1234")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "target").mkdir()
    return tmp_path / "target"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_trial(tmp_path / "source", 100, 200, 300)


def archive(storage: Storage) -> Path:
    return Path(storage.file("0007.tar"))


def test_a_trial_comes_back_with_checkpoints_and_outboxes(
    storage: Storage, source: Path, target: Path
):
    save(storage, "0007", source)
    assert restore(storage, "0007", target)
    left_out = ("data/", "inputs/", ".state/locks/", ".state/outbox/locks/", "models/")
    kept = {name: data for name, data in files(source).items() if not name.startswith(left_out)}
    assert files(target) == kept
    assert len(kept) == 7
    latest = Checkpoints(target / RUN).latest()
    assert latest is not None
    assert latest.step == 300
    assert stored(storage) == ["0007.tar"]
    assert "tried-1234" in storage.path


def test_a_trained_trial_has_no_checkpoints_any_more(storage: Storage, source: Path, target: Path):
    train(source)
    save(storage, "0007", source)
    restore(storage, "0007", target)
    assert sorted(files(target)) == [
        ".state/outbox/train@allo-1.sqlite",
        "models/allo/history.csv",
        "models/allo/manifest.json",
        "params.yaml",
        "reports/allo/a/b.png",
        "stages.log",
    ]


def test_what_was_never_stored_is_not_there(storage: Storage, target: Path):
    assert not restore(storage, "0007", target)
    assert files(target) == {}


def test_a_slot_that_is_replaced_meanwhile_is_left_out(
    storage: Storage, source: Path, target: Path, monkeypatch: Patch
):
    kept = list(snapshots._kept(source))
    kept[0].unlink()
    monkeypatch.setattr(snapshots, "_kept", lambda _: kept)
    save(storage, "0007", source)
    assert restore(storage, "0007", target)
    latest = Checkpoints(target / RUN).latest()
    assert latest is not None


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.5, 0.7, 0.9])
def test_of_a_truncated_archive_nothing_torn_is_trusted(
    share: float, storage: Storage, source: Path, target: Path
):
    save(storage, "0007", source)
    os.truncate(archive(storage), int(share * archive(storage).stat().st_size))
    restore(storage, "0007", target)
    latest = Checkpoints(target / RUN).latest()
    if latest is not None:
        expected = np.full((40, 40), latest.step, np.float32)
        np.testing.assert_array_equal(latest.arrays["kernel"], expected)
    assert (share < 0.3) == (latest is None)


def test_what_is_no_archive_restores_nothing(storage: Storage, target: Path):
    archive(storage).write_bytes(b"\x00\xff" * 3000)
    assert restore(storage, "0007", target)
    assert files(target) == {}


def stored(storage: Storage) -> list[str]:
    return [path.name for path in Path(storage.path).iterdir()]


def entry(name: str, **changes: Any) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for key, value in changes.items():
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
    with tarfile.open(archive(storage), "w") as written:
        written.addfile(bad, io.BytesIO(b"evil"))
    before = {path for path in tmp_path.rglob("*") if not path.is_relative_to(target)}
    restore(storage, "0007", target)
    after = {path for path in tmp_path.rglob("*") if not path.is_relative_to(target)}
    assert after == before
    assert not Path("/outside.txt").exists()
    others = [path for path in target.rglob("*") if path.is_symlink() or path.is_fifo()]
    assert others == []


# A storage that fails.


def fill_up(source: Any, stream: Any) -> None:
    stream.write(source.read(700))
    raise OSError(28, "No space left on device")


def test_a_full_storage_is_one_line_and_keeps_the_archive_before(
    storage: Storage, source: Path, target: Path, monkeypatch: Patch
):
    save(storage, "0007", source)
    before = archive(storage).read_bytes()
    monkeypatch.setattr(shutil, "copyfileobj", fill_up)
    with pytest.raises(StorageFailed) as caught:
        save(storage, "0007", make_trial(source, 400))
    assert caught.value.exit_code == 5
    assert str(caught.value) == (
        f"storage {storage.uri}: [Errno 28] No space left on device; "
        "mend it, then the same command continues"
    )
    assert archive(storage).read_bytes() == before
    assert stored(storage) == ["0007.tar"], "a partial file is left"
    assert [path for path in source.iterdir() if path.name.startswith("tmp")] == []
    restore(storage, "0007", target)
    latest = Checkpoints(target / RUN).latest()
    assert latest is not None
    assert latest.step == 300


def test_a_storage_that_is_no_folder_is_refused_at_once(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageFailed) as caught:
        open_storage(str(tmp_path / "file"), "tried-1234")
    said = str(caught.value)
    assert said.startswith(f"storage {tmp_path / 'file'}: ")
    assert said.endswith("; mend it, then the same command continues")
    assert "\n" not in said
    assert caught.value.exit_code == 5


@pytest.mark.parametrize(
    "uri",
    ["s3://KEY:hidden@b/f", "s3://b/f?region=x&secret_key=hidden", "ftp://user:hidden@host/folder"],
)
def test_keys_in_a_uri_are_refused_because_ray_would_store_them(uri: str):
    with pytest.raises(StorageFailed, match="give them by AWS_ACCESS_KEY_ID") as caught:
        open_storage(uri, "tried-1234")
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("uri", ["ftp://host/folder", "s3:///", "nothing://x"])
def test_a_uri_that_cannot_be_used_is_refused(uri: str):
    with pytest.raises(StorageFailed, match=r"^storage "):
        open_storage(uri, "tried-1234")


def test_a_storage_that_never_answers_is_given_up(tmp_path: Path, monkeypatch: Patch):
    monkeypatch.setattr(snapshots, "OPENING_SECONDS", 0.1)
    monkeypatch.setattr(snapshots, "write", lambda *_: time.sleep(2))
    with pytest.raises(
        StorageFailed, match=r"^storage .*: opening: no complete answer within 0.1 "
    ):
        open_storage(str(tmp_path), "tried-1234")


def test_a_storage_that_went_away_is_one_line(storage: Storage, source: Path, target: Path):
    save(storage, "0007", source)
    away = Path(storage.path).parent
    away.rename(away.with_name("elsewhere"))
    away.write_text("")
    for broken in (lambda: save(storage, "0007", source), lambda: restore(storage, "0007", target)):
        with pytest.raises(StorageFailed, match=rf"^storage {away}: .*; mend it, then the same"):
            broken()


def test_a_storage_is_tried_before_a_sweep_and_left_as_it_was(storage: Storage):
    assert stored(storage) == []
