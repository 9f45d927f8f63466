"""Files that params.yaml names: what they hold stands in the config in their place, and bad ones in
one line.
"""

import io
import re
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import Field, ValidationError

from pipeline.storage.params_file import read_input
from quatrain.section import ArraysOrNone, FileOrNone, NumbersOrNone, Section


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "inputs").mkdir()
    return tmp_path


class Naming(Section):
    numbers: NumbersOrNone = Field(description="a path to numbers")
    arrays: ArraysOrNone = Field(description="a path to arrays")
    text: FileOrNone = Field(description="a path to a text")


NOTHING: dict[str, Any] = {"numbers": None, "arrays": None, "text": None}


def naming(project: Path, **named: str) -> Naming:
    context = {"read_input": lambda name: read_input(project, str(name))}
    return Naming.model_validate(NOTHING | named, context=context)


def npy(array: Any, **how: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **how)
    return file.getvalue()


def npz(*, compressed: bool = False, **arrays: Any) -> bytes:
    file = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(file, **arrays)
    return file.getvalue()


def zipped(*members: tuple[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return file.getvalue()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f8"])
def test_the_numbers_of_a_file_replace_its_path(project: Path, dtype: str):
    values = np.linspace(0.1, 2.0, 7).astype(dtype)
    (project / "inputs" / "mine.npy").write_bytes(npy(values))
    config = naming(project, numbers="inputs/mine.npy")
    assert config.numbers is not None
    assert config.numbers.name == "inputs/mine.npy"
    assert config.numbers.numbers == tuple(float(value) for value in values)
    again = Naming.model_validate_json(config.model_dump_json())
    assert again == config
    assert hash(again) == hash(config)


@pytest.mark.parametrize("numbers", [["1.0"], [True], "1.0", 1.0])
def test_numbers_in_place_of_a_path_are_validated(numbers: Any):
    with pytest.raises(ValidationError):
        Naming.model_validate(NOTHING | {"numbers": {"name": "given", "numbers": numbers}})


def test_which_numbers_are_allowed_is_left_to_the_config_that_names_them(project: Path):
    (project / "inputs" / "mine.npy").write_bytes(npy(np.array([1.0, np.inf, np.nan, -1.0])))
    config = naming(project, numbers="inputs/mine.npy")
    assert config.numbers is not None
    np.testing.assert_array_equal(config.numbers.numbers, [1.0, np.inf, np.nan, -1.0])


def test_null_names_no_file(project: Path):
    assert naming(project) == Naming(numbers=None, arrays=None, text=None)


# Several arrays.


AXIS, VECTORS = np.linspace(-2, 2, 5), np.arange(30.0).reshape(5, 3, 2)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f8"])
def test_the_arrays_of_a_file_replace_its_path(project: Path, dtype: str, compressed: bool):
    content = npz(axis_0=AXIS.astype(dtype), vectors=VECTORS.astype(dtype), compressed=compressed)
    (project / "inputs" / "mine.npz").write_bytes(content)
    config = naming(project, arrays="inputs/mine.npz")
    assert config.arrays is not None
    assert config.arrays.name == "inputs/mine.npz"
    assert [(single.name, single.shape) for single in config.arrays.arrays] == [
        ("axis_0", (5,)),
        ("vectors", (5, 3, 2)),
    ]
    assert [single.nested for single in config.arrays.arrays] == [nested(AXIS), nested(VECTORS)]
    again = Naming.model_validate_json(config.model_dump_json())
    assert again == config
    assert hash(again) == hash(config)


def nested(array: np.ndarray) -> Any:
    return tuple(map(nested, array)) if array.ndim else float(array)


def test_an_array_that_lies_in_another_order_is_the_same(project: Path):
    (project / "inputs" / "mine.npz").write_bytes(npz(vectors=np.asfortranarray(VECTORS)))
    config = naming(project, arrays="inputs/mine.npz")
    assert config.arrays is not None
    assert config.arrays.arrays[0].nested == nested(VECTORS)


def test_an_array_without_axes_is_a_number(project: Path):
    (project / "inputs" / "mine.npz").write_bytes(npz(speed=1.5))
    config = naming(project, arrays="inputs/mine.npz")
    assert config.arrays is not None
    assert (config.arrays.arrays[0].shape, config.arrays.arrays[0].numbers) == ((), (1.5,))


@pytest.mark.parametrize(
    ("array", "line"),
    [
        (
            {"shape": [2, 3], "numbers": [1.0] * 5},
            "a: shape (2, 3) does not hold 5 numbers; mend one",
        ),
        ({"shape": [0, 3], "numbers": []}, "greater than or equal to 1"),
        ({"shape": [1], "numbers": ["1.0"]}, "valid number"),
        ({"shape": [1.0], "numbers": [1.0]}, "valid integer"),
    ],
)
def test_arrays_in_place_of_a_path_are_validated(array: dict[str, Any], line: str):
    with pytest.raises(ValidationError, match=re.escape(line)):
        Naming.model_validate(
            NOTHING | {"arrays": {"name": "given", "arrays": [{"name": "a"} | array]}}
        )


def npy_header(shape: tuple[int, ...]) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": "<f8", "fortran_order": False, "shape": shape}
    )
    return file.getvalue()


NUMBERS = npy(np.ones(600))
ARRAYS = npz(axis_0=AXIS, vectors=VECTORS)
NO_ARRAYS = "mine.npz: is no .npz file, or damaged; write one with numpy.savez"
ARRAYS_OF_FLOATS = "numpy.savez arrays of dtype float, with something in each"


def smaller(archive: bytes, size: int) -> bytes:
    """Returns the archive with a false uncompressed size of each member."""
    for mark, place in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        at = archive.index(mark) + place
        archive = archive[:at] + size.to_bytes(4, "little") + archive[at + 4 :]
    return archive


BOMB = zipped(("vectors.npy", bytes(60_000_000)), compression=zipfile.ZIP_DEFLATED)
DAMAGED_ARRAYS = {
    "empty": (b"", NO_ARRAYS),
    "a text": (b"1.0\n2.0\n", NO_ARRAYS),
    "a pickle": (b"\x80\x04N.", NO_ARRAYS),
    "an array": (NUMBERS, NO_ARRAYS),
    "cut off": (ARRAYS[:-3], NO_ARRAYS),
    "cut off in the middle": (ARRAYS[: len(ARRAYS) // 2], NO_ARRAYS),
    "a bit turned": (
        ARRAYS.replace(np.float64(2).tobytes(), np.float64(3).tobytes(), 1),
        NO_ARRAYS,
    ),
    "another compression": (
        zipped(("axis_0.npy", NUMBERS), compression=zipfile.ZIP_LZMA),
        NO_ARRAYS,
    ),
    "a name twice": (zipped(("a.npy", NUMBERS), ("a", NUMBERS)), NO_ARRAYS),
    "more than it claims": (smaller(BOMB, 150_000), NO_ARRAYS),
    "unfolds": (BOMB, "mine.npz: unfolds to 60,000,000 bytes; at most 200,000 are read"),
    "unfolds together": (
        npz(**{f"axis_{i}": np.zeros(9000) for i in range(3)}, compressed=True),
        "mine.npz: unfolds to 216,384 bytes; at most 200,000 are read",
    ),
    "too large": (npz(axis_0=np.ones(25_000)), "mine.npz: 200,266 bytes; at most 200,000 are read"),
    "no array in it": (
        zipped(("notes.txt", b"by hand")),
        "mine.npz: notes.txt: is no .npy file; write one with numpy.save",
    ),
    "code in a header": (
        zipped(("axis_0.npy", NUMBERS.replace(b"(600,)", b"exit()"))),
        "mine.npz: axis_0: is no .npy file; write one with numpy.save",
    ),
    "less than it says": (
        zipped(("axis_0.npy", NUMBERS[:-8])),
        "mine.npz: axis_0: is damaged: it does not hold 600 numbers, as it says",
    ),
    "claims terabytes": (
        zipped(("axis_0.npy", npy_header((9 * 10**12,)))),
        "mine.npz: axis_0: is damaged: it does not hold 9,000,000,000,000 numbers, as it says",
    ),
    "nothing, very often": (
        zipped(("axis_0.npy", npy_header((9 * 10**12, 0)))),
        f"mine.npz: axis_0: holds float64 of shape (9000000000000, 0); {ARRAYS_OF_FLOATS}",
    ),
    "nothing": (
        npz(axis_0=AXIS[:0]),
        f"mine.npz: axis_0: holds float64 of shape (0,); {ARRAYS_OF_FLOATS}",
    ),
    "many axes": (
        npz(vectors=np.ones((1,) * 9)),
        f"mine.npz: vectors: holds float64 of shape (1, 1, 1, 1, 1, 1, 1, 1, 1); "
        f"{ARRAYS_OF_FLOATS}",
    ),
    "less than nothing": (
        zipped(("axis_0.npy", npy_header((-2, -300)) + bytes(4800))),
        f"mine.npz: axis_0: holds float64 of shape (-2, -300); {ARRAYS_OF_FLOATS}",
    ),
    "whole numbers": (
        npz(axis_0=AXIS, axis_1=np.arange(7)),
        f"mine.npz: axis_1: holds int64 of shape (7,); {ARRAYS_OF_FLOATS}",
    ),
    "complex numbers": (
        npz(vectors=np.ones((3, 5), complex)),
        f"mine.npz: vectors: holds complex128 of shape (3, 5); {ARRAYS_OF_FLOATS}",
    ),
    "objects": (
        npz(vectors=np.array([None, 1.0])),
        f"mine.npz: vectors: holds object of shape (2,); {ARRAYS_OF_FLOATS}",
    ),
}


@pytest.mark.parametrize("case", DAMAGED_ARRAYS)
def test_a_file_that_holds_no_arrays_is_refused_in_one_line(case: str, project: Path):
    content, message = DAMAGED_ARRAYS[case]
    (project / "inputs" / "mine.npz").write_bytes(content)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        read_input(project, "inputs/mine.npz")


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
    assert all(
        re.fullmatch(r"mine\.npz: .*(numpy\.savez? ?.*|are read|as it says)", line)
        for line in refused
    )


@pytest.mark.parametrize("claimed", [150_000, 60_000_000])
def test_compressed_files_cannot_exceed_the_size_limit(claimed: int, project: Path):
    (project / "inputs" / "mine.npz").write_bytes(smaller(BOMB, claimed))
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"^mine\.npz: "):
        read_input(project, "inputs/mine.npz")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 2_000_000


DAMAGED = {
    "empty": (b"", "mine.npy: is no .npy file; write one with numpy.save"),
    "a text": (b"1.0\n2.0\n", "mine.npy: is no .npy file; write one with numpy.save"),
    "a pickle": (b"\x80\x04N.", "mine.npy: is no .npy file; write one with numpy.save"),
    "of a later version": (
        NUMBERS.replace(b"Y\x01", b"Y\x03"),
        "mine.npy: is no .npy file; write one with numpy.save",
    ),
    "cut off in its header": (NUMBERS[:40], "mine.npy: is no .npy file; write one with numpy.save"),
    "code in its header": (
        NUMBERS.replace(b"(600,)", b"exit()"),
        "mine.npy: is no .npy file; write one with numpy.save",
    ),
    "a length that is no number": (
        npy_header((True,)) + bytes(8),
        "mine.npy: is no .npy file; write one with numpy.save",
    ),
    "brackets that do not close": (
        NUMBERS.replace(b"{'descr'", b"((('descr'"),
        "mine.npy: is no .npy file; write one with numpy.save",
    ),
    "cut off": (NUMBERS[:-3], "mine.npy: is damaged: it does not hold 600 numbers, as it says"),
    "too long": (NUMBERS + b"\0", "mine.npy: is damaged: it does not hold 600 numbers, as it says"),
    "claims terabytes": (
        npy_header((9 * 10**12,)),
        "mine.npy: is damaged: it does not hold 9,000,000,000,000 numbers, as it says",
    ),
    "two axes": (
        npy(np.ones((3, 5))),
        "mine.npy: holds float64 of shape (3, 5); numpy.save an array with one axis and "
        "dtype float",
    ),
    "no axis": (
        npy(1.5),
        "mine.npy: holds float64 of shape (); numpy.save an array with one axis and dtype float",
    ),
    "whole numbers": (
        npy(np.arange(7)),
        "mine.npy: holds int64 of shape (7,); numpy.save an array with one axis and dtype float",
    ),
    "objects": (
        npy(np.array([None, 1.0]), allow_pickle=True),
        "mine.npy: holds object of shape (2,); numpy.save an array with one axis and dtype float",
    ),
    "too large": (npy(np.ones(25_000)), "mine.npy: 200,128 bytes; at most 200,000 are read"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_file_that_holds_no_numbers_is_refused_in_one_line(case: str, project: Path):
    content, message = DAMAGED[case]
    (project / "inputs" / "mine.npy").write_bytes(content)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        read_input(project, "inputs/mine.npy")


@pytest.mark.parametrize(
    ("named", "message"),
    [
        (
            {"numbers": "inputs/mine.txt"},
            "inputs/mine.txt is no .npy file; write one with numpy.save",
        ),
        (
            {"numbers": "inputs/nein.npy"},
            "inputs/nein.npy is not there; did you mean 'inputs/mine.npy'?",
        ),
        (
            {"numbers": "../mine.npy"},
            "../mine.npy is outside inputs/; copy the file there and name it by that path",
        ),
        ({"text": "inputs/mine.npy"}, "inputs/mine.npy holds numbers; name a text file"),
        ({"text": "inputs/mine.npz"}, "inputs/mine.npz holds numbers; name a text file"),
        (
            {"arrays": "inputs/mine.npy"},
            "inputs/mine.npy is no .npz file; write one with numpy.savez",
        ),
        (
            {"numbers": "inputs/mine.npz"},
            "inputs/mine.npz is no .npy file; write one with numpy.save",
        ),
    ],
)
def test_a_path_to_the_wrong_kind_of_file_is_refused(
    named: dict[str, str], message: str, project: Path
):
    (project / "inputs" / "mine.npy").write_bytes(NUMBERS)
    (project / "inputs" / "mine.txt").write_text("1.0\n")
    with pytest.raises(ValidationError, match=re.escape(f"Value error, {message} [")):
        naming(project, **named)


@pytest.mark.parametrize(
    ("field", "path"), [("numbers", "a.npy"), ("arrays", "a.npz"), ("text", "a.txt")]
)
def test_a_path_without_a_reader_raises_with_the_remedy(field: str, path: str):
    message = (
        f"'{path}' is a path; give {{'name': ..., '{field}': ...}} in its place, or a reader "
        f"as context"
    )
    with pytest.raises(ValidationError, match=re.escape(message)):
        Naming.model_validate(NOTHING | {field: path})
