"""named contents <-> a folder of files under a manifest (`quatrain.storage.folders`), with how DVC
restores it; JSON files and digests.
"""

import hashlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from pipeline.runtime.errors import ArtifactError, raised_as
from quatrain.storage import folders, formats, trees
from quatrain.storage.atomic_write import write_durably
from quatrain.storage.folders import MANIFEST as MANIFEST
from quatrain.storage.folders import FolderError, Loaded
from quatrain.storage.formats import null_if_not_finite as null_if_not_finite
from quatrain.storage.trees import to_arrays as to_arrays

RESTORE = "restore it with `dvc checkout --force`, or remove its folder and run `dvc repro`"

Tree = TypeVar("Tree", bound=tuple)


def save(folder: Path, contents: Mapping[str, Any], info: Mapping[str, Any]) -> str:
    """Makes `folder` hold exactly these files and a manifest (`folders.save`); returns its digest.

    Raises:
        ArtifactError: a content does not fit its name, or `folder` holds what `save` never writes.
        OSError: e.g. the disk is full; the old files are untouched and nothing partial is left.
    """
    with raised_as(ArtifactError, FolderError):
        return folders.save(folder, contents, info)


def load(folder: Path, needed: Collection[str] = ()) -> Loaded:
    """Returns the verified contents of a folder (`folders.load`).

    needed: names of files that it has to hold.

    Raises:
        ArtifactError: anything in the folder is not as it was saved, or it is one of another kind.
    """
    with raised_as(ArtifactError, FolderError, RESTORE):
        return folders.load(folder, needed)


def verify(folder: Path, needed: Collection[str] = ()) -> Loaded:
    """Returns the `needed` contents of a folder whose files are all hashed (`folders.verify`).

    Raises:
        ArtifactError: anything in the folder is not as it was saved.
    """
    with raised_as(ArtifactError, FolderError, RESTORE):
        return folders.verify(folder, needed)


def write_json(path: Path, value: Any) -> None:
    """Writes one JSON file without a manifest.

    Raises:
        ArtifactError: the value is not JSON, which knows no NaN.
    """
    with raised_as(ArtifactError, FolderError):
        data = folders.encode_file(path, value)[0]
    write_durably(path, data)


def read_json(path: Path) -> Any:
    """Returns the value of one JSON file, which a person may have written.

    Raises:
        ArtifactError: no regular file, not UTF-8, not JSON, or with equal keys, NaN or infinity.
    """
    with raised_as(ArtifactError, FolderError, RESTORE):
        return folders.decode_file(path, folders.read_bytes(path, folders.LARGEST_JSON), {})


def from_arrays(cls: type[Tree], arrays: Mapping[str, np.ndarray]) -> Tree:
    """Inverts `to_arrays`; the annotations of `cls` say which fields are NamedTuples themselves.

    Raises:
        ArtifactError: a field has no array, or an array has no field.
    """
    with raised_as(ArtifactError, FolderError, RESTORE):
        return trees.from_arrays(cls, arrays)


# Digests.


def digest_of(value: Any) -> str:
    return folders.sha256_of(formats.to_json(value))


def file_digest(path: Path) -> str:
    """Returns the sha256 of a file's bytes.

    Raises:
        ArtifactError: not a regular file.
    """
    with raised_as(ArtifactError, FolderError, RESTORE), folders.open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def folder_digest(folder: Path) -> str:
    """Returns the digest of a folder from its manifest alone: the other files are not read.

    Raises:
        ArtifactError: the manifest is missing or not as it was saved.
    """
    with raised_as(ArtifactError, FolderError, RESTORE):
        return folders.read_digest(folder)
