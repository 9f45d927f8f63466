"""Bytes that somebody else made, each of a kind that a parser could be fooled with."""

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from quatrain.storage.formats import DeclaredArray, FormatError, decode


def declared(specs: Mapping[str, Any]) -> dict[str, DeclaredArray]:
    return {name: DeclaredArray.model_validate(spec) for name, spec in specs.items()}


def spec(dtype: str, *shape: int) -> dict[str, Any]:
    return {"x": {"dtype": dtype, "shape": list(shape)}}


def safetensors(header: Any, data: bytes = b"12", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(dtype: str, shape: list[int], start: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


BYTES = spec("int8", 2)
TENSOR = tensor("I8", [2], 0, 2)
NOT_A_NUMBER = np.float64(np.nan).tobytes()
HOSTILE_ARRAYS: list[tuple[bytes, dict[str, Any], str]] = [
    (safetensors({"x": TENSOR}, length=2**40), BYTES, "SafetensorError"),
    (safetensors({"y": TENSOR}), BYTES, "exactly the declared arrays: ['x', 'y']"),
    (safetensors({"x": tensor("BF16", [1], 0, 2)}), BYTES, "(KeyError: 'BF16')"),
    (safetensors({"x": tensor("U8", [2], 0, 2)}), BYTES, "x' is uint8 [2], but"),
    (
        safetensors({"x": tensor("F64", [1], 0, 8)}, NOT_A_NUMBER),
        spec("float64", 1),
        "array 'x' holds NaN or infinity",
    ),
]
HOSTILE: list[tuple[str, bytes, str]] = [
    ("a.json", b'{"a": {"b": 1, "b": 1}}', "holds the key 'b' twice"),
    ("a.json", b'{"a": [NaN]}', "holds the number NaN, which is not finite"),
    ("a.json", b"1e999", "holds the number 1e999"),
    ("a.json", b"9" * 5000, "cannot be read (ValueError"),
    ("a.csv", b"\xff\xfe", "cannot be read (UnicodeDecodeError"),
    ("a.png", b"\x80\x04.", "does not begin as a PNG file does"),
    ("a.pkl", b"\x80\x04.", "has an unknown ending; known: .safetensors"),
]


@pytest.mark.parametrize(
    ("file", "data", "specs", "message"),
    [("a.safetensors", *case) for case in HOSTILE_ARRAYS]
    + [(file, data, {}, message) for file, data, message in HOSTILE],
)
def test_hostile_bytes_are_refused(file: str, data: bytes, specs: dict[str, Any], message: str):
    with pytest.raises(FormatError) as error:
        decode(file, data, declared(specs))
    assert message in str(error.value)
    assert "\n" not in str(error.value)
