"""content <-> bytes of one file: npz, safetensors, JSON, text, PNG. Equal content, equal bytes; no pickle."""

import io
import json
import math
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Annotated, Any, Literal, NamedTuple, get_args

import numpy as np
import safetensors.numpy
from pydantic import BaseModel, ConfigDict, Field
from safetensors import SafetensorError

from pipeline.runtime.errors import PipelineError

OF_ARRAYS = (".npz", ".safetensors")
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
FOREIGN = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    EOFError,
    MemoryError,
    ArithmeticError,
    RuntimeError,  # an encrypted member; brackets nested too deep
    struct.error,
    zipfile.BadZipFile,
    SafetensorError,
)
"""What the libraries below raise on what is not theirs."""

Arrays = dict[str, np.ndarray]
DType = Literal[
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64",
]  # fmt: skip
# No part of a name begins with a dot, so that none leads out of a folder.
ArrayName = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*$")
]


class FormatError(PipelineError):
    """Says why content or bytes are not of the format that a file's name announces."""

    exit_code = 3


class ArraySpec(BaseModel):
    """dtype and shape of an array, known before its file is parsed."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    dtype: DType
    shape: list[Annotated[int, Field(ge=0, lt=2**48)]] = Field(max_length=32)

    @property
    def nbytes(self) -> int:
        """A Python int, which no shape overflows."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


Specs = Mapping[str, ArraySpec]


class Format(NamedTuple):
    """How files with one ending are written, and read against what was declared of their arrays."""

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes, Specs], Any]


def encode(name: str, content: Any) -> tuple[bytes, dict[str, Any]]:
    """The bytes of a file of this name, and what to declare of its arrays (specs as JSON).

    Raises:
        FormatError: the content is not what the name's ending announces, or not finite.
    """
    form = _format(name)
    try:
        if PurePath(name).suffix not in OF_ARRAYS:
            return form.encode(content), {}
        arrays = {key: _portable(key, content[key]) for key in sorted(content)}
        return form.encode(arrays), {
            key: _spec_of(array).model_dump() for key, array in arrays.items()
        }
    except FOREIGN as error:
        raise FormatError(f"cannot be written ({_one_line(error)})") from None


def decode(name: str, data: bytes, declared: Specs) -> Any:
    """The content of a file of this name; arrays are exactly those declared, finite and writable.

    Raises:
        FormatError: the bytes are not of this format, or not what was declared.
    """
    form = _format(name)
    if sum(spec.nbytes for spec in declared.values()) > len(data):
        raise FormatError(f"is declared to hold more than its {len(data):,} bytes")
    try:
        content = form.decode(data, declared)
        for key, spec in declared.items():
            _verify(key, content[key], spec)
    except FOREIGN as error:
        raise FormatError(f"cannot be read ({_one_line(error)})") from None
    return content


def _format(name: str) -> Format:
    suffix = PurePath(name).suffix
    if suffix not in FORMATS:
        raise FormatError(f"has an unknown ending; known: {', '.join(FORMATS)}")
    return FORMATS[suffix]


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


# Arrays.


def _portable(name: str, value: Any) -> np.ndarray:
    """In C order and the machine's byte order; safetensors would write other orders as they lie in memory."""
    array = np.asarray(value, order="C")
    if array.dtype.name not in get_args(DType):
        raise FormatError(
            f"array {name!r} has dtype {array.dtype}; known: {', '.join(get_args(DType))}"
        )
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    _verify(name, array, _spec_of(array))
    return array


def _spec_of(array: np.ndarray) -> ArraySpec:
    return ArraySpec.model_validate({"dtype": array.dtype.name, "shape": list(array.shape)})


def _verify(name: str, array: np.ndarray, spec: ArraySpec) -> None:
    if array.dtype.name != spec.dtype or list(array.shape) != spec.shape:
        found = f"{array.dtype} {list(array.shape)}"
        raise FormatError(f"array {name!r} is {found}, but declared as {spec.dtype} {spec.shape}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise FormatError(f"array {name!r} holds NaN or infinity")


def _same_names(found: list[str], declared: Specs) -> None:
    if sorted(found) != sorted(declared):
        differing = sorted(set(found) ^ set(declared)) or "one twice"
        raise FormatError(f"does not hold exactly the declared arrays: {differing}")


def _to_npz(arrays: Arrays) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            # A ZipInfo made by hand holds no clock: it says 1980.
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, version=(1, 0), allow_pickle=False)
    return buffer.getvalue()


def _from_npz(data: bytes, declared: Specs) -> Arrays:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = archive.infolist()
        _same_names([member.filename.removesuffix(".npy") for member in members], declared)
        # Not compressed and no longer than the file: nothing can unfold into more than was read.
        if any(m.compress_type != zipfile.ZIP_STORED or m.file_size > len(data) for m in members):
            raise FormatError("holds a compressed or oversized member")
        return {
            name: _from_npy(name, archive.read(f"{name}.npy"), spec)
            for name, spec in declared.items()
        }


def _from_npy(name: str, data: bytes, spec: ArraySpec) -> np.ndarray:
    """Like numpy's reader, but the header is held against the declaration before anything is allocated."""
    stream = io.BytesIO(data)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise FormatError(f"array {name!r} is not of npy version 1.0")
    shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(stream)
    if (dtype.name, list(shape), fortran_order) != (spec.dtype, spec.shape, False):
        found = f"{dtype} {list(shape)}{' in Fortran order' if fortran_order else ''}"
        raise FormatError(f"array {name!r} is {found}, but declared as {spec.dtype} {spec.shape}")
    return np.frombuffer(data, dtype, offset=stream.tell()).reshape(shape).copy()


def _from_safetensors(data: bytes, declared: Specs) -> Arrays:
    (length,) = struct.unpack_from("<Q", data)
    if length > len(data) - 8:
        raise FormatError(f"claims a header of {length:,} bytes, but has {len(data):,}")
    # The library keeps the last of two equal names; this reader refuses them.
    _same_names(list(_from_json(data[8 : 8 + length], {})), declared)
    return safetensors.numpy.load(data)


# JSON, text, pictures.


def to_json(value: Any) -> bytes:
    """Readable, and decided by the value alone."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, indent=2, sort_keys=True)
    return (text + "\n").encode()


def _from_json(data: bytes, _declared: Specs) -> Any:
    return json.loads(
        data.decode(),
        object_pairs_hook=_without_equal_keys,
        parse_constant=_finite,
        parse_float=_finite,
    )


def _without_equal_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        raise FormatError(f"holds the key {next(n for n in names if names.count(n) > 1)!r} twice")
    return value


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise FormatError(f"holds the number {text[:40]}, which is not finite")
    return number


def _to_text(text: str) -> bytes:
    return text.encode()


def _from_text(data: bytes, _declared: Specs) -> str:
    return data.decode()


def _to_png(picture: bytes) -> bytes:
    if not picture.startswith(PNG_SIGNATURE):
        raise FormatError("does not begin as a PNG file does")
    return picture


def _from_png(data: bytes, _declared: Specs) -> bytes:
    return _to_png(data)


FORMATS = {
    ".npz": Format(_to_npz, _from_npz),
    ".safetensors": Format(safetensors.numpy.save, _from_safetensors),
    ".json": Format(to_json, _from_json),
    ".csv": Format(_to_text, _from_text),
    ".txt": Format(_to_text, _from_text),
    ".png": Format(_to_png, _from_png),
}
