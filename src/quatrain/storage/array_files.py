"""bytes of an .npy or .npz file that a config names -> numbers or arrays, or one line that says
what is wrong with them.
"""

import io
import math
import tokenize
import zipfile
import zlib

import numpy as np

from quatrain.errors import ConfigError
from quatrain.section import ARRAYS, NUMBERS, NamedArray
from quatrain.storage.formats import PARSER_ERRORS
from quatrain.storage.input_files import MAX_BYTES

MAX_AXES = 8
# Readers of .npy headers by version; numpy writes the second where the first is too short.
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def parse_numbers(file: str, data: bytes) -> tuple[float, ...]:
    """Returns the numbers of an .npy file with one axis of floats; executes nothing in it.

    Raises:
        ConfigError: the data are of another form, or damaged.
    """
    remedy = "numpy.save an array with one axis and dtype float"
    return tuple(_parse_array(file, data, remedy, axes=1).tolist())


def parse_arrays(file: str, data: bytes) -> tuple[NamedArray, ...]:
    """Returns the float arrays of an .npz file, which may be compressed; executes nothing in it.

    Raises:
        ConfigError: the data are of another form, damaged, or too much when unfolded.
    """
    remedy = "numpy.savez arrays of dtype float, with something in each"
    arrays = []
    for name, member in _members(file, data).items():
        array = _parse_array(f"{file}: {name}", member, remedy)
        arrays.append(
            NamedArray(name=name, shape=array.shape, numbers=tuple(array.ravel().tolist()))
        )
    return tuple(arrays)


def _members(file: str, data: bytes) -> dict[str, bytes]:
    """Returns the members of an archive; refuses it before anything is decompressed beyond the
    limit.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            size = sum(member.file_size for member in members)
            if size > MAX_BYTES:
                raise ConfigError(
                    f"{file}: unfolds to {size:,} bytes; at most {MAX_BYTES:,} are read"
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
            f"{file}: is no {ARRAYS} file, or damaged; write one with numpy.savez"
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
