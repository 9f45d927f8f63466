"""Tests that MLflow serves a recorded model in a process without the checkout."""

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load as load_tensors

from pipeline.storage.params_file import read_params
from pipeline.tracking.journal import Journal
from pipeline.tracking.model_export import requirements
from quatrain.registry import MODELS, load
from quatrain.storage import formats
from tests.conftest import ROOT
from tests.pipeline.small_project import Project, each_model

all_models = pytest.mark.parametrize("uninterrupted", each_model("active_dynamics"), indirect=True)

ANSWER = """
import json, sys, mlflow
model = mlflow.pyfunc.load_model(sys.argv[1])
answer = model.predict(model.input_example)
content = {name: [str(array.dtype), array.tolist()] for name, array in answer.items()}
json.dump(content, open(sys.argv[2], "w"))
files = {name: module.__file__ for name, module in sys.modules.items() if "quatrain" in name}
elsewhere = {name: file for name, file in files.items() if not file.startswith(sys.argv[1])}
assert files.pop("quatrain.registry")
assert not {name for name in elsewhere if "__editable__" not in name}, elsewhere
"""


ASK = """
import json, sys, mlflow
from mlflow.exceptions import MlflowException
from mlflow.pyfunc.scoring_server import invocations
model = mlflow.pyfunc.load_model(sys.argv[1])
for inputs in json.loads(sys.argv[2]):
    body = json.dumps({"inputs": inputs}).encode()
    try:
        answer = invocations(body, "application/json", model, model.metadata.get_input_schema())
        print(answer.status)
    except MlflowException as refused:
        print(refused.get_http_status_code(), json.loads(refused.serialize_as_json())["message"])
"""
"""What the server of `mlflow models serve` answers to requests."""


@pytest.fixture
def servable(uninterrupted: Project, tmp_path: Path) -> Path:
    """Returns the model that the training recorded."""
    (journal,) = [Journal(folder) for folder in uninterrupted.journals("train")]
    (line,) = [line for _, line in journal.lines() if line["kind"] == "model"]
    assert line["name"] == f"quatrain-{uninterrupted.model}"
    zipfile.ZipFile(journal.folder / "artifacts" / line["file"]).extractall(tmp_path / "model")
    return tmp_path / "model"


@all_models
def test_a_new_process_answers_the_example_like_the_serve_module(
    uninterrupted: Project, servable: Path, tmp_path: Path
):
    settings = {
        "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
        "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/db",
    }
    command = [sys.executable, "-I", "-c", ANSWER, str(servable), str(tmp_path / "answer.json")]
    subprocess.run(command, cwd=tmp_path, env=os.environ | settings, check=True)
    answered = json.loads((tmp_path / "answer.json").read_text())

    from mlflow.models import Model

    data = (servable / "artifacts" / "weights.safetensors").read_bytes()
    assert formats.encode("weights.safetensors", load_tensors(data))[0] == data
    example = json.loads((servable / "input_example.json").read_text())
    inputs = Model.load(str(servable)).signature.inputs
    expected = load(uninterrupted.model).serve.answer(
        getattr(read_params(uninterrupted.root), uninterrupted.model),
        load_tensors(data),
        {spec.name: np.array(example[spec.name], spec.type.name) for spec in inputs},
    )
    assert answered.keys() == expected.keys()
    for name, (dtype, values) in answered.items():
        assert dtype == str(expected[name].dtype)
        np.testing.assert_allclose(np.array(values), expected[name], rtol=1e-5, atol=1e-6)


def test_a_request_for_a_wall_is_a_400_that_says_so(servable: Path, tmp_path: Path):
    requests = [{"cells": [[0, 0]]}, {"cells": [[99, 1]]}, {"cells": [[1, 1]]}]
    said = subprocess.run(
        [sys.executable, "-I", "-c", ASK, str(servable), json.dumps(requests)],
        cwd=tmp_path,
        env=os.environ | {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/db"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    wall, outside, right = re.split(r"\n(?=\d00)", said.strip())
    assert wall.startswith("400 ")
    assert "Error: allo: cells[0], row 0 and column 0, is a wall (" in wall
    assert outside.startswith("400 ")
    assert "Error: allo: cells[0, 0] is 99; give whole numbers in 0.." in outside
    assert right == "200"


@all_models
def test_a_model_contains_no_pickle_and_no_code_of_other_models(
    uninterrupted: Project, servable: Path
):
    names = {str(path.relative_to(servable)) for path in servable.rglob("*") if path.is_file()}
    endings = {"MLmodel", "txt", "yaml", "json", "safetensors", "py"}
    assert {name.rpartition(".")[2] for name in names} <= endings
    folder = "code/quatrain/models/"
    others = [
        name.removeprefix(folder).partition("/")
        for name in names
        if name.startswith(folder) and not name.startswith(f"{folder}{uninterrupted.model}/")
    ]
    # params.py names the configs of all models.
    files = {file.removeprefix("hosted/") for model, _, file in others if model in MODELS}
    assert files == {"config.py", "__init__.py"}


def test_requirements_are_exact_and_of_one_framework():
    named = {line.partition("==")[0] for line in requirements("jax")}
    assert named >= {"jax", "flax", "optax", "mlflow"}
    torch = requirements("torch")
    pinned = re.search(r"torch==[\d.]+", (ROOT / "requirements" / "torch.txt").read_text())
    assert pinned is not None
    assert pinned[0] in torch  # without the name of the build that is installed here
    assert not [line for line in torch if line.startswith("jax==")]
