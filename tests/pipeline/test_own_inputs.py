"""What a user brings in place of what is built in passes through every stage, and is judged."""

import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.cli import main
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


@pytest.mark.full
def test_every_stage_takes_it_and_the_gate_judges_it(
    project: Project, monkeypatch: Patch, capsys: Capture
):
    surround(monkeypatch, project)
    assert [project.call(verb) for verb in BODIES] == [0, 0, 0]
    assert main(["gate", project.model]) == 4
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
    data = None
    for edits in range(2):
        mine.write_text(f"{mine.read_text()}# edited {edits} times\n")
        assert project.call("collect") == 0
        assert project.hashes("data") == (data or project.hashes("data"))
        data = project.hashes("data")
        assert project.call("train", Pretended(signal.SIGTERM, after=1)) == 143
        assert [project.call("train"), project.call("evaluate")] == [0, 0]
        assert len(list(states.iterdir())) == edits + 1
