"""Tests that MLflow serves a recorded model in a process without the checkout."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from pipeline.storage import formats
from pipeline.storage.params_file import read_params
from pipeline.tracking.journal import Journal
from pipeline.tracking.model_export import requirements
from quatrain.registry import MODELS, load
from tests.pipeline.small_project import Project, each_model

ANSWER = """
import json, sys, mlflow
model = mlflow.pyfunc.load_model(sys.argv[1])
answer = model.predict(model.input_example)
content = {name: [str(array.dtype), array.tolist()] for name, array in answer.items()}
json.dump(content, open(sys.argv[2], "w"))
import quatrain
assert quatrain.__path__[0].startswith(sys.argv[1]), quatrain.__path__
"""


@pytest.fixture
def servable(uninterrupted: Project, tmp_path: Path) -> Path:
    """Returns the model that the training recorded."""
    (journal,) = [Journal(folder) for folder in uninterrupted.journals("train")]
    (line,) = [line for _, line in journal.lines() if line["kind"] == "model"]
    assert line["name"] == f"quatrain-{uninterrupted.model}"
    zipfile.ZipFile(journal.folder / "artifacts" / line["file"]).extractall(tmp_path / "model")
    return tmp_path / "model"


@each_model
def test_a_new_process_answers_the_example_like_the_serve_module(
    uninterrupted: Project, servable: Path, tmp_path: Path
):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {
        "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
        "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/db",
    }
    command = [sys.executable, "-I", "-c", ANSWER, str(servable), str(tmp_path / "answer.json")]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    answered = json.loads((tmp_path / "answer.json").read_text())

    serving = load(uninterrupted.model).serve
    config = getattr(read_params(uninterrupted.root), uninterrupted.model)
    data = (servable / "artifacts" / "weights.safetensors").read_bytes()
    request = json.loads((servable / "input_example.json").read_text())
    typed = signature_of(servable)
    expected = serving.answer(
        config, arrays_of(data), {name: np.array(request[name], typed[name]) for name in typed}
    )
    assert {name: dtype for name, (dtype, _) in answered.items()} == {
        n: str(a.dtype) for n, a in expected.items()
    }
    for name, (_, values) in answered.items():
        np.testing.assert_allclose(np.array(values), expected[name], rtol=1e-5, atol=1e-6)


def signature_of(servable: Path) -> dict[str, str]:
    from mlflow.models import Model

    inputs = Model.load(str(servable)).signature.inputs
    return {spec.name: spec.type.name for spec in inputs}


def arrays_of(data: bytes) -> dict[str, np.ndarray]:
    from safetensors.numpy import load

    assert formats.encode("weights.safetensors", load(data))[0] == data
    return load(data)


@each_model
def test_a_model_contains_no_pickle_and_no_code_of_other_models(
    uninterrupted: Project, servable: Path
):
    names = {str(path.relative_to(servable)) for path in servable.rglob("*") if path.is_file()}
    assert {name.rpartition(".")[2] for name in names} <= {
        "MLmodel",
        "txt",
        "yaml",
        "json",
        "safetensors",
        "py",
    }
    rooms = {name for name in names if name.startswith("code/quatrain/models/")}
    others = {
        name
        for name in rooms
        if name.split("/")[3] in MODELS and name.split("/")[3] != uninterrupted.model
    }
    assert {name.rpartition("/")[2] for name in others} == {
        "config.py",
        "__init__.py",
    }  # which params.py names


def test_requirements_are_exact_and_of_one_framework():
    assert {line.partition("==")[0] for line in requirements("jax")} >= {
        "jax",
        "flax",
        "optax",
        "mlflow",
    }
    torch = requirements("torch")
    assert "torch==2.13.0" in torch  # without the name of the build that is installed here
    assert not [line for line in torch if line.startswith("jax==")]
