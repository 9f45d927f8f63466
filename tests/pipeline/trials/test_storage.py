"""A trial's archive in the storage is whole or absent, and nothing in it can do harm."""

import os
import shutil
import tarfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from pipeline.storage.checkpoints import Checkpoints
from pipeline.tracking.outbox import Outbox
from pipeline.trials import node
from pipeline.trials import storage as storages
from pipeline.trials.stages import Step
from pipeline.trials.storage import Storage, StorageFailed, open_storage, restore, save
from pipeline.trials.trial import OUTCOME, Outcome, Point
from tests.pipeline.fixture_types import Patch
from tests.pipeline.recorded_runs import header
from tests.pipeline.small_checkout import contents
from tests.pipeline.trials.stand_ins import trial

RUN = Path(".state/train@allo/run-key")
KEPT = ("models/allo/manifest.json", "reports/allo/a/b.png", "stages.log", "usage.json")
LEFT_OUT = ("dataset/data/allo/x", "inputs/allo/map.txt", "models/allo/w.safetensors.partial")


def checkpoint(folder: Path, step: int) -> None:
    Checkpoints(folder / RUN).save(step, {"kernel": np.full((40, 40), step, np.float32)})


def step_of(folder: Path) -> int | None:
    latest = Checkpoints(folder / RUN).latest()
    assert latest is None or (latest.arrays["kernel"] == latest.step).all()
    return None if latest is None else latest.step


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """What a trial leaves that has saved checkpoints."""
    folder = tmp_path / "source"
    checkpoint(folder, 100)
    checkpoint(folder, 200)
    for name in (*KEPT, *LEFT_OUT, "params.yaml", ".state/locks/train@allo/lock"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    Outbox(folder / ".state/outbox/train@allo-1.sqlite").begin(header("k1"))
    return folder


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(str(tmp_path / "shared"))


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "target").mkdir()
    return tmp_path / "target"


def test_a_trial_comes_back_with_checkpoints_and_outboxes(
    storage: Storage, source: Path, target: Path
):
    assert contents(Path(storage.path)) == {}
    restore(storage, "k", target)
    assert contents(target) == {}
    (source / OUTCOME).write_text("the outcome")
    save(storage, "k", source)
    with tarfile.open(Path(storage.path) / "k.tar") as archive:
        assert archive.getnames()[-1] == OUTCOME
    restore(storage, "k", target)
    assert contents(target).items() <= contents(source).items()
    assert {name for name in contents(target) if not name.startswith(str(RUN))} == {
        *KEPT,
        OUTCOME,
        ".state/outbox/train@allo-1.sqlite",
    }
    assert step_of(target) == 200


def test_each_new_checkpoint_is_stored_and_what_there_is_at_the_end(
    source: Path, monkeypatch: Patch
):
    saved: list[int | None] = []
    monkeypatch.setattr(node, "save", lambda *place: saved.append(step_of(place[-1])))

    def steps(first: int) -> Generator[Step, None, None]:
        try:
            yield None
            checkpoint(source, first)
            yield None
            yield Point(first, 0.5)
            yield None
            checkpoint(source, first + 1)
            yield Outcome("finished")
        finally:
            checkpoint(source, first + 2)

    job = node.Job(trial(), {}, *[cast(Any, None)] * 5)
    events = node.archived(job, source, steps(300))
    assert (next(events), saved) == (Point(300, 0.5), [300])
    assert (next(events), saved) == (Outcome("finished"), [300, 302])
    leaving = node.archived(job, source, steps(400))
    next(leaving)
    del leaving
    assert saved[-2:] == [400, 402], "what leaves is stored after its stage has saved"


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_of_a_truncated_archive_nothing_torn_is_trusted(
    share: float, storage: Storage, source: Path, target: Path
):
    save(storage, "k", source)
    archive = Path(storage.path) / "k.tar"
    os.truncate(archive, int(share * archive.stat().st_size))
    restore(storage, "k", target)
    assert (step_of(target) is None) == (share < 0.3)


def test_an_archive_writes_nothing_outside_its_folder(
    storage: Storage, target: Path, tmp_path: Path
):
    with tarfile.open(Path(storage.path) / "k.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("../outside.txt"))
    restore(storage, "k", target)
    assert {path.name for path in tmp_path.iterdir()} == {"shared", "target"}


# A storage that fails.


def fill_up(source: Any, stream: Any) -> None:
    stream.write(source.read(700))
    raise OSError(28, "No space left on device")


def test_a_full_storage_is_one_line_and_keeps_the_archive_before(
    storage: Storage, source: Path, monkeypatch: Patch
):
    save(storage, "k", source)
    before = contents(Path(storage.path))
    monkeypatch.setattr(shutil, "copyfileobj", fill_up)
    with pytest.raises(StorageFailed) as caught:
        save(storage, "k", source)
    assert caught.value.exit_code == 5
    assert str(caught.value) == (
        f"storage {storage.uri}: [Errno 28] No space left on device; "
        "mend it, then the same command continues"
    )
    assert contents(Path(storage.path)) == before


@pytest.mark.parametrize(
    ("uri", "line"),
    [
        (__file__, "mend it, then the same command continues"),
        ("ftp://host/folder", "Unrecognized filesystem type"),
        ("s3://KEY:hidden@b/f", "give them by AWS_ACCESS_KEY_ID"),
        ("s3://b/f?region=x&secret_key=hidden", "give them by AWS_ACCESS_KEY_ID"),
    ],
    ids=["file", "scheme", "password", "key"],
)
def test_a_storage_that_cannot_be_used_is_refused(uri: str, line: str):
    with pytest.raises(StorageFailed, match=r"^storage[^\n]*$") as caught:
        open_storage(uri)
    assert line in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_a_storage_that_never_answers_or_goes_away_is_one_line(
    storage: Storage, target: Path, tmp_path: Path, monkeypatch: Patch
):
    shutil.rmtree(storage.path)
    Path(storage.path).touch()
    with pytest.raises(StorageFailed, match=rf"^storage {storage.path}: .*; mend it, then the"):
        restore(storage, "k", target)
    monkeypatch.setattr(storages, "OPENING_SECONDS", 0.1)
    monkeypatch.setattr(storages, "write", lambda *_: time.sleep(2))
    with pytest.raises(StorageFailed, match=r"opening: no complete answer within 0.1 s"):
        open_storage(str(tmp_path))
