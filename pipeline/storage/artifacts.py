"""named contents <-> a folder of files under a manifest (`quatrain.storage.folders`); JSON files
and digests.
"""

import hashlib
from pathlib import Path
from typing import Any

from quatrain.storage import folders, formats
from quatrain.storage.atomic_write import write_durably
from quatrain.storage.folders import MANIFEST as MANIFEST
from quatrain.storage.folders import Loaded as Loaded
from quatrain.storage.folders import load as load
from quatrain.storage.folders import save as save
from quatrain.storage.folders import verify as verify
from quatrain.storage.formats import null_if_not_finite as null_if_not_finite
from quatrain.storage.trees import from_arrays as from_arrays
from quatrain.storage.trees import to_arrays as to_arrays

folder_digest = folders.read_digest


def write_json(path: Path, value: Any) -> None:
    """Writes one JSON file without a manifest.

    Raises:
        FolderError: the value is not JSON, which knows no NaN.
    """
    write_durably(path, folders.encode_file(path, value)[0])


def read_json(path: Path) -> Any:
    """Returns the value of one JSON file, which a person may have written.

    Raises:
        FolderError: it cannot be opened, is no UTF-8 or JSON, or has equal keys, NaN, infinity.
    """
    return folders.decode_file(path, folders.read_bytes(path, folders.LARGEST_JSON), {})


def digest_of(value: Any) -> str:
    return folders.sha256_of(formats.to_json(value))


def file_digest(path: Path) -> str:
    """Returns the sha256 of a file's bytes.

    Raises:
        FolderError: it cannot be opened.
    """
    with folders.open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
