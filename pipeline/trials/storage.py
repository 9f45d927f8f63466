"""a trial's folder <-> one archive in the storage that all nodes reach: whole or absent.

The storage is a folder that the nodes share, or any URI that pyarrow reads (s3://BUCKET/FOLDER).
Archives hold JSON, safetensors, CSV and pictures, and are unpacked by tarfile's filter for data:
nothing in the storage is executed.
"""

import io
import os
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
from pipeline.trials.stages import LOG
from pipeline.trials.trial import OUTCOME, USAGE

# Libraries of object stores repeat for minutes where nothing answers.
OPENING_SECONDS = 30.0
# File systems of pyarrow whose files are objects: they appear whole, and have no rename.
OBJECT_STORES = ("s3", "gcs", "abfs")
# For `tarfile.extraction_filter`; Python before 3.11.4 has none, and no cluster works with it.
DATA_FILTER = getattr(tarfile, "data_filter", None)


class StorageFailed(CommandFailed):
    """Says which storage cannot be read or written, and why."""


class Storage(NamedTuple):
    """Holds a folder in a file system of pyarrow."""

    uri: str
    filesystem: Any
    path: str

    def failed(self, error: Exception) -> StorageFailed:
        reason = redact(" ".join(str(error).split()))[:200]
        return StorageFailed(
            f"storage {shown(self.uri)}: {reason}; mend it, then the same command continues"
        )


def open_storage(uri: str) -> Storage:
    """Returns a storage, after a file was written to it and removed.

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
        filesystem, path = fs.FileSystem.from_uri(uri if "://" in uri else Path(uri).absolute())
        storage = Storage(uri, filesystem, path.rstrip("/"))
        filesystem.create_dir(storage.path, recursive=True)
        probe = f"probe-{secrets.token_hex(4)}"
        write(storage, probe, io.BytesIO(b"quatrain"))
        filesystem.delete_file(f"{storage.path}/{probe}")
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
    path = f"{storage.path}/{name}"
    partial = f"{storage.path}/.{name}.{secrets.token_hex(4)}.partial"
    is_object = storage.filesystem.type_name in OBJECT_STORES
    try:
        with storage.filesystem.open_output_stream(path if is_object else partial) as stream:
            shutil.copyfileobj(source, stream)
        if not is_object:
            storage.filesystem.move(partial, path)
    except OSError as error:
        with suppress(OSError):
            storage.filesystem.delete_file(partial)
        raise storage.failed(error) from None


def save(storage: Storage, key: str, folder: Path) -> None:
    """Stores what a trial in `folder` continues from: results, checkpoints and outboxes.

    Checkpoints come first: an outbox may hold more steps than a checkpoint, never fewer.

    Raises:
        StorageFailed: e.g. the storage is full; the archive before stays.
    """
    with tempfile.TemporaryFile(dir=folder) as file:
        with tarfile.open(fileobj=file, mode="w") as archive:
            for path in _kept(folder):
                with suppress(FileNotFoundError):  # A slot that the stage replaces just now.
                    data = Outbox(path).copy() if path.suffix == ".sqlite" else path.read_bytes()
                    entry = archive.gettarinfo(path, str(path.relative_to(folder)))
                    entry.size = len(data)
                    archive.addfile(entry, io.BytesIO(data))
        file.seek(0)
        write(storage, f"{key}.tar", file)


def restore(storage: Storage, key: str, folder: Path) -> None:
    """Unpacks what `save` stored; nothing if it never did.

    What is damaged is left out, as if it had not been saved.

    Raises:
        StorageFailed: the storage does not answer.
    """
    path = f"{storage.path}/{key}.tar"
    try:
        with (
            suppress(FileNotFoundError, EOFError, tarfile.TarError),
            storage.filesystem.open_input_file(path) as source,
            tarfile.open(fileobj=source) as archive,
        ):
            archive.extraction_filter = DATA_FILTER
            for member in archive:
                if member.name == OUTCOME:
                    os.sync()  # A result counts as soon as its outcome is there.
                archive.extract(member, folder)
    except OSError as error:
        raise storage.failed(error) from None


def _kept(folder: Path) -> Iterator[Path]:
    """Yields the files of an archive, the outcome last."""
    slots = [f".state/train@*/*/{slot}/*" for slot in SLOTS]
    results = [".state/outbox/*.sqlite", "models/**/*", "reports/**/*", LOG, USAGE, OUTCOME]
    for pattern in [*slots, *results]:
        for path in sorted(folder.glob(pattern)):
            if path.is_file() and path.suffix != ".partial":
                yield path
