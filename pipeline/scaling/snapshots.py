"""a trial's folder <-> one archive in the storage that all nodes reach: whole or absent.

The storage is a folder that the nodes share, or any URI that pyarrow reads (s3://BUCKET/FOLDER).
Archives hold JSON, safetensors, CSV and pictures, and are unpacked by tarfile's filter for data:
nothing in the storage is executed.
"""

import io
import secrets
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from pipeline.runtime.console import redact, shown
from pipeline.runtime.errors import CommandFailed
from pipeline.storage.checkpoints import SLOTS
from pipeline.tracking.outbox import Outbox
from pipeline.tracking.store import Late, within
from quatrain.storage.folders import MANIFEST

# Tells whose archive it is: no other trial of its name may continue from it.
PARAMS = "params.yaml"
# What a stage leaves beside checkpoints and outboxes.
OUTS = ("models", "reports", "outcome.json", "stages.log")


# Libraries of object stores repeat for minutes where nothing answers.
OPENING_SECONDS = 30.0
# File systems of pyarrow whose files are objects: they appear whole, and have no rename.
OBJECT_STORES = ("s3", "gcs", "abfs")


class StorageFailed(CommandFailed):
    """Says which storage cannot be read or written, and why."""


class Storage(NamedTuple):
    """Holds a folder in a file system of pyarrow."""

    uri: str
    filesystem: Any
    path: str

    def file(self, name: str) -> str:
        return f"{self.path}/{name}"

    def failed(self, error: Exception) -> StorageFailed:
        reason = redact(" ".join(str(error).split()))[:200]
        return StorageFailed(
            f"storage {shown(self.uri)}: {reason}; mend it, then the same command continues"
        )


def open_storage(uri: str, folder: str) -> Storage:
    """Returns `folder` in a storage, after a file was written to it and removed.

    Raises:
        StorageFailed: it cannot be reached or written within OPENING_SECONDS.
    """
    from pyarrow import fs

    if "@" in uri or "secret" in uri.lower():
        raise StorageFailed(
            "storage: keys in a URI would be stored in clear; give them by "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or by a role"
        )

    def opened() -> Storage:
        if "://" in uri:
            filesystem, path = fs.FileSystem.from_uri(uri)
        else:
            filesystem, path = fs.LocalFileSystem(), str(Path(uri).absolute())
        storage = Storage(uri, filesystem, f"{path.rstrip('/')}/{folder}")
        filesystem.create_dir(storage.path, recursive=True)
        probe = f"probe-{secrets.token_hex(4)}"
        write(storage, probe, io.BytesIO(b"quatrain"))
        filesystem.delete_file(storage.file(probe))
        return storage

    try:
        return within(OPENING_SECONDS, "opening", opened)
    except (OSError, ValueError, Late) as error:
        raise Storage(uri, None, "").failed(error) from None


def write(storage: Storage, name: str, source: IO[bytes]) -> None:
    """Writes a file that appears whole: one in a folder is renamed, an object is stored by a call.

    Raises:
        StorageFailed: e.g. the storage is full; an older file of the name stays.
    """
    partial = storage.file(f".{name}.{secrets.token_hex(4)}.partial")
    is_object = storage.filesystem.type_name in OBJECT_STORES
    target = storage.file(name) if is_object else partial
    try:
        with storage.filesystem.open_output_stream(target) as stream:
            shutil.copyfileobj(source, stream)
        if not is_object:
            storage.filesystem.move(partial, storage.file(name))
    except OSError as error:
        with suppress(OSError):
            storage.filesystem.delete_file(partial)
        raise storage.failed(error) from None


def save(storage: Storage, name: str, folder: Path) -> None:
    """Stores what a trial in `folder` continues from: outs, checkpoints and outboxes.

    Checkpoints come first: an outbox may hold more steps than a checkpoint, never fewer. The
    checkpoints of a trial that has been trained are left out.

    Raises:
        StorageFailed: e.g. the storage is full; the archive before stays.
    """
    with tempfile.TemporaryFile(dir=folder) as file:
        with tarfile.open(fileobj=file, mode="w", dereference=True) as archive:
            for path in _kept(folder):
                with suppress(FileNotFoundError):  # A slot that the stage replaces just now.
                    data = Outbox(path).copy() if path.suffix == ".sqlite" else path.read_bytes()
                    entry = archive.gettarinfo(path, str(path.relative_to(folder)))
                    entry.size = len(data)
                    archive.addfile(entry, io.BytesIO(data))
        file.seek(0)
        write(storage, f"{name}.tar", file)


def restore(storage: Storage, name: str, folder: Path) -> bool:
    """Unpacks what `save` stored, and returns whether there was anything.

    Whatever is damaged is left out, as if it had not been saved.

    Raises:
        StorageFailed: the storage does not answer.
    """
    try:
        with storage.filesystem.open_input_file(storage.file(f"{name}.tar")) as source:
            _extract(source, folder)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise storage.failed(error) from None
    return True


def _extract(source: IO[bytes], folder: Path) -> None:
    with suppress(tarfile.TarError, EOFError), tarfile.open(fileobj=source) as archive:
        archive.extractall(folder, filter="data")


def _kept(folder: Path) -> Iterator[Path]:
    state = folder / ".state"
    yield from _files(folder, PARAMS)
    if not list(folder.glob(f"models/*/{MANIFEST}")):
        for slot in SLOTS:
            yield from _files(state, f"train@*/*/{slot}/*")
    yield from _files(state, "outbox/*.sqlite")
    for out in OUTS:
        path = folder / out
        yield from [path] if path.is_file() else _files(folder, f"{out}/**/*")


def _files(folder: Path, pattern: str) -> Iterator[Path]:
    for path in sorted(folder.glob(pattern)):
        if path.is_file() and path.suffix != ".partial":
            yield path
