"""Files that params.yaml names: the config holds their content, bad ones are refused in a line."""

import io
import re
import signal
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from pydantic import Field, ValidationError

from pipeline.runtime.errors import Interrupted
from pipeline.storage.params_file import read_input
from quatrain.section import ArraysOrNone, FileOrNone, NumbersOrNone, Section
from tests.pipeline.fixture_types import Patch


class Naming(Section):
    numbers: NumbersOrNone = Field(description="a path to numbers")
    arrays: ArraysOrNone = Field(description="a path to arrays")
    text: FileOrNone = Field(description="a path to a text")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "inputs").mkdir()
    return tmp_path


NOTHING: dict[str, Any] = {"numbers": None, "arrays": None, "text": None}


def naming(project: Path, **named: str) -> Naming:
    context = {"read_input": lambda name: read_input(project, str(name))}
    return Naming.model_validate(NOTHING | named, context=context)


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npz(save: Any = np.savez, **arrays: Any) -> bytes:
    file = io.BytesIO()
    save(file, **arrays)
    return file.getvalue()


def zipped(*members: tuple[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return file.getvalue()


SIX = {"name": "a", "shape": [2, 3], "numbers": [1.0] * 5}
AXIS, VECTORS = np.linspace(-2, 2, 5), np.arange(30.0).reshape(5, 3, 2)


@pytest.mark.parametrize(("dtype", "save"), [("float16", np.savez), (">f8", np.savez_compressed)])
def test_the_content_of_files_replaces_their_paths(project: Path, dtype: str, save: Any):
    """Which numbers are allowed is left to the config that names them."""
    values = np.array([0.1, 2.0, np.inf, np.nan, -1.0]).astype(dtype)
    arrays = {
        "axis_0": AXIS.astype(dtype),
        "vectors": VECTORS.astype(dtype),
        "fortran": np.asfortranarray(VECTORS),
        "speed": np.asarray(1.5),
    }
    (project / "inputs" / "mine.npy").write_bytes(npy(values))
    (project / "inputs" / "mine.npz").write_bytes(npz(save, **arrays))
    config = naming(project, numbers="inputs/mine.npy", arrays="inputs/mine.npz")
    assert config.numbers
    assert config.arrays
    assert (config.numbers.name, config.arrays.name) == ("inputs/mine.npy", "inputs/mine.npz")
    np.testing.assert_array_equal(config.numbers.numbers, values.astype(float))
    for item, (name, array) in zip(config.arrays.arrays, arrays.items(), strict=True):
        assert (item.name, item.shape) == (name, array.shape)
        np.testing.assert_array_equal(np.reshape(item.numbers, item.shape), array)
    (project / "inputs" / "mine.npy").write_bytes(npy(values[:2]))
    finite = naming(project, numbers="inputs/mine.npy", arrays="inputs/mine.npz")
    again = Naming.model_validate_json(finite.model_dump_json())
    assert (again, hash(again)) == (finite, hash(finite))
    assert naming(project) == Naming(numbers=None, arrays=None, text=None)


@pytest.mark.parametrize(
    ("key", "content", "line"),
    [
        ("numbers", {"numbers": ["1.0"]}, "valid number"),
        ("arrays", {"arrays": [SIX]}, "a: shape (2, 3) does not hold 5 numbers; mend one"),
        ("arrays", {"arrays": [SIX | {"shape": [0, 3]}]}, "greater than or equal to 1"),
    ],
)
def test_content_in_place_of_a_path_is_validated(key: str, content: dict[str, Any], line: str):
    with pytest.raises(ValidationError, match=re.escape(line)):
        Naming.model_validate(NOTHING | {key: {"name": "given"} | content})
    path = {"numbers": "a.npy", "arrays": "a.npz"}[key]
    remedy = f"'{path}' is a path; give {{'name': ..., '{key}': ...}} in its place, or a reader as "
    with pytest.raises(ValidationError, match=re.escape(remedy)):
        Naming.model_validate(NOTHING | {key: path})


def npy_header(*shape: int) -> bytes:
    file = io.BytesIO()
    declared = {"descr": "<f8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, declared)
    return file.getvalue()


NUMBERS = npy(np.ones(600))
ARRAYS = npz(axis_0=AXIS, vectors=VECTORS)


def smaller(archive: bytes, size: int) -> bytes:
    """Returns the archive with a false uncompressed size of each member."""
    for mark, place in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        at = archive.index(mark) + place
        archive = archive[:at] + size.to_bytes(4, "little") + archive[at + 4 :]
    return archive


BOMB = zipped(("vectors.npy", bytes(60_000_000)), compression=zipfile.ZIP_DEFLATED)
CODE = NUMBERS.replace(b"(600,)", b"exit()")
NO_NPY = "is no .npy file, or damaged; write one with numpy.save"
NO_NPZ = "is no .npz file, or damaged; write one with numpy.savez"
ONE_AXIS = "numpy.save an array with one axis and dtype float"
NO_FLOATS = "a: holds no array of floats; numpy.savez arrays of dtype float, with something in each"
DAMAGED: list[tuple[str, bytes, str]] = [
    ("mine.npy", b"", NO_NPY),
    ("mine.npy", b"1.0\n2.0\n", NO_NPY),
    ("mine.npy", CODE, NO_NPY),
    ("mine.npy", NUMBERS[:-3], NO_NPY),
    ("mine.npy", NUMBERS + b"0", NO_NPY),
    ("mine.npy", npy(np.array([None])), NO_NPY),
    ("mine.npy", npy_header(9 * 10**12), NO_NPY),
    ("mine.npy", npy(np.ones((3, 5))), f"holds float64 of shape (3, 5); {ONE_AXIS}"),
    ("mine.npy", npy(np.arange(7)), f"holds int64 of shape (7,); {ONE_AXIS}"),
    ("mine.npy", npy(np.ones(25_000)), "200,128 bytes; at most 200,000 are read"),
    ("mine.npz", b"", NO_NPZ),
    ("mine.npz", ARRAYS[: len(ARRAYS) // 2], NO_NPZ),
    ("mine.npz", zipped(("axis_0.npy", NUMBERS), compression=zipfile.ZIP_LZMA), NO_NPZ),
    ("mine.npz", smaller(BOMB, 150_000), NO_NPZ),
    ("mine.npz", zipped(("a.npy", NUMBERS), ("a", NUMBERS)), NO_NPZ),
    ("mine.npz", zipped(("a.npy", NUMBERS + b"x")), NO_NPZ),
    ("mine.npz", BOMB, "unfolds to 60,000,000 bytes; at most 200,000 are read"),
    ("mine.npz", zipped(("a.npy", CODE)), NO_NPZ),
    ("mine.npz", zipped(("a.npy", npy_header(9 * 10**12))), NO_NPZ),
    ("mine.npz", npz(a=np.array([None])), NO_NPZ),
    ("mine.npz", npz(a=np.zeros((3, 0))), NO_FLOATS),
    ("mine.npz", npz(a=np.arange(3)), NO_FLOATS),
    ("mine.npz", zipped(("a.npy", b"text")), NO_NPZ),
]


@pytest.mark.parametrize(("name", "content", "message"), DAMAGED)
def test_a_file_that_holds_no_numbers_is_refused_in_one_line_and_never_unfolded(
    name: str, content: bytes, message: str, project: Path
):
    (project / "inputs" / name).write_bytes(content)
    tracemalloc.start()
    with pytest.raises(ValueError, match=f"^{re.escape(f'{name}: {message}')}$"):
        read_input(project, f"inputs/{name}")
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()


@pytest.mark.parametrize("name", ["mine.npy", "mine.npz"])
def test_an_interruption_while_a_file_is_read_stays_one(
    name: str, project: Path, monkeypatch: Patch
):
    monkeypatch.setattr(np, "load", Mock(side_effect=Interrupted(signal.SIGTERM)))
    (project / "inputs" / name).write_bytes(NUMBERS if name == "mine.npy" else ARRAYS)
    with pytest.raises(Interrupted):
        read_input(project, f"inputs/{name}")


def test_a_flipped_bit_never_changes_a_number(project: Path):
    """A flipped bit may hide an array or its name, which the config detects."""
    path = project / "inputs" / "mine.npz"
    result, refused = set(), []
    for bit in np.random.default_rng(0).choice(8 * len(ARRAYS), 200, replace=False):
        turned = bytearray(ARRAYS)
        turned[bit // 8] ^= 1 << bit % 8
        path.write_bytes(turned)
        try:
            result |= {single.numbers for single in read_input(project, "inputs/mine.npz")}
        except ValueError as error:
            refused.append(str(error))
    assert result == {tuple(array.ravel().tolist()) for array in (AXIS, VECTORS)}
    assert len(refused) > 100
    assert all(re.fullmatch(r"mine\.npz: .*(numpy\.savez.*|are read)", line) for line in refused)
