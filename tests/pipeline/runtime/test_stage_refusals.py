"""Damaged data, learners of something else, full disks: refused, with nothing half-written."""

import errno
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.storage import artifacts
from pipeline.storage.params_file import parse
from quatrain.errors import ConfigError
from tests.models.iqn.hosted_envs import Corridor, section
from tests.pipeline.fixture_types import Capture, Patch
from tests.pipeline.small_project import Disk, Pretended, Project, flip_bit, last_line, surround

# Data and learners that cannot be trained.


@pytest.mark.parametrize(
    ("verb", "file"),
    [
        ("train", "data/allo/dataset.safetensors"),
        ("evaluate", "data/allo/manifest.json"),
        ("evaluate", "models/allo/weights.safetensors"),
        ("evaluate", "models/allo/state.safetensors"),
    ],
)
def test_a_file_with_a_flipped_bit_is_never_used(
    evaluated: Project, verb: str, file: str, capsys: Capture
):
    shutil.rmtree(evaluated.root / ".state")
    flip_bit(evaluated.root / file)
    before = evaluated.hashes()
    assert evaluated.call(verb) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{verb}@allo: {file}: ")
    assert "`dvc checkout --force`" in line
    assert evaluated.hashes() == before
    assert not (evaluated.root / ".state").exists()


@pytest.mark.parametrize(
    ("uninterrupted", "changed", "key"),
    [
        ("allo", {"allo": {"network": {"hidden": 17}}}, "allo.network.hidden"),
        ("allo", {"seed": 1}, "seed"),
        ("active_dynamics", {"active_dynamics": {"network": {"rbf": {"side": 6}}}}, "active_dyn"),
    ],
    indirect=["uninterrupted"],
)
def test_a_learner_of_another_config_or_other_data_is_not_evaluated(
    evaluated: Project, changed: dict[str, Any], key: str, capsys: Capture
):
    model, before = evaluated.model, evaluated.hashes("reports")
    params = (evaluated.root / "params.yaml").read_text()
    evaluated.choose(overlay=changed)
    assert evaluated.call("evaluate") == 3
    line = last_line(capsys)
    assert line.startswith(f"evaluate@{model}: models/{model}: was trained with {key}")
    assert line.endswith(f"; set that back, or run `dvc repro train@{model}` [exit 3]")

    (evaluated.root / "params.yaml").write_text(params)
    evaluated.choose(overlay={"seed": 1})
    assert evaluated.call("collect") == 0
    assert evaluated.call("evaluate") == 3
    assert last_line(capsys) == (
        f"evaluate@{model}: models/{model}: was trained on another dataset than data/{model} "
        f"holds; run `dvc repro train@{model}` [exit 3]"
    )
    assert evaluated.hashes("reports") == before


def test_a_table_that_is_no_field_is_refused_in_one_line(tmp_path: Path, monkeypatch: Patch):
    project = Project.create(tmp_path, "active_dynamics")
    surround(monkeypatch, project)
    table = {"kind": "table", "table_file": "inputs/active_dynamics/mine.npz"}
    project.choose(overlay={"active_dynamics": {"env": {"field": table}}})
    axis, path = np.linspace(-2, 2, 5), tmp_path / "inputs" / "active_dynamics" / "mine.npz"
    np.savez(path, axis_0=axis, axis_1=axis / 2, vectors=np.ones((5, 5, 2)))
    with pytest.raises(ConfigError, match=r"env: mine\.npz covers \[-1, 1\], the evaluation "):
        project.call("collect")
    assert not project.data.exists()


# Environments of users.


class Leaving(Corridor):
    def step(self, _action: int) -> Any:
        raise SystemExit(0)


@pytest.fixture
def leaving(tmp_path: Path, monkeypatch: Patch) -> Project:
    """Collects in an environment that ends the process at its first step."""
    project = Project.create(tmp_path, "iqn")
    surround(monkeypatch, project)
    params = parse(tmp_path / "params.yaml") | {"iqn": section("Corridor")}
    params["iqn"]["env"]["import"] = f"{__name__}:Leaving"
    (tmp_path / "params.yaml").write_text(json.dumps(params))
    return project


def test_an_environment_that_ends_the_process_is_one_line_and_no_success(
    leaving: Project, capsys: Capture
):
    assert leaving.call("collect") == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("collect@iqn: env Leaving (number 0, episode 0, step 1): SystemExit: 0")
    assert not leaving.data.exists()


def test_what_fails_after_a_signal_is_an_interruption(leaving: Project, capsys: Capture):
    assert leaving.call("collect", Pretended(signal.SIGINT)) == 130
    assert last_line(capsys) == (
        "collect@iqn: interrupted by SIGINT; the next run continues [exit 130]"
    )


# A disk that takes no more.


@pytest.mark.parametrize(
    ("verb", "number"),
    [("collect", errno.EIO), ("train", errno.ENOSPC), ("evaluate", errno.EDQUOT)],
)
def test_a_full_disk_leaves_nothing_half_written_and_the_next_run_continues(
    uninterrupted: Project,
    evaluated: Project,
    verb: str,
    number: int,
    monkeypatch: Patch,
    capsys: Capture,
):
    out = evaluated.root / {"collect": "data", "train": "models", "evaluate": "reports"}[verb]
    state = evaluated.root / ".state"
    disk = Disk(monkeypatch, evaluated.root, number)
    shutil.rmtree(out)
    shutil.rmtree(state)
    assert evaluated.call(verb) == 0
    writes = disk.used
    for used in (0, writes // 3, writes - 1):
        shutil.rmtree(out, ignore_errors=True)
        shutil.rmtree(state, ignore_errors=True)
        disk.takes(used)
        assert evaluated.call(verb) == 5
        line = last_line(capsys)
        assert line.startswith(f"{verb}@allo: cannot ")
        assert f": {os.strerror(number)}; " in line
        assert line.endswith(", then run again [exit 5]")
        assert not list(out.rglob("*.partial"))
        assert not list(out.rglob("verdict.json"))
        for manifest in out.rglob("manifest.json"):
            artifacts.load(manifest.parent)
    disk.takes(float("inf"))
    assert evaluated.call(verb) == 0
    assert evaluated.hashes(out.name) == uninterrupted.hashes(out.name)
