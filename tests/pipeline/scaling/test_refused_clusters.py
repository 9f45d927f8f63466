"""What ends a sweep in one line before anything is started: the token, the address, the storage."""

import errno
import os
import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from pipeline.cli import main
from pipeline.runtime.errors import CommandFailed
from pipeline.scaling import cluster, snapshots
from pipeline.scaling.snapshots import Storage, StorageFailed
from pipeline.tracking.outbox import Outbox
from pipeline.tracking.records import EXPERIMENT, Header
from pipeline.tracking.run import Run, path_of
from tests.pipeline.fixture_types import Failure, Patch
from tests.pipeline.scaling.loopback_cluster import SweepProject
from tests.pipeline.small_project import NOBODY


@pytest.fixture
def project(tmp_path: Path, monkeypatch: Patch) -> SweepProject:
    """A checkout, which is the current folder; the command may change the environment."""
    project = SweepProject.of(tmp_path / "checkout", code=False)
    for name in (*cluster.QUIET, *cluster.LOOPBACK, "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", NOBODY)
    monkeypatch.setattr(cluster, "QUIET", {})
    monkeypatch.chdir(project.root)
    return project


def write_token(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "token"
    path.write_text("0" * 64)
    path.chmod(mode)


def test_no_token(project: SweepProject, failure: Failure, tmp_path: Path) -> None:
    said = failure(main, "sweep", "sweeps/tiny.yaml", "--address", "127.0.0.1:6379", code=5)
    assert f"{tmp_path}/token is not there" in said
    assert project.trials() == []


def test_a_token_that_others_can_read(
    project: SweepProject, failure: Failure, tmp_path: Path
) -> None:
    write_token(tmp_path, 0o644)
    said = failure(main, "sweep", "sweeps/tiny.yaml", "--address", "127.0.0.1:6379", code=5)
    assert f"chmod 600 {tmp_path}/token" in said
    assert project.trials() == []


def test_no_server(project: SweepProject, failure: Failure, tmp_path: Path) -> None:
    write_token(tmp_path, 0o600)
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
        said = failure(main, "sweep", "sweeps/tiny.yaml", "--address", address, code=5)
    assert f"no Ray cluster answers at {address}" in said
    assert project.trials() == []


def test_a_storage_that_is_a_file(project: SweepProject, failure: Failure, tmp_path: Path) -> None:
    (tmp_path / "storage").write_text("not a folder")
    said = failure(
        main, "sweep", "sweeps/tiny.yaml", "--storage", str(tmp_path / "storage"), code=5
    )
    assert f"storage {tmp_path}/storage" in said
    assert (tmp_path / "storage").read_text() == "not a folder"
    assert project.trials() == []


class FullDisk(fs.LocalFileSystem):
    """Takes half of a file, and lets nobody close it."""

    def open_output_stream(self, path: str, *_: Any, **__: Any) -> Any:
        Path(path).write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


def test_a_full_storage_keeps_the_archive_before(tmp_path: Path) -> None:
    folder = tmp_path / "trial"
    (folder / "reports").mkdir(parents=True)
    (folder / "reports" / "scores.json").write_text("{}")
    storage = snapshots.open_storage(str(tmp_path / "storage"), "sweep")
    snapshots.save(storage, "0000", folder)
    (folder / "reports" / "scores.json").write_text('{"cosine_mean": 1}')
    with pytest.raises(StorageFailed, match="No space left") as caught:
        snapshots.save(Storage(storage.uri, FullDisk(), storage.path), "0000", folder)
    assert caught.value.exit_code == 5
    assert [path.name for path in Path(storage.path).iterdir()] == ["0000.tar"]
    snapshots.restore(storage, "0000", tmp_path / "restored")
    assert (tmp_path / "restored" / "reports" / "scores.json").read_text() == "{}"


def test_a_stage_beside_a_sweep_ends_none_of_its_outboxes(project: SweepProject) -> None:
    header = Header("key", EXPERIMENT, "a run", {}, {})
    abandoned = path_of(project.root, "train@allo", "0")
    folder = project.root / ".state" / "sweeps" / "tiny-1" / "outbox"
    outboxes = [Outbox(folder / f"{name}.sqlite") for name in ("sweep", "0000-train@allo")]
    for each in (Outbox(abandoned), *outboxes):
        each.begin(header)
    path = path_of(project.root, "train@allo", "k" * 16)
    with Run.start(project.root, path, header._replace(run_key="other")):
        pass
    assert [end.body for end in Outbox(abandoned).records("end")] == ["KILLED"]
    assert [each.records("end") for each in outboxes] == [[], []]


def test_a_python_that_unpacks_without_a_filter_is_refused(monkeypatch: Patch):
    cluster.check_installed()
    monkeypatch.delattr("tarfile.data_filter")
    with pytest.raises(CommandFailed, match=r"sweep needs Python 3\.11\.4 .*; remove \.venv"):
        cluster.check_installed()
