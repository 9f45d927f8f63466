"""Requests that do not fit: each is a 400 with its reason in one line; none a trace or a 500."""

import gc
import http.client
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quatrain.request_body import MOST_BYTES, read_body
from quatrain.requests import MOST_QUESTIONS
from tests.campaign.promises import TRACE, broken
from tests.campaign.served import FORMS, Reply, Served, first_number_replaced, is_integer, served
from tests.pipeline.faulty_server import free_port

MORE = MOST_QUESTIONS + 1
LONG = 10**4000
GENERATED = 60
Inputs = dict[str, Any]


def body_of(inputs: Any, **further: Any) -> bytes:
    return json.dumps({"inputs": inputs, **further}).encode()


def answered(model: Served, reply: Reply, questions: int) -> None:
    """The reply has finite outputs, one for each question."""
    if reply.status != 200:
        broken("wrong code", f"{reply.status}, not 200: {reply.text}")
    predictions = json.loads(reply.text)["predictions"]
    assert predictions.keys() == model.exported.answer.keys()
    for name, values in predictions.items():
        array = np.array(values, float)
        if array.shape != (questions, *model.exported.answer[name].shape[1:]):
            broken("silent", f"{name} has the shape {array.shape}")
        if not np.isfinite(array).all():
            broken("silent", f"{name} is not finite")


def refused(reply: Reply, says: str) -> None:
    """The reply is a 400 whose reason has the pattern `says`, in one line."""
    if TRACE.search(reply.text.replace("\\n", "\n")):
        broken("traceback", reply.text)
    if reply.status == 200:
        broken("silent", f"answered, where a 400 is due: {reply.text}")
    if reply.status != 400:
        broken("wrong code", f"{reply.status}, not 400: {reply.text}")
    if "\n" in reply.message or len(reply.message) > 500 or not re.search(says, reply.message):
        broken("unclear", f"{says!r} is not in: {reply.message}")


# What stands in place of the first number of an input, and how the refusal shows it.
NUMBERS: dict[str, tuple[Any, str]] = {
    "true": (True, "true"),
    "false": (False, "false"),
    "a word": ("three", '"three"'),
    "a number as text": ("3", '"3"'),
    "an empty text": ("", '""'),
    "text of many lines": ("a\n" * 999, '"a a a'),
    "null": (None, "null"),
    "an object": ({"a": 1}, "an object of 1"),
    "an empty list": ([], r"\[\]"),
    "a list too deep": ([1], "a list of 1"),
    "10**4000": (LONG, "a whole number of some 4001 digits"),
    "-10**4000": (-LONG, "a whole number of some 4001 digits"),
    "10**39": (10**39, r"1e\+39|1(0{39})"),
    "1e39": (1e39, r"1e\+39"),
    "-1e39": (-1e39, r"-1e\+39"),
    "not a number": (float("nan"), "nan"),
    "infinite": (float("inf"), "inf"),
    "minus infinite": (float("-inf"), "-inf"),
}
INTEGERS: dict[str, tuple[Any, str]] = {
    "a fraction": (1.5, "1.5"),
    "a whole number as a fraction": (1.0, "1.0"),
    "beyond": (10**9, "10{9}"),
    "below": (-(10**9), "-10{9}"),
    "2**32": (2**32, "4294967296"),
    "2**63": (2**63, "9223372036854775808"),
    "2**64": (2**64, "18446744073709551616"),
}
"""Further ones, of inputs that count or number something."""


@pytest.mark.parametrize("case", [*NUMBERS, *INTEGERS])
@pytest.mark.parametrize("form", FORMS)
def test_a_value_that_does_not_fit_is_refused_by_name_place_and_value(form: str, case: str):
    model = served(form)
    value, shown = (NUMBERS | INTEGERS)[case]
    for name, array in model.exported.request.items():
        if case in INTEGERS and not is_integer(array):
            continue
        inputs = model.example | {name: first_number_replaced(model.example[name], value)}
        place = ", ".join("0" * array.ndim)
        kind = "whole numbers" if is_integer(array) else "numbers"
        says = rf"{name}\[{place}\] is ({shown}).*; give {kind} in -?[\d.e+-]+\.\."
        refused(model.ask(body_of(inputs)), says)


def each(change: Callable[[list[Any]], Any]) -> Callable[[Inputs], Inputs]:
    return lambda example: {name: change(values) for name, values in example.items()}


SHAPES: dict[str, tuple[Callable[[Inputs], Any], str]] = {
    "no inputs": (lambda _: {}, "has the inputs none; give exactly"),
    "one unknown": (lambda example: example | {"x": [1]}, "has the inputs .*; give exactly"),
    "only an unknown": (lambda _: {"x": [1]}, "has the inputs x; give exactly"),
    "another case": (
        lambda example: {name.upper(): values for name, values in example.items()},
        "has the inputs [A-Z_, ]+; give exactly",
    ),
    "a name of many lines": (lambda _: {"a\n" * 999: [1]}, r"has the inputs a a [a ]+\.\.\.; give"),
    "one missing": (lambda example: dict([*example.items()][1:]), "give exactly"),
    "a list of questions": (lambda example: [example], "the request is a list of 1; give inputs"),
    "a number": (lambda _: 3, "the request is 3; give inputs by name"),
    "a text": (lambda _: "3", 'the request is "3"; give inputs by name'),
    "null": (lambda _: None, "the request is null; give inputs by name"),
    "numbers for lists": (each(lambda _: 3), r" is 3; give \w+ ?\w* \[questions"),
    "texts for lists": (each(lambda _: "33"), r' is "33"; give'),
    "objects for lists": (each(lambda _: {"0": 1}), " is an object of 1; give"),
    "nulls for lists": (each(lambda _: None), " is null; give"),
    "no questions": (each(lambda _: []), "has no question in"),
    "one axis less": (each(lambda values: values[0]), r"; give .*\[questions|give \w+ ?\w* in"),
    "one axis more": (each(lambda values: [values]), "is a list of"),
    "questions of unequal length": (
        each(lambda values: [*values, [values[0], values[0]]]),
        r"\[\d+(, 0)*\] is a list of 2; give",
    ),
    "an empty question": (each(lambda values: [*values, []]), r"\[\d\] is \[\]; give"),
    "too many questions": (
        each(lambda values: (values * MORE)[:MORE]),
        f"has {MORE:,} questions; give at most {MOST_QUESTIONS:,}",
    ),
}


@pytest.mark.parametrize("case", SHAPES)
@pytest.mark.parametrize("form", FORMS)
def test_other_inputs_and_shapes_are_refused(form: str, case: str):
    model = served(form)
    change, says = SHAPES[case]
    refused(model.ask(body_of(change(model.example))), says)


@pytest.mark.parametrize("form", ["iqn", "actor_critic", "iqn-hosted"])
def test_inputs_of_unequal_length_are_refused(form: str):
    model = served(form)
    for name, values in model.example.items():
        reply = model.ask(body_of(model.example | {name: values[:1]}))
        refused(reply, f"1 in {name}.*; give as many questions in each")


def with_text(text: bytes) -> Callable[[Inputs], bytes]:
    """Returns the example's body with this JSON in place of the first number."""

    def body(example: Inputs) -> bytes:
        name = next(iter(example))
        inputs = example | {name: first_number_replaced(example[name], "here")}
        return body_of(inputs).replace(b'"here"', text)

    return body


HUGE = b"1" * 10_000
BODIES: dict[str, tuple[Callable[[Inputs], bytes], str]] = {
    "nothing": (lambda _: b"", "not JSON"),
    "not JSON": (lambda _: b"inputs", "not JSON"),
    "cut off": (lambda example: body_of(example)[:-3], "not JSON"),
    "more after it": (lambda example: body_of(example) + b"{}", "not JSON"),
    "not UTF-8": (lambda _: b'{"inputs": "\xff"}', "not UTF-8 at byte 12"),
    "UTF-16": (lambda example: body_of(example).decode().encode("utf-16"), "not UTF-8"),
    "a lone surrogate": (lambda _: b'{"inputs": {"\\ud800": 1}}', "give exactly"),
    "a zero byte": (lambda _: b"\0", "not JSON"),
    "a list": (lambda example: body_of(example).join([b"[", b"]"]), "the body is a list of 1"),
    "a number": (lambda _: b"3", "the body is 3"),
    "null": (lambda _: b"null", "the body is null"),
    "an empty object": (lambda _: b"{}", "the body has nothing; send"),
    "only instances": (lambda _: b'{"instances": []}', "has instances"),
    "a dataframe": (lambda _: b'{"dataframe_split": {}}', "has dataframe_split"),
    "chat": (lambda _: b'{"messages": []}', "has messages"),
    "an unknown key": (lambda example: body_of(example, x=1), "the body has inputs, x; send"),
    "two formats": (lambda example: body_of(example, instances=[]), "has inputs, instances; send"),
    "params": (lambda example: body_of(example, params={"a": 1}), "params is an object of 1"),
    "params as a list": (lambda example: body_of(example, params=[]), r"params is \[\]"),
    "inputs twice": (lambda _: b'{"inputs": {}, "inputs": {}}', '"inputs" twice in one object'),
    "an input twice": (lambda _: b'{"inputs": {"a": 1, "a": 1}}', '"a" twice in one object'),
    "10**5000": (with_text(b"1" + b"0" * 5000), "a whole number of 5,001 digits"),
    "-10**5000": (with_text(b"-1" + b"0" * 5000), "a whole number of 5,001 digits"),
    "1e400": (with_text(b"1e400"), "is inf; give"),
    "an exponent of many digits": (with_text(b"1e" + HUGE), "is inf; give"),
    "20,000 lists": (lambda _: b"[" * 20_000 + b"]" * 20_000, "too deeply"),
    "20,000 lists left open": (lambda _: b"[" * 20_000, "too deeply"),
    "20,000 lists as an input": (with_text(b"[" * 20_000 + b"]" * 20_000), "too deeply"),
    "20,000 objects": (lambda _: b'{"a":' * 20_000 + b"1" + b"}" * 20_000, "too deeply"),
    "900 lists": (with_text(b"[" * 900 + b"]" * 900), "is a list of 1; give"),
    "100 MB of digits": (lambda _: b"1" * 10**8, "has 100,000,000 bytes; send at most"),
    "a byte too many": (lambda _: b" " * (MOST_BYTES + 1), "bytes; send at most"),
    "as many digits as are read": (with_text(b"1" * (MOST_BYTES - 99_999)), "digits; give"),
    "as many numbers as are read": (
        with_text(b"[" + b"1," * (MOST_BYTES // 2 - 99_999) + b"1]"),
        r"is a list of \d+; give",
    ),
    "as many keys as are read": (
        lambda _: b'{"inputs": {%s}}' % b",".join(b'"%d":1' % number for number in range(300_000)),
        "give exactly",
    ),
    "a key twice, late": (
        lambda _: b'{%s, "299999": 1}' % b",".join(b'"%d":1' % number for number in range(300_000)),
        '"299999" twice',
    ),
}


@pytest.mark.parametrize("case", BODIES)
@pytest.mark.parametrize("form", ["allo", "iqn", "actor_critic", "active_dynamics"])
def test_a_body_that_is_no_request_is_refused(form: str, case: str):
    model = served(form)
    change, says = BODIES[case]
    refused(model.ask(change(model.example)), says)


@pytest.mark.parametrize("piece", [b"[]", b"[[]]", b"[1]", b"{}", b'{"":0}'])
def test_reading_a_body_never_looks_for_garbage_in_the_frameworks(piece: bytes):
    """As often as it makes lists, else: seconds for a body of lists."""
    collections: list[dict[str, int]] = []

    def count(_phase: str, info: dict[str, int]) -> None:
        collections.append(info)

    body = b"[%s]" % b",".join([piece] * 100_000)
    gc.callbacks.append(count)
    try:
        with pytest.raises(ValueError, match="the body is a list of 100000; send"):
            read_body("application/json", body)
    finally:
        gc.callbacks.remove(count)
    assert len(collections) < 5
    assert gc.isenabled()


TYPES = ["text/csv", "text/plain", "application/vnd.apache.parquet", "application/jsonx", "", None]


@pytest.mark.parametrize("kind", TYPES)
def test_another_content_type_is_refused(kind: str | None):
    model = served("allo")
    refused(
        model.ask(body_of(model.example), kind), "the Content-Type is .*; send application/json"
    )


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON"])
@pytest.mark.parametrize("form", FORMS)
def test_the_example_is_answered(form: str, kind: str):
    model = served(form)
    count = len(next(iter(model.example.values())))
    answered(model, model.ask(body_of(model.example), kind), count)
    answered(model, model.ask(body_of(model.example, params={})), count)


@pytest.mark.parametrize("form", FORMS)
def test_as_many_questions_as_the_model_says_are_answered(form: str):
    model = served(form)
    most = model.loaded.metadata.metadata["quatrain.most_questions"]
    assert most == MOST_QUESTIONS
    assert model.loaded.metadata.metadata["quatrain.most_bytes"] == MOST_BYTES
    inputs = {name: (values * most)[:most] for name, values in model.example.items()}
    answered(model, model.ask(body_of(inputs)), most)


PYTHON: dict[str, tuple[Callable[[np.ndarray], Any], str]] = {
    "booleans": (lambda array: np.ones(array.shape, bool), "is true; give"),
    "texts": (lambda array: array.astype(str), r'is "[\d.e+-]+"; give'),
    "objects": (lambda array: np.full(array.shape, None), "is null; give"),
    "complex numbers": (lambda array: array + 1j, "1j.*; give"),
    "one number": (lambda array: array.ravel()[0], "is .*; give"),
    "10**5000": (lambda array: first_number_replaced(array.tolist(), 10**5000), "some 5001 digits"),
    "a set": (lambda _: {1}, r"is \{1\}; give"),
    "dates": (lambda array: np.zeros(array.shape, "datetime64[s]"), "is .*; give"),
    "bytes": (lambda array: array.tobytes(), "is b.*; give"),
    "one axis more": (lambda array: array[..., None], "; give .*questions"),
    "too many": (lambda array: np.repeat(array, 999, 0), "questions; give at most"),
}


@pytest.mark.parametrize("case", PYTHON)
@pytest.mark.parametrize("form", FORMS)
def test_what_does_not_fit_is_refused_in_python_too(form: str, case: str):
    model = served(form)
    change, says = PYTHON[case]
    for name, array in model.exported.request.items():
        with pytest.raises(ValueError, match=says) as error:
            model.loaded.predict({**model.exported.request, name: change(array)})
        assert error.value.get_http_status_code() == 400


@pytest.mark.parametrize("form", FORMS)
def test_arrays_lists_and_lists_of_arrays_are_the_same_question(form: str):
    model = served(form)
    request = model.exported.request
    expected = model.loaded.predict(dict(request))
    for inputs in (model.example, {name: list(array) for name, array in request.items()}):
        np.testing.assert_equal(model.loaded.predict(inputs), expected)


# JSON of all kinds, and numbers near what inputs allow.
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 40),
    st.integers(),
    st.floats(),
    st.floats(-3, 3),
    st.text(max_size=5),
    st.just(LONG),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


def places(values: Any, depth: int = 0) -> Iterator[tuple[int, ...]]:
    yield ()
    if isinstance(values, list) and depth < 5:
        for number in (0, len(values) - 1):
            for place in places(values[number], depth + 1):
                yield number, *place


def replaced(values: Any, place: tuple[int, ...], value: Any) -> Any:
    if not place:
        return value
    first, *rest = place
    return [
        replaced(item, tuple(rest), value) if number == first else item
        for number, item in enumerate(values)
    ]


@pytest.mark.parametrize("form", FORMS)
def test_any_request_is_answered_with_finite_numbers_or_refused_with_a_reason(
    form: str, record_property: Callable[[str, object], None]
):
    model, asked = served(form), 0
    example = model.example

    @settings(max_examples=GENERATED, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def ask(data: st.DataObject) -> None:
        nonlocal asked
        inputs = dict(example)
        for name in data.draw(st.lists(st.sampled_from(sorted(example)), max_size=2)):
            place = data.draw(st.sampled_from(sorted(set(places(example[name])))))
            inputs[name] = replaced(example[name], place, data.draw(VALUES))
        reply = model.ask(body_of(inputs))
        asked += 1
        if reply.status == 200:
            answered(model, reply, len(next(iter(inputs.values()))))
        else:
            refused(reply, "; give ")

    ask()
    record_property("generated", asked)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Starts MLflow's server of a model, as a user does, and returns its port."""
    number = free_port()
    command = [sys.executable, "-m", "mlflow", "models", "serve", "--env-manager", "local"]
    options = ["-m", str(served("allo").folder), "--port", str(number)]
    settings = {
        "MLFLOW_TRACKING_URI": f"sqlite:///{served('allo').folder}/db",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    with subprocess.Popen(
        [*command, *options],
        env=os.environ | settings,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as server:
        try:
            for _ in range(600):
                try:
                    request(number, "GET", "/ping")
                    break
                except OSError:
                    assert server.poll() is None
                    time.sleep(0.1)
            yield number
        finally:
            os.killpg(server.pid, 15)


def request(port: int, verb: str, path: str, body: bytes = b"", kind: str = "") -> Reply:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(verb, path, body, {"Content-Type": kind} if kind else {})
    response = connection.getresponse()
    reply = Reply(response.status, response.read().decode())
    connection.close()
    return reply


SERVER = [
    "10**5000",
    "20,000 lists",
    "20,000 lists as an input",
    "100 MB of digits",
    "nothing",
    "an unknown key",
]


@pytest.mark.parametrize("case", SERVER)
def test_the_server_refuses_it_too_and_answers_the_next(port: int, case: str):
    model = served("allo")
    change, says = BODIES[case]
    reply = request(port, "POST", "/invocations", change(model.example), "application/json")
    refused(reply, says)
    reply = request(port, "POST", "/invocations", body_of(model.example), "application/json")
    answered(model, reply, 3)
