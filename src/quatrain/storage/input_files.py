"""a file that a config names -> its text, numbers or arrays, or one line that says what is wrong
with it.
"""

import io
import math
import zipfile
from pathlib import Path
from typing import Any

from quatrain.errors import ConfigError, QuatrainError
from quatrain.section import ARRAYS, NUMBERS, Content, NamedArray
from quatrain.storage.disk_errors import MACHINE, escaped

MAX_BYTES = 200_000
RESTORE = "run from the repository root, or restore it with `git checkout`"
# Those that zipfile unfolds piece by piece.
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def read_content(path: Path, remedy: str = RESTORE) -> Content:
    """Returns the numbers, arrays or text of a file that a config names, by the ending of its name.
    `remedy` tells what to do without it.

    Raises:
        ConfigError: it is missing, a folder, too large or damaged.
    """
    if path.suffix == NUMBERS:
        return _numbers(path.name, read_bytes(path, remedy))
    if path.suffix == ARRAYS:
        return _arrays(path.name, read_bytes(path, remedy))
    return read_text(path, remedy)


def read_text(path: Path, remedy: str = RESTORE) -> str:
    """Returns the file's text.

    Raises:
        ConfigError: it is missing, a folder, too large or not UTF-8.
    """
    try:
        return read_bytes(path, remedy).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path.name}: byte {error.start} is not UTF-8; save the file as UTF-8"
        ) from None


def read_bytes(path: Path, remedy: str) -> bytes:
    """Returns what a file holds.

    Raises:
        ConfigError: it is missing, a folder or too large.
    """
    name = escaped(path.name)
    try:
        if not path.is_file():
            reason = "is not a file" if path.exists() else "is not there"
            raise ConfigError(f"{name}: {reason}; {remedy}")
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise ConfigError(f"{name}: {size:,} bytes; at most {MAX_BYTES:,} are read")
        return path.read_bytes()
    except OSError as error:
        if error.errno in MACHINE:
            raise
        raise ConfigError(f"{name[:80]}: cannot be read ({error.strerror})") from None


def _numbers(file: str, data: bytes) -> tuple[float, ...]:
    """Returns the numbers of an .npy file with one axis of floats."""
    array = _load(file, data, NUMBERS, "numpy.save")
    if array.ndim != 1 or array.dtype.kind != "f":
        remedy = "numpy.save an array with one axis and dtype float"
        raise ConfigError(f"{file}: holds {array.dtype} of shape {array.shape}; {remedy}")
    return tuple(array.astype(float).tolist())


def _arrays(file: str, data: bytes) -> tuple[NamedArray, ...]:
    """Returns the float arrays of an .npz file, which may be compressed."""
    content = []
    for name, array in _load(file, data, ARRAYS, "numpy.savez").items():
        if getattr(array, "dtype", None) is None or array.dtype.kind != "f" or not array.size:
            remedy = "numpy.savez arrays of dtype float, with something in each"
            raise ConfigError(f"{file}: {name}: holds no array of floats; {remedy}")
        numbers = tuple(array.astype(float).ravel().tolist())
        content.append(NamedArray(name=name, shape=array.shape, numbers=numbers))
    return tuple(content)


def _load(file: str, data: bytes, ending: str, writer: str) -> Any:
    """Returns the array or arrays of a file; executes nothing in it."""
    try:
        return _members(file, data) if ending == ARRAYS else _array(data)
    except QuatrainError:  # an interruption, too, which is raised anywhere
        raise
    except Exception:  # whatever zipfile and NumPy raise for odd bytes
        raise ConfigError(
            f"{file}: is no {ending} file, or damaged; write one with {writer}"
        ) from None


def _array(data: bytes) -> Any:
    """Returns the array of an .npy file, which holds as many bytes as its header says."""
    import numpy as np  # for which a text does not wait

    stream = io.BytesIO(data)
    is_short = np.lib.format.read_magic(stream) == (1, 0)
    read = np.lib.format.read_array_header_1_0 if is_short else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    if math.prod(shape) * dtype.itemsize != len(data) - stream.tell():
        raise ValueError
    return np.load(io.BytesIO(data), allow_pickle=False)


def _members(file: str, data: bytes) -> dict[str, Any]:
    """Returns the arrays of an archive by name; refuses one that is damaged, has a name twice, or
    unfolds to more than may be read.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = archive.infolist()
        size = sum(member.file_size for member in members)
        if size > MAX_BYTES:
            raise ConfigError(f"{file}: unfolds to {size:,} bytes; at most {MAX_BYTES:,} are read")
        kinds = {member.compress_type for member in members}
        # Each member is unfolded in parts first: it may be larger than it claims.
        if not kinds <= {*COMPRESSIONS} or archive.testzip():
            raise zipfile.BadZipFile
        contents = {each.filename.removesuffix(NUMBERS): archive.read(each) for each in members}
        if len(contents) < len(members):
            raise zipfile.BadZipFile
        return {name: _array(content) for name, content in contents.items()}
