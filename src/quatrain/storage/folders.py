"""named contents <-> a folder of files under a manifest: written whole or not at all, verified
before use.
"""

import hashlib
import os
from collections.abc import Collection, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from quatrain.errors import FolderError
from quatrain.storage import formats
from quatrain.storage.atomic_write import PARTIAL, remove, write_durably, write_together
from quatrain.storage.disk_errors import MACHINE, printable

SCHEMA = 1
MANIFEST = "manifest.json"
LARGEST_JSON = 2**24
# Bytes of one folder that are read into memory, at most.
LARGEST = 2**34

UNTOUCHED = "nothing was written"
MOVE = "move it elsewhere and save again"


FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*$")]


class File(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    sha256: str
    size: int = Field(ge=0)
    arrays: dict[formats.ArrayName, formats.DeclaredArray]


class Manifest(BaseModel):
    """Declares the files of a folder; written last. `digest` is the hash of all its other keys."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    schema_version: int = Field(ge=SCHEMA, le=SCHEMA)
    digest: str
    info: dict[str, Any]
    files: dict[FileName, File]


class Loaded(NamedTuple):
    """Holds the contents of a verified folder by file name, the info given to `save`, and the
    digest of both.
    """

    contents: dict[str, Any]
    info: dict[str, Any]
    digest: str


def save(
    folder: Path,
    contents: Mapping[str, Any],
    info: Mapping[str, Any],
    names: Collection[str] | None = None,
) -> str:
    """Makes `folder` hold exactly these files and a manifest, in bytes that depend on them alone;
    returns its digest.

    A name's ending chooses the format: .safetensors (name -> array), .json, .csv and .txt (str),
    .png (bytes). A crash leaves the old content, the new, or a folder that `load` refuses.

    names: of the files that may be replaced or removed; None: all with such endings.

    Raises:
        FolderError: a content does not fit its name, or `folder` holds other files.
        OSError: e.g. the disk is full; the old files are untouched and nothing partial is left.
    """
    if MANIFEST in contents:
        raise _refused(
            folder / MANIFEST, "is the name of the manifest, not of a content", UNTOUCHED
        )
    files: dict[str, bytes] = {}
    entries = {}
    for name, content in sorted(contents.items()):
        files[name], arrays = encode_file(folder / name, content)
        entries[name] = {
            "sha256": sha256_of(files[name]),
            "size": len(files[name]),
            "arrays": arrays,
        }
    manifest = {"schema_version": SCHEMA, "info": dict(info), "files": entries}
    manifest["digest"] = sha256_of(encode_file(folder / MANIFEST, manifest)[0])
    _validated(folder / MANIFEST, manifest, UNTOUCHED)
    files[MANIFEST], _ = encode_file(folder / MANIFEST, manifest)
    others = _others(folder, set(files), names)
    write_together(folder, files)
    remove(others)
    return str(manifest["digest"])


def check_free(folder: Path, names: Collection[str]) -> None:
    """Raises FolderError if `folder` holds other files than these, or cannot be a folder."""
    for path in (folder, *folder.parents):
        if path.exists() and not path.is_dir():
            raise _refused(path, "is a file where a folder belongs", MOVE)
    _others(folder, set(), names)


def load(folder: Path, needed: Collection[str] = ()) -> Loaded:
    """Returns the contents of a folder, those `needed` among them, after it has verified size,
    hash, names, dtypes, shapes and finiteness.

    Raises:
        FolderError: anything in the folder is not as it was saved.
    """
    manifest = _complete_manifest(folder, needed)
    return _load_files(folder, manifest, manifest.files)


def verify(folder: Path, needed: Collection[str] = ()) -> Loaded:
    """Returns the `needed` contents after it has verified the hash of every file; holds one other
    file at a time in memory.

    Raises:
        FolderError: anything in the folder is not as it was saved.
    """
    return _load_files(folder, _complete_manifest(folder, needed), needed)


def _load_files(folder: Path, manifest: Manifest, names: Collection[str]) -> Loaded:
    if sum(file.size for file in manifest.files.values()) > LARGEST:
        raise _refused(folder, f"declares more than {LARGEST:,} bytes")
    contents = {}
    for name, file in manifest.files.items():
        data = _read_verified(folder / name, file)
        if name in names:
            contents[name] = decode_file(folder / name, data, file.arrays)
    return Loaded(contents, manifest.info, manifest.digest)


def _complete_manifest(folder: Path, needed: Collection[str]) -> Manifest:
    """Returns the manifest of a folder that holds exactly the files that it declares, those
    `needed` among them.
    """
    manifest = _read_manifest(folder)
    present = {path.name for path in folder.iterdir() if path.suffix != PARTIAL} - {MANIFEST}
    missing = sorted((manifest.files.keys() | set(needed)) - present)
    others = sorted(present - manifest.files.keys())
    if missing or others:
        raise _refused(
            folder, f"files that are missing: {missing}, that do not belong to it: {others}"
        )
    return manifest


def read_digest(folder: Path) -> str:
    """Returns the digest of a folder from its manifest alone: the other files are not read.

    Raises:
        FolderError: the manifest is missing or not as it was saved.
    """
    return _read_manifest(folder).digest


# Reading untrusted bytes.


def sha256_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def digest_of(value: Any) -> str:
    return sha256_of(formats.to_json(value))


def _read_manifest(folder: Path) -> Manifest:
    path = folder / MANIFEST
    data = read_bytes(path, LARGEST_JSON)
    value = decode_file(path, data, {})
    version = value.get("schema_version") if isinstance(value, dict) else None
    if type(version) is not int or version != SCHEMA:
        raise _refused(path, f"has schema version {version!r}, but this code reads {SCHEMA}")
    manifest = _validated(path, value)
    body = {key: part for key, part in value.items() if key != "digest"}
    if (
        sha256_of(encode_file(path, body)[0]) != manifest.digest
        or encode_file(path, value)[0] != data
    ):
        raise _refused(path, "does not match its own digest")
    return manifest


def _validated(path: Path, manifest: dict[str, Any], remedy: str = "") -> Manifest:
    try:
        return Manifest.model_validate(manifest)
    except ValidationError as error:
        first = error.errors()[0]
        key = "/".join(map(str, first["loc"]))[:80]
        raise _refused(path, f"{key!r}: {first['msg']}", remedy) from None


def _read_verified(path: Path, file: File) -> bytes:
    data = read_bytes(path, file.size)
    if len(data) != file.size:
        raise _refused(path, f"has {len(data):,} bytes instead of {file.size:,}")
    if sha256_of(data) != file.sha256:
        raise _refused(path, "does not match its sha256 in the manifest")
    return data


def read_bytes(path: Path, largest: int) -> bytes:
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > largest:
            raise _refused(path, f"has {size:,} bytes, more than the {largest:,} that are allowed")
        try:
            return file.read(size)
        except OSError as error:
            error.filename = os.fspath(path)
            raise


def read_text(path: Path) -> str:
    """Returns the text of a file.

    Raises:
        FolderError: it cannot be opened, is too large or not UTF-8.
    """
    try:
        return read_bytes(path, LARGEST_JSON).decode()
    except UnicodeDecodeError as error:
        remedy = "save the file as UTF-8, or restore it"
        raise _refused(path, f"byte {error.start} is not UTF-8", remedy) from None


def read_json(path: Path) -> Any:
    """Returns the value of one JSON file, which a person may have written.

    Raises:
        FolderError: it cannot be opened, is no UTF-8 or JSON, or has equal keys, NaN, infinity.
    """
    return decode_file(path, read_bytes(path, LARGEST_JSON), {})


def file_digest(path: Path) -> str:
    """Returns the sha256 of a file's bytes.

    Raises:
        FolderError: it cannot be opened.
    """
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def open_file(path: Path) -> BufferedReader:
    """Opens a file, or one that a link leads to, as DVC's links into its cache.

    Raises:
        FolderError: it is missing, or a folder.
        OSError: this machine or user cannot read it.
    """
    try:
        return path.open("rb")
    except OSError as error:
        if error.errno in MACHINE:
            raise
        raise _refused(path, f"cannot be opened ({error.strerror})") from None


def decode_file(path: Path, data: bytes, arrays: Mapping[str, formats.DeclaredArray]) -> Any:
    try:
        return formats.decode(path.name, data, arrays)
    except formats.FormatError as error:
        raise _refused(path, str(error)) from None


# Writing.


def encode_file(path: Path, content: Any) -> tuple[bytes, dict[str, Any]]:
    try:
        return formats.encode(path.name, content)
    except formats.FormatError as error:
        raise _refused(path, str(error), UNTOUCHED) from None


def write_json(path: Path, value: Any) -> None:
    """Writes one JSON file without a manifest.

    Raises:
        FolderError: the value is not JSON, which knows no NaN.
    """
    write_durably(path, encode_file(path, value)[0])


def _others(folder: Path, keep: set[str], names: Collection[str] | None) -> list[Path]:
    if names is not None and not (folder / MANIFEST).is_file():
        names = keep = set()  # files of these names are the user's
    others = [path for path in sorted(folder.glob("*")) if path.name not in keep or path.is_dir()]
    for path in others:
        is_own = path.suffix in formats.FORMATS if names is None else path.name in names
        if not path.is_file() or not (is_own or path.suffix == PARTIAL):
            raise _refused(path, "is in the way of a folder that only quatrain writes", MOVE)
    return others


def _refused(path: Path, reason: str, remedy: str = "") -> FolderError:
    return FolderError(f"{printable(path)}: {reason}", remedy=remedy)
