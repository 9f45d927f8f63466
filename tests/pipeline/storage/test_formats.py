"""Bytes that somebody else made, each of a kind that a parser could be fooled with."""

import json
import random
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from pipeline.storage.formats import ArraySpec, FormatError, decode, encode

ARRAYS = {"train/x": np.arange(15, dtype=np.int32).reshape(3, 5), "y": np.linspace(0, 1, 7)}
CONTENTS: dict[str, Any] = {
    "a.safetensors": ARRAYS,
    "a.json": {"name": "rooms — 4", "sizes": [3, 5.5], "seed": None},
    "a.csv": "step,loss\n100,0.25\n",
    "a.png": b"\x89PNG\r\n\x1a\n" + bytes(range(256)),
}


def declared(specs: Mapping[str, Any]) -> dict[str, ArraySpec]:
    return {name: ArraySpec.model_validate(spec) for name, spec in specs.items()}


def spec(dtype: str, *shape: int) -> dict[str, Any]:
    return {"x": {"dtype": dtype, "shape": list(shape)}}


def safetensors(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(dtype: str, shape: list[int], start: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


BYTES = spec("int8", 2)
TENSOR = tensor("I8", [2], 0, 2)
HOSTILE: dict[str, tuple[str, bytes, dict[str, Any], str]] = {
    "safetensors: empty": ("a.safetensors", b"", {}, "cannot be read (error: unpack_from requires"),
    "safetensors: terabyte of header": (
        "a.safetensors",
        safetensors({"x": TENSOR}, b"12", 2**40),
        BYTES,
        "claims a header of 1,099,511,627,776 bytes, but has 70",
    ),
    "safetensors: terabyte of data": (
        "a.safetensors",
        safetensors({"x": tensor("I8", [2**40], 0, 2**40)}, b"12"),
        BYTES,
        "SafetensorError",
    ),
    "safetensors: offsets outside": (
        "a.safetensors",
        safetensors({"x": tensor("I8", [2], 8, 10)}, b"12"),
        BYTES,
        "SafetensorError",
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
        "a.safetensors",
        safetensors({"x": TENSOR, "__metadata__": {}}, b"12"),
        BYTES,
        "['__metadata__']",
    ),
    "safetensors: equal names": (
        "a.safetensors",
        safetensors(f'{{"x": {json.dumps(TENSOR)}, "x": {json.dumps(TENSOR)}}}'.encode(), b"12"),
        BYTES,
        "holds the key 'x' twice",
    ),
    "safetensors: unknown dtype": (
        "a.safetensors",
        safetensors({"x": tensor("BF16", [1], 0, 2)}, b"12"),
        BYTES,
        "(KeyError: 'BF16')",
    ),
    "safetensors: other dtype": (
        "a.safetensors",
        safetensors({"x": tensor("U8", [2], 0, 2)}, b"12"),
        BYTES,
        "x' is uint8 [2], but",
    ),
    "safetensors: another name": (
        "a.safetensors",
        safetensors({"y": TENSOR}, b"12"),
        BYTES,
        "exactly the declared arrays: ['x', 'y']",
    ),
    "safetensors: a path": (
        "a.safetensors",
        safetensors({"../x": TENSOR}, b"12"),
        BYTES,
        "declared arrays: ['../x', 'x']",
    ),
    "safetensors: terabytes in header and manifest": (
        "a.safetensors",
        safetensors({"x": tensor("I8", [2**40], 0, 2**40)}, b"12"),
        spec("int8", 2**40),
        "is declared to hold more than its",
    ),
    "safetensors: too much data": (
        "a.safetensors",
        safetensors({"x": TENSOR}, b"123"),
        BYTES,
        "SafetensorError",
    ),
    "safetensors: NaN": (
        "a.safetensors",
        safetensors({"x": tensor("F64", [1], 0, 8)}, np.float64(np.nan).tobytes()),
        spec("float64", 1),
        "NaN or infinity",
    ),
    "safetensors: infinity": (
        "a.safetensors",
        safetensors({"x": tensor("F16", [1], 0, 2)}, np.float16(np.inf).tobytes()),
        spec("float16", 1),
        "array 'x' holds NaN or infinity",
    ),
    "safetensors: header nested deep": (
        "a.safetensors",
        safetensors(b"[" * 10**5),
        {},
        "RecursionError",
    ),
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
    "pkl": ("a.pkl", b"\x80\x04.", {}, "has an unknown ending; known: .safetensors"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_are_refused(name: str) -> None:
    file, data, specs, message = HOSTILE[name]
    with pytest.raises(FormatError) as error:
        decode(file, data, declared(specs))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


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
def test_truncated_arrays_are_refused_without_any_hash(tenths: int) -> None:
    data, specs = encode("a.safetensors", ARRAYS)
    with pytest.raises(FormatError):
        decode("a.safetensors", data[: len(data) * tenths // 10], declared(specs))


def test_safetensors_reads_what_is_written() -> None:
    data, specs = encode("a.safetensors", ARRAYS)
    for content in (load(data), decode("a.safetensors", data, declared(specs))):
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(content[name], array, strict=True)
