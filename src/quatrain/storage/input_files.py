"""a file that a config names -> its text, numbers or arrays, or one line that says what is wrong
with it.
"""

import io
import math
import tokenize
import zipfile
import zlib
from pathlib import Path

import numpy as np

from quatrain.errors import ConfigError
from quatrain.section import ARRAYS, NUMBERS, Content, NamedArray
from quatrain.storage.disk_errors import MACHINE, escaped
from quatrain.storage.formats import PARSER_ERRORS

MAX_BYTES = 200_000
MAX_AXES = 8
# Readers of .npy headers by version; numpy writes the second where the first is too short.
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def read_content(path: Path) -> Content:
    """Returns the numbers, arrays or text of a file that a config names, by the ending of its name.

    Raises:
        ConfigError: it is missing, not a regular file, too large or damaged.
    """
    if path.suffix == ARRAYS:
        return read_arrays(path)
    return read_numbers(path) if path.suffix == NUMBERS else read_text(path)


def read_text(path: Path) -> str:
    """Returns the file's text.

    Raises:
        ConfigError: it is missing, not a regular file, too large or not UTF-8.
    """
    try:
        return _read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path.name}: byte {error.start} is not UTF-8; save the file as UTF-8"
        ) from None


def read_numbers(path: Path) -> tuple[float, ...]:
    """Returns the numbers of an .npy file with one axis of floats; executes nothing in it."""
    return tuple(
        _parse_array(
            path.name,
            _read_bytes(path),
            "numpy.save an array with one axis and dtype float",
            axes=1,
        ).tolist()
    )


def read_arrays(path: Path) -> tuple[NamedArray, ...]:
    """Returns the float arrays of an .npz file, which may be compressed; executes nothing in it."""
    remedy = "numpy.savez arrays of dtype float, with something in each"
    arrays = []
    for name, data in _read_members(path).items():
        array = _parse_array(f"{path.name}: {name}", data, remedy)
        arrays.append(
            NamedArray(name=name, shape=array.shape, numbers=tuple(array.ravel().tolist()))
        )
    return tuple(arrays)


def _read_members(path: Path) -> dict[str, bytes]:
    """Returns the members of an archive; refuses it before anything is decompressed beyond the
    limit.
    """
    data = _read_bytes(path)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            size = sum(member.file_size for member in members)
            if size > MAX_BYTES:
                raise ConfigError(
                    f"{path.name}: unfolds to {size:,} bytes; at most {MAX_BYTES:,} are read"
                )
            contents: dict[str, bytes] = {}
            for member in members:
                name = member.filename.removesuffix(NUMBERS)
                if name in contents or member.compress_type not in COMPRESSIONS:
                    raise zipfile.BadZipFile
                # `archive.read` would decompress everything before it cuts to the size that is
                # claimed.
                with archive.open(member) as stream:
                    contents[name] = stream.read(member.file_size + 1)
            return contents
    except ConfigError:
        raise
    except (*PARSER_ERRORS, zipfile.BadZipFile, zlib.error):
        raise ConfigError(
            f"{path.name}: is no {ARRAYS} file, or damaged; write one with numpy.savez"
        ) from None


def _parse_array(name: str, data: bytes, remedy: str, axes: int | None = None) -> np.ndarray:
    """Returns the floats of an .npy file; compares its header with its length before anything is
    allocated.
    """
    stream = io.BytesIO(data)
    try:
        shape, is_fortran, dtype = HEADERS[np.lib.format.read_magic(stream)](stream)
        # numpy accepts True as a length.
        if any(type(length) is not int for length in shape):
            raise TypeError
    except (*PARSER_ERRORS, tokenize.TokenError):
        raise ConfigError(f"{name}: is no {NUMBERS} file; write one with numpy.save") from None
    if axes is not None:
        has_valid_shape = len(shape) == axes
    else:
        has_valid_shape = len(shape) <= MAX_AXES and min(shape, default=1) > 0
    if dtype.kind != "f" or not has_valid_shape:
        raise ConfigError(f"{name}: holds {dtype} of shape {shape}; {remedy}")
    size = math.prod(shape)
    if len(data) - stream.tell() != size * dtype.itemsize:
        raise ConfigError(f"{name}: is damaged: it does not hold {size:,} numbers, as it says")
    return (
        np.frombuffer(data, dtype, offset=stream.tell())
        .astype(float)
        .reshape(shape, order="F" if is_fortran else "C")
    )


def _read_bytes(path: Path) -> bytes:
    name = escaped(path.name)
    try:
        if not path.is_file():
            reason = "is not a file" if path.exists() else "is not there"
            raise ConfigError(
                f"{name}: {reason}; run from the repository root, or `git checkout {name}`"
            )
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise ConfigError(f"{name}: {size:,} bytes; at most {MAX_BYTES:,} are read")
        return path.read_bytes()
    except OSError as error:
        if error.errno in MACHINE:
            raise
        raise ConfigError(f"{name[:80]}: cannot be read ({error.strerror})") from None
