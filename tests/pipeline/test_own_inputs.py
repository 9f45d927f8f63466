"""What a user brings in place of what is built in passes through every stage, and is judged."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.cli import main
from tests.conftest import SMALL
from tests.pipeline.fixture_types import Capture, Patch
from tests.pipeline.small_project import BODIES, Project, surround

PLATE = "inputs/actor_critic/mine.npy"
ONE_PLATE = {"plates": "user", "plates_file": PLATE, "n_train": 1, "n_held_out": 1, "n_outside": 0}
TABLE = {"kind": "table", "table_file": "inputs/active_dynamics/wind.npz"}
SECTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "plates": ("actor_critic", {"collect": ONE_PLATE}),
    "table": ("active_dynamics", {"env": {"field": TABLE}}),
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
    said = "nothing judges the scores yet: `make promote PRESET=own"
    assert said in capsys.readouterr().err
