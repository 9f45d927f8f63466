"""params.yaml and presets are valid; all stages run, and give scores and a learner that answers."""

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

import quatrain
from pipeline.storage.params_file import read_params
from quatrain import presets, serving
from quatrain.devices import on_device
from quatrain.registry import MODELS, load
from quatrain.validation import overlaid
from tests.conftest import ROOT, SMALL, shapes_unchecked


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("preset", ["default", *presets.names(ROOT)])
def test_params_are_valid(preset: str):
    assert read_params(ROOT, preset).preset == preset


@pytest.mark.parametrize("model", MODELS)
def test_all_stages_give_scores_and_a_learner_that_answers(model: str, tmp_path: Path):
    shutil.copytree(ROOT / "inputs", tmp_path / "inputs")
    with (tmp_path / "params.yaml").open("w") as file:
        YAML().dump(overlaid(presets.parse(ROOT / "params.yaml"), {model: SMALL[model]}), file)
    variables = {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db",
    }
    for verb in ("collect", "train", "evaluate"):
        command = [sys.executable, "-m", f"pipeline.{verb}", model]
        subprocess.run(command, cwd=tmp_path, env=os.environ | variables, check=True)
    scores = json.loads((tmp_path / "reports" / model / "scores.json").read_text())["scores"]
    modules = load(model)
    with on_device(read_params(tmp_path), MODELS[model]), shapes_unchecked():
        learned = quatrain.load(tmp_path / "models" / model)
        assert scores.keys() >= {rule.metric for rule in modules.rules.gated(learned.config)}
        served = modules.serve.load(
            learned.config, modules.serve.export(learned.config, learned.state, learned.dataset)
        )
        question = modules.serve.request(learned.config, learned.dataset)
        answers = serving.answer(model, served, question)
    assert all(math.isfinite(number) for each in answers.values() for number in each.flat)
