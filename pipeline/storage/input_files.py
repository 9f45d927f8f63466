"""a file that a config names -> its text, its numbers or its arrays, or one line that says what is wrong with it."""

import io
import math
import tokenize
import zipfile
import zlib
from pathlib import Path

import numpy as np

from pipeline.runtime.errors import ConfigError
from pipeline.storage.formats import PARSER_ERRORS
from quatrain.section import ARRAYS, NUMBERS, Content, NamedArray

MAX_BYTES = 200_000
"""Of a file, and of what it unfolds to."""
MAX_AXES = 8
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
"""Readers of .npy headers by version; numpy writes the second where the first is too short."""
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""What numpy writes."""


def read_content(path: Path) -> Content:
    """What a file holds that a config may name: numbers, arrays or text, as its name ends.

    Raises:
        ConfigError: it is missing, no plain file, too large or damaged.
    """
    if path.suffix == ARRAYS:
        return read_arrays(path)
    return read_numbers(path) if path.suffix == NUMBERS else read_text(path)


def read_text(path: Path) -> str:
    """The file's text, refused where it is missing, no plain file, too large or not UTF-8."""
    try:
        return _read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path.name}: byte {error.start} is not UTF-8; save the file as UTF-8"
        ) from None


def read_numbers(path: Path) -> tuple[float, ...]:
    """The numbers of an .npy file with one axis of floats; nothing in it is executed."""
    array = _array(
        path.name, _read_bytes(path), "numpy.save an array with one axis and dtype float", axes=1
    )
    return tuple(array.tolist())


def read_arrays(path: Path) -> tuple[NamedArray, ...]:
    """The arrays of an .npz file, all of floats; nothing in it is executed, and it may be compressed."""
    found = []
    for name, data in _members(path).items():
        array = _array(
            f"{path.name}: {name}",
            data,
            "numpy.savez arrays of dtype float, with something in each",
        )
        found.append(
            NamedArray(name=name, shape=array.shape, numbers=tuple(array.ravel().tolist()))
        )
    return tuple(found)


def _members(path: Path) -> dict[str, bytes]:
    """Of an archive, refused before anything unfolds into more than may be read."""
    data = _read_bytes(path)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            unfolded = sum(member.file_size for member in members)
            if unfolded > MAX_BYTES:
                raise ConfigError(
                    f"{path.name}: unfolds to {unfolded:,} bytes; at most {MAX_BYTES:,} are read"
                )
            names = [member.filename.removesuffix(NUMBERS) for member in members]
            if len(set(names)) < len(names) or any(
                member.compress_type not in COMPRESSIONS for member in members
            ):
                raise zipfile.BadZipFile
            return {
                name: _unfolded(archive, member)
                for name, member in zip(names, members, strict=True)
            }
    except (*PARSER_ERRORS, zipfile.BadZipFile, zlib.error):
        raise ConfigError(
            f"{path.name}: is no {ARRAYS} file, or damaged; write one with numpy.savez"
        ) from None


def _unfolded(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """Of a member, and no more of it than it claims; `archive.read` would unfold all before it cuts."""
    with archive.open(member) as stream:
        return stream.read(member.file_size + 1)


def _array(where: str, data: bytes, wanted: str, axes: int | None = None) -> np.ndarray:
    """The floats of an .npy file, whose header is held against its length before anything is allocated."""
    stream = io.BytesIO(data)
    try:
        read_header = HEADERS[np.lib.format.read_magic(stream)]
        shape, fortran_order, dtype = read_header(stream)
        if any(type(length) is not int for length in shape):  # numpy lets True pass
            raise TypeError
    except (*PARSER_ERRORS, tokenize.TokenError):
        raise ConfigError(f"{where}: is no {NUMBERS} file; write one with numpy.save") from None
    size = math.prod(shape)
    fits = len(shape) == axes if axes else len(shape) <= MAX_AXES and min(shape, default=1) > 0
    if dtype.kind != "f" or not fits:
        raise ConfigError(f"{where}: holds {dtype} of shape {shape}; {wanted}")
    if len(data) - stream.tell() != size * dtype.itemsize:
        raise ConfigError(f"{where}: is damaged: it does not hold {size:,} numbers, as it says")
    flat = np.frombuffer(data, dtype, offset=stream.tell()).astype(float)
    return flat.reshape(shape, order="F" if fortran_order else "C")


def _read_bytes(path: Path) -> bytes:
    if not path.is_file():
        what = "is not a file" if path.exists() else "is not there"
        raise ConfigError(
            f"{path.name}: {what}; run from the repository root, or `git checkout {path.name}`"
        )
    if path.stat().st_size > MAX_BYTES:
        raise ConfigError(
            f"{path.name}: {path.stat().st_size:,} bytes; at most {MAX_BYTES:,} are read"
        )
    return path.read_bytes()
