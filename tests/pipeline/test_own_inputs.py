"""What a user brings in place of what is built in passes through every stage, and is judged."""

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.commands import gate
from pipeline.storage.params_file import read_params
from pipeline.storage.trained_model import differences
from quatrain.storage.formats import to_json
from tests.conftest import SMALL
from tests.models.actor_critic import hosted_envs as actor_critic_hosted
from tests.models.iqn import hosted_envs as iqn_hosted
from tests.pipeline.fixture_types import Capture, Patch
from tests.pipeline.small_project import BODIES, Pretended, Project, surround

PLATE = "inputs/actor_critic/mine.npy"
LAYOUT = "#######\n#A.-.A#\n#..-..#\n#.....#\n#######"
UNSIZED = {"height": None, "width": None}
ONE_PLATE = {"plates": "user", "plates_file": PLATE, "n_train": 1, "n_held_out": 1, "n_outside": 0}
TABLE = {"kind": "table", "table_file": "inputs/active_dynamics/wind.npz"}
SECTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "map of allo": ("allo", {"env": {"layout": "inputs/allo/one_way.txt"}}),
    "map of iqn": ("iqn", {"env": UNSIZED | {"layout_file": "inputs/iqn/two_halls.txt"}}),
    "layout": ("iqn", {"env": UNSIZED | {"layout": LAYOUT}}),
    "plates": ("actor_critic", {"collect": ONE_PLATE}),
    "table": ("active_dynamics", {"env": {"field": TABLE}}),
    "environment": ("actor_critic", actor_critic_hosted.section("Signs")),
}


@pytest.fixture(params=SECTIONS)
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Project:
    model, section = SECTIONS[request.param]
    project = Project.create(tmp_path, model)
    np.save(tmp_path / PLATE, np.linspace(1, 9, SMALL["actor_critic"]["env"]["width"]))
    project.choose({"preset": "own", model: section})
    return project


def test_a_stored_config_is_the_one_that_it_was_made_from(project: Project):
    config = getattr(read_params(project.root), project.model).model_dump(mode="json")
    stored = json.loads(to_json(config))
    assert not list(differences(stored, config))


@pytest.mark.full
def test_every_stage_takes_it_and_the_gate_judges_it(
    project: Project, monkeypatch: Patch, capsys: Capture
):
    surround(monkeypatch, project)
    assert [project.call(verb) for verb in BODIES] == [0, 0, 0]
    assert gate.main([project.model]) == 4
    said = f"gate: {project.model}: no baseline yet: `make promote PRESET=own"
    assert said in capsys.readouterr().err


@pytest.mark.full
def test_an_edited_environment_is_trained_and_evaluated_anew(tmp_path: Path, monkeypatch: Patch):
    project = Project.create(tmp_path, "iqn")
    mine = tmp_path / "inputs" / "iqn" / "mine.py"
    shutil.copy(str(iqn_hosted.__file__), mine)
    section = iqn_hosted.section("OneStep")
    section["env"]["import"] = "inputs.iqn.mine:OneStep"
    project.choose({"iqn": section})
    surround(monkeypatch, project)
    monkeypatch.syspath_prepend(str(tmp_path))
    states = tmp_path / ".state" / "train@iqn"
    assert project.call("collect") == 0
    assert project.call("train", Pretended(signal.SIGTERM, after=1)) == 143
    assert project.call("train") == 0
    assert project.call("evaluate") == 0
    assert [len(list(states.iterdir())), len(project.journals("evaluate"))] == [1, 1]
    data = project.hashes("data")
    mine.write_text(f"{mine.read_text()}# edited\n")
    assert project.call("collect") == 0
    assert project.hashes("data") == data
    assert project.call("evaluate") == 0
    assert project.call("train", Pretended(signal.SIGTERM, after=1)) == 143
    mine.write_text(f"{mine.read_text()}# again\n")
    assert project.call("train") == 0
    assert project.call("evaluate") == 0
    assert [len(list(states.iterdir())), len(project.journals("evaluate"))] == [3, 3]
