"""Bytes that somebody else made, each of a kind that a parser could be fooled with."""

import io
import json
import random
import struct
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from pipeline.storage.formats import ArraySpec, FormatError, decode, encode

ARRAYS = {"train/x": np.arange(15, dtype=np.int32).reshape(3, 5), "y": np.linspace(0, 1, 7)}
CONTENTS: dict[str, Any] = {
    "a.npz": ARRAYS,
    "a.safetensors": ARRAYS,
    "a.json": {"name": "rooms — 4", "sizes": [3, 5.5], "seed": None},
    "a.csv": "step,loss\n100,0.25\n",
    "a.png": b"\x89PNG\r\n\x1a\n" + bytes(range(256)),
}


def declared(specs: Mapping[str, Any]) -> dict[str, ArraySpec]:
    return {name: ArraySpec.model_validate(spec) for name, spec in specs.items()}


def spec(dtype: str, *shape: int) -> dict[str, Any]:
    return {"x": {"dtype": dtype, "shape": list(shape)}}


def npz(members: list[tuple[str, bytes]], compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return buffer.getvalue()


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def npy_header(dtype: str, *shape: int) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer, {"descr": dtype, "fortran_order": False, "shape": shape}
    )
    return buffer.getvalue()


def safetensors(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(dtype: str, shape: list[int], start: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


X = npy(np.arange(2, dtype=np.int8))
BYTES = spec("int8", 2)
TENSOR = tensor("I8", [2], 0, 2)
HOSTILE: dict[str, tuple[str, bytes, dict[str, Any], str]] = {
    "npz: empty": ("a.npz", b"", BYTES, "is declared to hold more than its 0 bytes"),
    "npz: no zip": ("a.npz", b"not a zip", BYTES, "BadZipFile"),
    "npz: another member": ("a.npz", npz([("y.npy", X)]), BYTES, "exactly the declared arrays: ['x', 'y']"),
    "npz: a member more": ("a.npz", npz([("x.npy", X), ("y.npy", X)]), BYTES, "declared arrays: ['y']"),
    "npz: a path": ("a.npz", npz([("../x.npy", X)]), BYTES, "declared arrays: ['../x', 'x']"),
    "npz: an absolute path": ("a.npz", npz([("/x.npy", X)]), BYTES, "declared arrays: ['/x', 'x']"),
    "npz: zip bomb": (
        "a.npz", npz([("x.npy", bytes(2**22))], zipfile.ZIP_DEFLATED), BYTES, "compressed or oversized",
    ),
    "npz: compressed": (
        "a.npz", npz([("x.npy", X)], zipfile.ZIP_DEFLATED), BYTES, "a compressed or oversized member",
    ),
    "npz: object array": (
        "a.npz",
        npz([("x.npy", npy_header("|O", 2) + b"\x80\x04cos\nsystem\n")]),
        spec("int64", 2),
        "array 'x' is object [2], but declared as int64 [2]",
    ),
    "npz: terabyte header": (
        "a.npz",
        npz([("x.npy", npy_header("|i1", 2**40) + b"12")]),
        BYTES,
        "array 'x' is int8 [1099511627776], but declared as int8 [2]",
    ),
    "npz: terabytes in header and manifest": (
        "a.npz",
        npz([("x.npy", npy_header("|i1", 2**40) + b"12")]),
        spec("int8", 2**40),
        "is declared to hold more than its",
    ),
    "npz: too little data": (
        "a.npz", npz([("x.npy", npy_header("|i1", 2) + b"1")]), BYTES, "ValueError: cannot reshape",
    ),
    "npz: too much data": (
        "a.npz", npz([("x.npy", npy_header("|i1", 2) + b"123")]), BYTES, "ValueError: cannot reshape",
    ),
    "npz: Fortran order": (
        "a.npz",
        npz([("x.npy", npy(np.ones((2, 3), np.int8, order="F")))]),
        spec("int8", 2, 3),
        "array 'x' is int8 [2, 3] in Fortran order, but declared as int8 [2, 3]",
    ),
    "npz: npy of version 3": (
        "a.npz", npz([("x.npy", X.replace(b"NUMPY\x01", b"NUMPY\x03"))]), BYTES, "not of npy version 1.0",
    ),
    "npz: code in the header": (
        "a.npz", npz([("x.npy", X.replace(b"(2,)", b"f(2)"))]), BYTES, "cannot be read (ValueError",
    ),
    "npz: NaN": ("a.npz", npz([("x.npy", npy(np.asarray([np.nan])))]), spec("float64", 1), "NaN or infinity"),
    "safetensors: empty": ("a.safetensors", b"", {}, "cannot be read (error: unpack_from requires"),
    "safetensors: terabyte of header": (
        "a.safetensors",
        safetensors({"x": TENSOR}, b"12", 2**40),
        BYTES,
        "claims a header of 1,099,511,627,776 bytes, but has 70",
    ),
    "safetensors: terabyte of data": (
        "a.safetensors", safetensors({"x": tensor("I8", [2**40], 0, 2**40)}, b"12"), BYTES, "SafetensorError",
    ),
    "safetensors: offsets outside": (
        "a.safetensors", safetensors({"x": tensor("I8", [2], 8, 10)}, b"12"), BYTES, "SafetensorError",
    ),
    "safetensors: overlapping": (
        "a.safetensors",
        safetensors({"x": TENSOR, "y": TENSOR}, b"12"),
        BYTES | {"y": BYTES["x"]},
        "SafetensorError",
    ),
    "safetensors: an array more": (
        "a.safetensors",
        safetensors({"x": TENSOR, "y": tensor("I8", [1], 2, 3)}, b"123"),
        BYTES,
        "exactly the declared arrays: ['y']",
    ),
    "safetensors: metadata": (
        "a.safetensors", safetensors({"x": TENSOR, "__metadata__": {}}, b"12"), BYTES, "['__metadata__']",
    ),
    "safetensors: equal names": (
        "a.safetensors",
        safetensors(f'{{"x": {json.dumps(TENSOR)}, "x": {json.dumps(TENSOR)}}}'.encode(), b"12"),
        BYTES,
        "holds the key 'x' twice",
    ),
    "safetensors: unknown dtype": (
        "a.safetensors", safetensors({"x": tensor("BF16", [1], 0, 2)}, b"12"), BYTES, "(KeyError: 'BF16')",
    ),
    "safetensors: other dtype": (
        "a.safetensors", safetensors({"x": tensor("U8", [2], 0, 2)}, b"12"), BYTES, "x' is uint8 [2], but",
    ),
    "safetensors: infinity": (
        "a.safetensors",
        safetensors({"x": tensor("F16", [1], 0, 2)}, np.float16(np.inf).tobytes()),
        spec("float16", 1),
        "array 'x' holds NaN or infinity",
    ),
    "safetensors: header nested deep": ("a.safetensors", safetensors(b"[" * 10**5), {}, "RecursionError"),
    "json: empty": ("a.json", b"", {}, "JSONDecodeError"),
    "json: equal keys": ("a.json", b'{"a": {"b": 1, "b": 1}}', {}, "holds the key 'b' twice"),
    "json: NaN": ("a.json", b'{"a": [NaN]}', {}, "holds the number NaN, which is not finite"),
    "json: infinity": ("a.json", b"-Infinity", {}, "holds the number -Infinity"),
    "json: beyond the largest float": ("a.json", b"1e999", {}, "holds the number 1e999"),
    "json: integer of 5000 digits": ("a.json", b"9" * 5000, {}, "cannot be read (ValueError"),
    "json: two values": ("a.json", b"{}{}", {}, "cannot be read (JSONDecodeError: Extra data"),
    "json: not UTF-8": ("a.json", b'"\xff"', {}, "cannot be read (UnicodeDecodeError"),
    "csv: not UTF-8": ("a.csv", b"\xff\xfe", {}, "cannot be read (UnicodeDecodeError"),
    "png: a pickle": ("a.png", b"\x80\x04.", {}, "does not begin as a PNG file does"),
    "pkl": ("a.pkl", b"\x80\x04.", {}, "has an unknown ending; known: .npz"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_are_refused(name: str) -> None:
    file, data, specs, message = HOSTILE[name]
    with pytest.raises(FormatError) as error:
        decode(file, data, declared(specs))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_zip_with_two_members_of_one_name_is_refused() -> None:
    with pytest.raises(FormatError, match="declared arrays: one twice"):
        decode("a.npz", npz([("x.npy", X), ("x.npy", X)]), declared(BYTES))


@pytest.mark.parametrize("name", CONTENTS)
def test_flipped_bits_without_any_hash_end_in_a_value_of_the_declared_shape_or_in_a_refusal(
    name: str,
) -> None:
    data, specs = encode(name, CONTENTS[name])
    flips = random.Random(name)
    for _ in range(200):
        flipped = bytearray(data)
        flipped[flips.randrange(len(data))] ^= 1 << flips.randrange(8)
        try:
            content = decode(name, bytes(flipped), declared(specs))
        except FormatError:
            continue
        assert {key: spec.shape for key, spec in declared(specs).items()} == (
            {key: list(array.shape) for key, array in content.items()} if specs else {}
        )


@pytest.mark.parametrize("tenths", range(10))
@pytest.mark.parametrize("name", ["a.npz", "a.safetensors"])
def test_truncated_arrays_are_refused_without_any_hash(name: str, tenths: int) -> None:
    data, specs = encode(name, ARRAYS)
    with pytest.raises(FormatError):
        decode(name, data[: len(data) * tenths // 10], declared(specs))


def test_numpy_and_safetensors_read_what_is_written() -> None:
    with np.load(io.BytesIO(encode("a.npz", ARRAYS)[0]), allow_pickle=False) as found:
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(found[name], array, strict=True)
    content = decode("a.safetensors", *_with_specs("a.safetensors"))
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(content[name], array, strict=True)


def _with_specs(name: str) -> tuple[bytes, dict[str, ArraySpec]]:
    data, specs = encode(name, ARRAYS)
    return data, declared(specs)
