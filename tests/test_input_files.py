"""Files that params.yaml names: numbers and texts stand with their content in the config, and bad ones in one line."""

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import Field, ValidationError

from pipeline.params import read_input
from quatrain.section import FileOrNone, NumbersOrNone, Section


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "inputs").mkdir()
    return tmp_path


class Naming(Section):
    numbers: NumbersOrNone = Field(description="a path to numbers")
    text: FileOrNone = Field(description="a path to a text")


def naming(project: Path, numbers: str | None = None, text: str | None = None) -> Naming:
    context = {"read_input": lambda name: read_input(project, str(name))}
    return Naming.model_validate({"numbers": numbers, "text": text}, context=context)


def npy(array: Any, **how: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **how)
    return file.getvalue()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f8"])
def test_a_file_of_numbers_stands_with_its_numbers_in_the_config(project: Path, dtype: str):
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
def test_numbers_that_are_given_in_place_of_a_path_are_numbers(numbers: Any):
    with pytest.raises(ValidationError):
        Naming.model_validate({"numbers": {"name": "given", "numbers": numbers}, "text": None})


def test_which_numbers_are_allowed_is_left_to_the_config_that_names_them(project: Path):
    (project / "inputs" / "mine.npy").write_bytes(npy(np.array([1.0, np.inf, np.nan, -1.0])))
    config = naming(project, numbers="inputs/mine.npy")
    assert config.numbers is not None
    np.testing.assert_array_equal(config.numbers.numbers, [1.0, np.inf, np.nan, -1.0])


def test_null_names_no_file(project: Path):
    assert naming(project) == Naming(numbers=None, text=None)


def npy_header(shape: tuple[int, ...]) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return file.getvalue()


NUMBERS = npy(np.ones(600))
DAMAGED = {
    "empty": (b"", "mine.npy: is no .npy file; write one with numpy.save"),
    "a text": (b"1.0\n2.0\n", "mine.npy: is no .npy file; write one with numpy.save"),
    "a pickle": (b"\x80\x04N.", "mine.npy: is no .npy file; write one with numpy.save"),
    "of a later version": (NUMBERS.replace(b"Y\x01", b"Y\x03"), "mine.npy: is no .npy file; write one with numpy.save"),
    "cut off in its header": (NUMBERS[:40], "mine.npy: is no .npy file; write one with numpy.save"),
    "code in its header": (
        NUMBERS.replace(b"(600,)", b"exit()"),
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
        "mine.npy: holds float64 of shape (3, 5); numpy.save an array with one axis and dtype float",
    ),
    "no axis": (npy(1.5), "mine.npy: holds float64 of shape (); numpy.save an array with one axis and dtype float"),
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
        ({"numbers": "inputs/mine.txt"}, "inputs/mine.txt is no .npy file; write one with numpy.save"),
        ({"numbers": "inputs/nein.npy"}, "inputs/nein.npy is not there; did you mean 'inputs/mine.npy'?"),
        ({"numbers": "../mine.npy"}, "../mine.npy is outside inputs/; copy the file there and name it by that path"),
        ({"text": "inputs/mine.npy"}, "inputs/mine.npy holds numbers; name a text file"),
    ],
)
def test_a_path_to_the_wrong_kind_of_file_is_refused(named: dict[str, str], message: str, project: Path):
    (project / "inputs" / "mine.npy").write_bytes(NUMBERS)
    (project / "inputs" / "mine.txt").write_text("1.0\n")
    with pytest.raises(ValidationError, match=re.escape(f"Value error, {message} [")):
        naming(project, **named)


@pytest.mark.parametrize(("field", "kind"), [("numbers", "numbers"), ("text", "text")])
def test_a_path_without_a_reader_says_what_stands_in_its_place(field: str, kind: str):
    path = {"numbers": "a.npy", "text": "a.txt"}[field]
    message = f"'{path}' is a path; give {{'name': ..., '{kind}': ...}} in its place, or a reader as context"
    with pytest.raises(ValidationError, match=re.escape(message)):
        Naming.model_validate({"numbers": None, "text": None, field: path})
