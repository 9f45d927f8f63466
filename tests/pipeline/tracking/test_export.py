"""Tests that MLflow serves a model, and refuses what it cannot answer: a 400 with one line.

Which requests those are is tried in tests/test_requests.py.
"""

import io
import json
import os
import re
import socket
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.tracking.export import record_model, requirements
from pipeline.tracking.run import Run
from quatrain.serving import MOST_QUESTIONS
from tests.conftest import ROOT
from tests.pipeline.faulty_server import free_port
from tests.pipeline.fixture_types import Patch
from tests.pipeline.recorded_runs import until
from tests.pipeline.tracking.served import Reply, Served, first_number_replaced, served

SERVED = ["allo", "iqn-user_env", "actor_critic", "active_dynamics"]
each_form = pytest.mark.parametrize("form", SERVED)

ANSWER = """
import json, sys, mlflow
model = mlflow.pyfunc.load_model(sys.argv[1])
answer = model.predict(model.input_example)
json.dump({name: array.tolist() for name, array in answer.items()}, open(sys.argv[2], "w"))
files = {name: module.__file__ for name, module in sys.modules.items() if "quatrain" in name}
elsewhere = {name: file for name, file in files.items() if not file.startswith(sys.argv[1])}
assert files.pop("quatrain.registry")
assert not {name for name in elsewhere if "__editable__" not in name}, elsewhere
"""


def body_of(inputs: Any, **further: Any) -> bytes:
    return json.dumps({"inputs": inputs, **further}).encode()


def check_answer(model: Served, reply: Reply, inputs: Mapping[str, Any]) -> None:
    """The reply has finite outputs, one for each question."""
    assert reply.status == 200, reply.text
    predictions = json.loads(reply.text)["predictions"]
    assert predictions.keys() == model.exported.answer.keys()
    questions = len(next(iter(inputs.values())))
    for name, values in predictions.items():
        array = np.array(values, float)
        assert array.shape == (questions, *model.exported.answer[name].shape[1:])
        assert np.isfinite(array).all()


def check_refusal(reply: Reply, says: str) -> None:
    """The reply is a 400 whose reason has the pattern `says`, in one short line."""
    assert reply.status == 400, reply.text
    assert "\n" not in reply.message
    assert "Traceback" not in reply.message
    assert len(reply.message) < 500
    assert re.search(says, reply.message), reply.message


@each_form
def test_one_question_and_as_many_as_are_allowed_are_answered(form: str):
    model = served(form)
    check_answer(model, model.ask(body_of(model.example, params={})), model.example)
    inputs = {name: (v * MOST_QUESTIONS)[:MOST_QUESTIONS] for name, v in model.example.items()}
    check_answer(model, model.ask(body_of(inputs), "Application/JSON; charset=utf-8"), inputs)
    more = {name: [*values, values[0]] for name, values in inputs.items()}
    check_refusal(model.ask(body_of(more)), f"questions; give at most {MOST_QUESTIONS:,}")


def test_what_does_not_fit_is_refused_by_name_and_place():
    """MLflow itself would take `true` for 1 and drop an input that it does not know."""
    model = served("iqn-user_env")
    for name, array in model.exported.request.items():
        changed = {name: first_number_replaced(model.example[name], True)}
        place = ", ".join("0" * array.ndim)
        reply = model.ask(body_of(model.example | changed))
        check_refusal(reply, rf"{name}\[{place}\] is true; give .*numbers in -?[\d.e+-]+\.\.")
    check_refusal(
        model.ask(body_of(model.example | {"x": [1]})), "has the inputs .*x; give exactly"
    )
    check_refusal(model.ask(b""), "not JSON")
    check_refusal(model.ask(b"", "text/csv"), 'Content-Type is "text/csv"; send application/json')


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 40) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@each_form
def test_any_request_is_answered_with_finite_numbers_or_refused_with_a_reason(form: str):
    model = served(form)

    @settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(sorted(model.example)), VALUES, st.booleans())
    def ask(name: str, value: Any, is_whole: bool) -> None:
        changed = value if is_whole else first_number_replaced(model.example[name], value)
        inputs = model.example | {name: changed}
        reply = model.ask(body_of(inputs))
        if reply.status == 200:
            check_answer(model, reply, inputs)
        else:
            check_refusal(reply, "; give ")

    ask()


@each_form
def test_arrays_and_lists_are_the_same_question_and_the_answer_is_that_of_serve(form: str):
    model = served(form)
    expected = model.exported.answer
    for inputs in (model.example, model.exported.request):
        answer = model.loaded.predict(dict(inputs))
        for name, array in expected.items():
            np.testing.assert_allclose(answer[name], array, rtol=1e-5, atol=1e-6)
            assert answer[name].dtype == array.dtype
    with pytest.raises(ValueError, match="the model has no params; leave them out"):
        model.loaded.unwrap_python_model().predict(None, model.example, {"temperature": 1})


@each_form
def test_a_model_contains_no_pickle_and_no_code_of_other_models(form: str):
    folder = served(form).folder
    files = (path for path in folder.rglob("*") if path.is_file())
    endings = {path.suffix or path.name for path in files if "__pycache__" not in path.parts}
    assert endings <= {"MLmodel", ".txt", ".yaml", ".json", ".safetensors", ".py"}
    models = {path.parent.name for path in (folder / "code/quatrain/models").glob("*/config.py")}
    assert models == {served(form).stage.model}


def test_requirements_are_exact_and_of_one_framework():
    named = {line.partition("==")[0] for line in requirements("jax")}
    assert named >= {"jax", "flax", "optax", "mlflow"}
    torch = requirements("torch")
    pinned = re.search(r"torch==[\d.]+", (ROOT / "requirements" / "torch.txt").read_text())
    assert pinned is not None
    assert pinned[0] in torch  # without the name of the build that is installed here
    assert not [line for line in torch if line.startswith("jax==")]


def test_a_training_records_one_model_with_its_card(tmp_path: Path, monkeypatch: Patch):
    stage, exported = served("allo").stage, served("allo").exported
    monkeypatch.setattr("pipeline.tracking.export.export", lambda *_: exported)
    run = Run(tmp_path / "train@allo-1.sqlite")
    for _ in range(2):
        record_model(stage, run, None, None)
    (model,) = run.records("model")
    assert "weights.safetensors" in zipfile.ZipFile(io.BytesIO(model.data or b"")).namelist()
    name, card = model.name, model.body
    assert name == "quatrain-allo"
    titles = ["## What it is", "## How to ask", "## Scores (preset default)", "## Limits"]
    assert re.findall("^## .*", card, re.M) == titles
    assert "1..1,000 questions" in card
    assert "Raises" not in card


@pytest.mark.full
@pytest.mark.parametrize("form", ["iqn-user_env", "active_dynamics"])
def test_a_process_without_the_checkout_answers_the_same(form: str, tmp_path: Path):
    model, file = served(form), tmp_path / "answer.json"
    variables = {
        "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
        "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/db",
    }
    command = [sys.executable, "-I", "-c", ANSWER, str(model.folder), str(file)]
    subprocess.run(command, cwd=tmp_path, env=os.environ | variables, check=True)
    answer = json.loads(file.read_text())
    assert answer.keys() == model.exported.answer.keys()
    for name, values in answer.items():
        np.testing.assert_allclose(values, model.exported.answer[name], rtol=1e-5, atol=1e-6)


@pytest.mark.full
def test_the_server_that_a_user_starts_describes_itself_refuses_and_answers(tmp_path: Path):
    model, port = served("allo"), free_port()
    command = [sys.executable, "-m", "mlflow", "models", "serve", "--env-manager", "local"]
    with subprocess.Popen(
        [*command, "-m", str(model.folder), "--port", str(port)],
        env=os.environ | {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/db"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as server:
        try:
            until(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0)
            check_refusal(post(port, b'{"inputs": {}, "x": 1}'), "the body has inputs, x; send")
            with urlopen(f"http://127.0.0.1:{port}/openapi.json") as page:
                described = json.load(page)["paths"]["/invocations"]["post"]
            request = described["requestBody"]["content"]["application/json"]
            asked = request["schema"]["properties"]["inputs"]["properties"]
            assert asked["cells"]["items"]["items"]["type"] == "integer"
            assert request["example"] == {"inputs": model.example}
            reply = post(port, body_of(model.example))
            check_answer(model, reply, model.example)
            answered = described["responses"]["200"]["content"]["application/json"]
            assert answered["example"] == json.loads(reply.text)
        finally:
            os.killpg(server.pid, 15)


def post(port: int, body: bytes) -> Reply:
    url = f"http://127.0.0.1:{port}/invocations"
    try:
        with urlopen(Request(url, body, {"Content-Type": "application/json"})) as answer:
            return Reply(answer.status, answer.read().decode())
    except HTTPError as error:
        return Reply(error.code, error.read().decode())
