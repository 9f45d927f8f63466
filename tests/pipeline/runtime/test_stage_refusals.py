"""Damaged data, learners of something else, full disks: refused in one line, and nothing
half-written is left.
"""

import errno
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from pipeline.storage import artifacts
from tests.conftest import WIDER
from tests.pipeline.small_project import (
    BODIES,
    Disk,
    Project,
    each_model,
    flip_bit,
    last_line,
    surround,
)

# Data and learners that cannot be trusted.


@each_model
@pytest.mark.parametrize("name", ["dataset.safetensors", "manifest.json"])
@pytest.mark.parametrize("verb", ["train", "evaluate"])
def test_a_flipped_bit_in_the_data_is_never_trained_on(
    collected: Project, verb: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flip_bit(collected.data / name)
    assert collected.call(verb) == 3
    said = capsys.readouterr().err
    assert said.startswith(f"{collected.name(verb)}: data/{collected.model}/{name}: ")
    assert said.count("\n") == 1
    assert "`dvc checkout --force`" in said
    assert not (collected.root / "models").exists()
    assert not (collected.root / ".state").exists()


@each_model
@pytest.mark.parametrize(
    "name", ["weights.safetensors", "state.safetensors", "history.csv", "config.json"]
)
def test_a_flipped_bit_in_a_learner_is_never_evaluated(
    evaluated: Project, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = evaluated.hashes("reports")
    flip_bit(evaluated.weights / name)
    assert evaluated.call("evaluate") == 3
    assert capsys.readouterr().err.startswith(
        f"evaluate@{evaluated.model}: models/{evaluated.model}/{name}: "
    )
    assert evaluated.hashes("reports") == before


@each_model
def test_a_learner_of_another_config_is_not_evaluated(
    evaluated: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluated.choose(overlay={evaluated.model: {"network": WIDER[evaluated.model]}})
    assert evaluated.call("evaluate") == 3
    printed = last_line(capsys)
    assert printed.startswith(
        f"evaluate@{evaluated.model}: models/{evaluated.model}: not a learner of this config: "
    )
    assert printed.endswith(f"; run `dvc repro train@{evaluated.model}` [exit 3]")


@each_model
def test_a_learner_of_other_data_is_not_evaluated(
    evaluated: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluated.choose(overlay={"seed": 1})
    assert evaluated.call("collect") == 0
    before = evaluated.hashes("reports")
    assert evaluated.call("evaluate") == 3
    model = evaluated.model
    assert last_line(capsys) == (
        f"evaluate@{model}: models/{model}: was trained on "
        f"another dataset than data/{model} holds; "
        f"run `dvc repro train@{model}` [exit 3]"
    )
    assert evaluated.hashes("reports") == before


# A file that a config names, whose content only the model can judge.


def test_a_table_that_is_no_field_is_refused_until_it_is_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = Project.create(tmp_path, "active_dynamics")
    surround(monkeypatch, project)
    table = {"kind": "table", "table_file": "inputs/active_dynamics/mine.npz"}
    project.choose(overlay={"active_dynamics": {"env": {"field": table}}})
    axis, path = np.linspace(-2, 2, 5), tmp_path / "inputs" / "active_dynamics" / "mine.npz"
    np.savez(path, axis_0=axis, axis_1=axis / 2, vectors=np.ones((5, 5, 2)))
    assert project.call("collect") == 3
    assert last_line(capsys) == (
        "collect@active_dynamics: mine.npz covers [-1, 1], the evaluation region needs [-1.5, "
        "1.5]: widen the grid or "
        "lower active_dynamics.env.region_radius. [exit 3]"
    )
    assert not project.data.exists()
    np.savez(path, axis_0=axis, axis_1=axis, vectors=np.ones((5, 5, 2)))
    assert project.call("collect") == 0


# A disk that takes no more.


@pytest.mark.parametrize("verb", BODIES)
def test_a_full_disk_leaves_nothing_half_written_and_the_next_run_continues(
    uninterrupted: Project,
    evaluated: Project,
    verb: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = {"collect": "data", "train": "models", "evaluate": "reports"}[verb]
    shutil.rmtree(evaluated.root / out)
    shutil.rmtree(evaluated.root / ".state")
    disk = Disk(monkeypatch, evaluated.root)
    assert evaluated.call(verb) == 0
    writes = disk.used
    for used in (0, writes // 3, writes - 1):
        shutil.rmtree(evaluated.root / out, ignore_errors=True)
        shutil.rmtree(evaluated.root / ".state", ignore_errors=True)
        disk.takes(used)
        assert evaluated.call(verb) == 5
        said = last_line(capsys)
        assert said.startswith(f"{verb}@allo: cannot write {evaluated.root}/")
        assert said.endswith(": No space left on device; nothing half-written was left [exit 5]")
        assert not list(evaluated.root.joinpath(out).rglob("*.partial"))
        assert not list(evaluated.root.joinpath(out).rglob("verdict.json"))
        for manifest in evaluated.root.joinpath(out).rglob("manifest.json"):
            artifacts.load(manifest.parent)
    disk.takes(float("inf"))
    assert evaluated.call(verb) == 0
    assert evaluated.hashes(out) == uninterrupted.hashes(out)


@pytest.mark.parametrize("number", [errno.EDQUOT, errno.EROFS, errno.EIO])
def test_other_refusals_of_a_disk_are_told_alike(
    collected: Project,
    number: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Disk(monkeypatch, collected.root, number).takes(0)
    assert collected.call("collect") == 5
    assert f": {os.strerror(number)}; nothing half-written was left [exit 5]" in last_line(capsys)
