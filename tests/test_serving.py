"""Requests to served models: what is accepted, and the line that refuses all else."""

import re
from typing import Any

import numpy as np
import pytest

from quatrain.serving import (
    MOST_BYTES,
    MOST_QUESTIONS,
    Input,
    Served,
    answer,
    read_body,
    validate_request,
)

INPUTS = {
    "sizes": Input(np.int32, (), 1, 3),
    "places": Input(np.float32, (3, 2), 0, np.array([10, 0.1]), "sizes"),
    "before": Input(np.int32, (3,), -1, np.arange(3) - 1, "sizes"),
    "shade": Input(np.uint8, (2,), 0, 255),
}
"""Things with up to three places, each after another one; and a shade at two."""
PLACES = np.zeros((2, 3, 2))
FITTING = {
    "sizes": np.array([1, 3]),
    "places": PLACES,
    "before": np.array([[-1, -1, -1], [-1, 0, 1]]),
    "shade": np.array([[0, 255], [7, 7]]),
}


EMPTY = {name: array[:0] for name, array in FITTING.items()}


def shifted(*by: float) -> np.ndarray:
    return PLACES + np.array(by)


def validated(**changes: Any) -> dict[str, np.ndarray]:
    return validate_request("things", FITTING | changes, INPUTS)


def test_inputs_are_copied_in_order_and_in_their_dtypes():
    result = validate_request("things", dict(reversed(FITTING.items())), INPUTS)
    assert list(result) == list(INPUTS)
    again = validate_request("things", result, INPUTS)
    for name, array in result.items():
        assert array.dtype == INPUTS[name].dtype, name
        array[:] = 3
        np.testing.assert_array_equal(again[name], FITTING[name])


@pytest.mark.parametrize("kind", [np.float16, np.longdouble, np.int8, np.uint64])
def test_numbers_of_any_dtype_are_accepted(kind: type[np.generic]):
    assert validated(places=np.full((2, 3, 2), [4, 0], kind))["places"][1].tolist() == [[4, 0]] * 3


def test_limits_are_inclusive_after_rounding():
    assert float(np.float32(0.1)) > 0.1
    assert validated(places=np.full((2, 3, 2), 0.1))["places"][1, 2, 1] == np.float32(0.1)


def test_padding_is_ignored_and_replaced_by_the_least_value():
    places = np.full((2, 3, 2), 0.05)
    places[0, 1:] = [[np.nan, np.inf], [1e300, -1]]
    result = validated(before=[[-1, 10**12, -7], [-1, 0, 1]], places=places)
    assert result["before"].tolist() == [[-1, -1, -1], [-1, 0, 1]]
    assert result["places"][0, 1:].tolist() == [[0, 0], [0, 0]]
    assert (result["places"][1] == np.float32(0.05)).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sizes": [1, 4]}, "sizes[1] is 4; give whole numbers in 1..3"),
        ({"sizes": [1, 2**32 + 1]}, "sizes[1] is 4294967297; give whole numbers in 1..3"),
        ({"shade": [[0, 256], [0, 0]]}, "shade[0, 1] is 256; give whole numbers in 0..255"),
        ({"before": [[-1] * 3, [-1, 0, 2]]}, "before[1, 2] is 2; give whole numbers in -1..1"),
        ({"places": shifted(0, 0.25)}, "places[0, 0, 1] is 0.25; give numbers in 0.0..0.1"),
        ({"places": shifted(np.nan, 0)}, "places[0, 0, 0] is nan; give numbers in 0.0..10.0"),
        ({"sizes": [True, True]}, "sizes[0] is true; give whole numbers in 1..3"),
        ({"sizes": np.array(3)}, "sizes is int64[]; give whole numbers [questions]"),
        ({"places": PLACES[0]}, "places is float64[3, 2]; give numbers [questions, 3, 2]"),
        ({"shade": [["dark", "pale"]] * 2}, 'shade[0, 0] is "dark"; give whole numbers in 0..255'),
        ({"sizes": [1]}, "the request has 1 in sizes, 2 in places, 2 in before, 2 in shade; give"),
        (EMPTY, "the request has no question in sizes, places, before, shade; give at least one"),
        ({"size": [1, 3]}, "the request has the inputs before, places, shade, size, sizes; give "),
        ({"sizes": [1, 3.0]}, "sizes[1] is 3.0; give whole numbers in 1..3"),
        ({"sizes": ["1", 3]}, 'sizes[0] is "1"; give whole numbers in 1..3'),
        ({"sizes": [1, None]}, "sizes[1] is null; give whole numbers in 1..3"),
        ({"sizes": [1, 10**5000]}, "sizes[1] is a whole number of some 5001 digits; give whole"),
        ({"sizes": {"0": 1}}, "sizes is an object of 1; give whole numbers [questions]"),
        ({"shade": [[0, 1], [2]]}, "shade[1] is a list of 1; give whole numbers [questions, 2]"),
    ],
)
def test_a_request_that_does_not_fit_is_refused_with_what_would_fit(
    changes: dict[str, Any], message: str
):
    with pytest.raises(ValueError, match=f"^{re.escape(f'things: {message}')}"):
        validated(**changes)


def test_nested_lists_are_read_like_arrays():
    lists = {name: array.tolist() for name, array in FITTING.items()}
    result = validate_request("things", lists, INPUTS)
    for name, array in validated().items():
        np.testing.assert_array_equal(result[name], array, strict=True)


def test_an_answer_that_is_not_finite_names_the_question():
    table = np.array([0.0, 1.0, np.nan])
    tabulated = Served(
        {"place": Input(np.int32, (), 0, 2)}, lambda asked: {"value": table[asked["place"]]}
    )
    assert answer("things", tabulated, {"place": [1, 0]})["value"].tolist() == [1, 0]
    with pytest.raises(ValueError, match="question 1 are so large that its value is not finite"):
        answer("things", tabulated, {"place": [0, 2, 1]})


def test_a_body_is_read():
    body = b'{"inputs": {"sizes": [1, 1.5, null]}, "params": {}}'
    assert read_body("application/json; charset=utf-8", body) == {"sizes": [1, 1.5, None]}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"x", "the body is not JSON: Expecting value: line 1 column 1 (char 0); send JSON"),
        (b"\xff", "the body is not JSON: 'utf-8' codec can't decode byte 0xff in position 0"),
        (b"[" * 20_000, "the body nests lists or objects too deeply"),
        (b" " * (MOST_BYTES + 1), f"the body has {MOST_BYTES + 1:,} bytes; send at most"),
        (b'{"inputs": 1, "inputs": 2}', 'the body is not JSON: "inputs" is twice in one object;'),
        (b'{"inputs": {}, "x": 1}', 'the body has inputs, x; send {"inputs": {name: values, ...}}'),
        (b'{"inputs": {}, "params": {"a": 1}}', "params is an object of 1; the model has none"),
        (
            b'{"inputs": {"a": [' + b"1," * MOST_QUESTIONS + b"1]}}",
            "a has 1,001 questions; give at most 1,000 at a time",
        ),
        (b"[1" + b"0" * 5000 + b"]", "the body is not JSON: Exceeds the limit (4300 digits)"),
    ],
)
def test_a_body_that_is_no_request_is_refused(body: bytes, message: str):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        read_body("application/json", body)
