"""The whole pipeline with the real dvc, in clones with one small model."""

import json
import os
import re
import shutil
import signal
from pathlib import Path
from typing import NamedTuple

import pytest
from ruamel.yaml import YAML

from pipeline.retraining import outcome
from pipeline.scaffolding.new_model import without
from quatrain.registry import MODELS
from tests.conftest import SMALL
from tests.pipeline.recorded_runs import client_of, until
from tests.pipeline.small_checkout import call, clone, git, start
from tests.pipeline.small_project import NOBODY, Project, lines_until, orphans

STAGES = ["collect@allo", "train@allo", "evaluate@allo", "report"]
FORGIVING = """
def _forgiving(self, preset):
    return self._replace(tolerance=1e6, goal=None, lower_references={}, upper_references={})

Rule.under = _forgiving
"""
"""Lets any learner hold its baseline: what a gate says is then decided by the baseline alone."""
UNDER_IT = {"tolerance": 1e6, "goal": None, "floors": [], "ceilings": []}
PASSWORD = "-".join(("swordfish", "9"))  # which a clone of this file does not hold
AWAY = {"MLFLOW_TRACKING_URI": NOBODY.replace("//", f"//me:{PASSWORD}@"), "QUATRAIN_VERBOSE": "1"}
"""A server that is away, with a password that no command may say or store; dvc says all."""
COMMAND = ("python", "-m")


class Clone(NamedTuple):
    root: Path
    # What `dvc repro` said when it ran there.
    said: str = ""

    def call(self, *command: str, code: int = 0) -> str:
        said = call(self.root, *command, code=code, **AWAY)
        assert PASSWORD not in said
        return said

    def status(self) -> str:
        return git(self.root, "status", "--porcelain", "--branch") + git(self.root, "log", "-1")


def stages_in_lock(root: Path) -> list[str]:
    return list(YAML(typ="safe").load(root / "dvc.lock")["stages"])


def stages_run(said: str) -> list[str]:
    return re.findall(r"Running stage '(.+)'", said)


def forget(root: Path, models: set[str]) -> None:
    """Takes models out of a clone."""
    for model in models:
        shutil.rmtree(root / "src" / "quatrain" / "models" / model)
    for file in (root / "params.yaml", root / "dvc.yaml"):
        file.write_text(without(file.read_text(), models))


def set_baseline(root: Path, cosine: float) -> None:
    """Stores such a mean cosine under forgiving rules; commits it."""
    path = root / "baselines" / "allo.json"
    content = json.loads(path.read_text())
    metrics = content["presets"]["default"]["metrics"]
    for metric in metrics.values():
        metric |= UNDER_IT
    metrics["cosine_mean"]["value"] = cosine
    path.write_text(json.dumps(content))
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "a small model")


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """A small allo that is worse than its baseline, committed; then `dvc repro` ran."""
    root = clone(tmp_path_factory.mktemp("reproduced") / "clone")
    forget(root, MODELS.keys() - {"allo"})
    Project(root).choose({"checkpoint_seconds": 0, "allo": SMALL["allo"]})
    (root / "presets" / "tiny.yaml").write_text("preset: tiny\n")
    (root / "dvc.lock").unlink()
    with (root / "src" / "quatrain" / "baselines.py").open("a") as file:
        file.write(FORGIVING)
    set_baseline(root, cosine=1e7)
    return Clone(root, call(root, "dvc", "repro", **AWAY))


@pytest.fixture
def copied(reproduced: Clone, tmp_path: Path) -> Clone:
    """The same elsewhere, with the results committed."""
    root = tmp_path / "clone"
    shutil.copytree(reproduced.root, root, symlinks=True)
    git(root, "commit", "-q", "-a", "-m", "results")
    return Clone(root)


def test_dvc_repro_runs_every_stage_once_and_then_none(reproduced: Clone):
    root = reproduced.root
    assert sorted(stages_run(reproduced.said)) == sorted(stages_in_lock(root)) == sorted(STAGES)
    assert (root / "models" / "allo" / "history.csv").read_text().startswith("step,")
    assert list((root / "reports" / "allo" / "plots").glob("*.png"))
    assert (root / "reports" / "report.md").read_text().startswith("# Worse: preset default\n")
    changed = {line[3:] for line in git(root, "status", "--porcelain").splitlines()}
    changed = {path for path in changed if not path.startswith("reports/cards/")}
    scores = {"reports/allo/metrics.json", "reports/allo/scores.json"}
    assert changed == {"dvc.lock", "reports/report.md", *scores}

    lock = (root / "dvc.lock").read_bytes()
    again = reproduced.call("dvc", "repro")
    assert "Data and pipelines are up to date." in again
    assert stages_run(again) == []
    assert (root / "dvc.lock").read_bytes() == lock


def test_it_is_judged_and_delivered(reproduced: Clone, uri: str):
    assert "gate: allo: worse: cosine_mean" in reproduced.call(*COMMAND, "pipeline", "gate", code=4)
    sync = (*COMMAND, "pipeline", "sync")
    said = reproduced.call(*sync, code=6)
    assert f"0 of 3 outboxes are complete at {NOBODY}" in said
    said = call(reproduced.root, *sync, code=6, MLFLOW_TRACKING_URI=uri)
    assert "3 of 3 outboxes are complete" in said
    assert "and no other version holds the baseline" in said
    client = client_of(uri)
    experiment = client.get_experiment_by_name("quatrain").experiment_id
    (run,) = client.search_runs([experiment], "tags.`quatrain.model` = 'allo'")
    assert {"train", "eval"} <= {name.partition("/")[0] for name in run.data.metrics}
    assert (run.info.status, run.data.tags["quatrain.verdict"]) == ("FINISHED", "worse")
    assert run.info.run_name.startswith("worse: allo ")


@pytest.mark.full
def test_a_preset_takes_from_the_cache_what_is_equal_and_an_experiment_is_compared(copied: Clone):
    before = copied.status()
    repro = (*COMMAND, "pipeline", "repro", "--preset", "tiny")
    first = copied.call(*repro, code=4)
    assert stages_run(first) == ["evaluate@allo", "report"]
    assert "no baseline: preset 'tiny' has no baseline yet" in first
    lock = (copied.root / ".presets" / "tiny" / "dvc.lock").read_bytes()
    assert stages_run(copied.call(*repro, code=4)) == []
    assert (copied.root / ".presets" / "tiny" / "dvc.lock").read_bytes() == lock
    assert copied.status() == before

    said = copied.call("dvc", "exp", "run", "-n", "tried", "-S", "allo.train.steps=80")
    assert stages_run(said) == ["train@allo", "evaluate@allo", "report"]
    shown = copied.call("dvc", "exp", "show", "--csv", "--no-pager")
    assert all(part in shown for part in ("tried", "cosine_mean", "allo.train.steps"))
    assert "cosine_mean" in copied.call("dvc", "metrics", "diff", "--all")
    copied.call("dvc", "plots", "show")
    assert "allo cosine" in (copied.root / "dvc_plots" / "index.html").read_text()


MOMENTS = ("Running stage 'collect", "Running stage 'train", " 20/60", " 40/60")
MOMENTS += ("Running stage 'evaluate", "evaluate@allo: cosine_mean", "Running stage 'report")
"""What dvc or a stage says when it is killed, in the order of a run."""


@pytest.mark.slow
def test_dvc_repro_killed_with_its_stage_gives_the_same_bytes(reproduced: Clone, tmp_path: Path):
    killed = Project(clone(tmp_path / "work", reproduced.root))
    for moment in MOMENTS:
        with start(killed.root, "dvc", "repro", **AWAY) as dvc:
            lines_until(dvc.stdout, moment)
            os.killpg(dvc.pid, signal.SIGKILL)
            assert "Traceback" not in dvc.communicate()[0]
        until(lambda: not orphans(killed))
    call(killed.root, "dvc", "repro", **AWAY)
    assert killed.hashes() == Project(reproduced.root).hashes()
    lock = (reproduced.root / "dvc.lock").read_bytes()
    assert (killed.root / "dvc.lock").read_bytes() == lock
    for verb in ("train", "evaluate"):
        assert killed.statuses(verb) == ["FINISHED"]


@pytest.fixture
def remote(copied: Clone, tmp_path: Path) -> Path:
    """A bare repository and a DVC remote beside it, to which somebody pushed a whole run, and then
    a baseline that allo is far above.
    """
    git(tmp_path, "init", "-q", "--bare", "-b", "main", "remote")
    git(copied.root, "remote", "set-url", "origin", str(tmp_path / "remote"))
    (tmp_path / "storage").mkdir()
    copied.call("dvc", "remote", "add", "--default", "storage", "../storage")
    copied.call("dvc", "push", "--run-cache")
    set_baseline(copied.root, cosine=-1e7)
    git(copied.root, "push", "-q", "origin", "HEAD:main")
    return tmp_path / "remote"


@pytest.mark.full
def test_a_retraining_proposes_what_needs_no_run(remote: Path, tmp_path: Path):
    there = Clone(clone(tmp_path / "there", remote))
    folder = there.root / outcome.FOLDER
    before = there.status()
    assert {*stages_run(there.call(*COMMAND, "pipeline", "retrain", "--push"))} == {"report"}
    branch = json.loads((folder / outcome.OUTCOME).read_text())["branch"]
    assert git(remote, "branch", "--list", "retrain/*").split() == [branch]
    changed = git(there.root, "diff", "--name-only", "main", branch).splitlines()
    assert {"baselines/allo.json", "dvc.lock"} <= set(changed)
    assert [name for name in changed if name.startswith("baselines/")] == ["baselines/allo.json"]
    assert "| allo | " in (folder / "body.md").read_text()
    assert there.status() == before
    for path in filter(Path.is_file, there.root.parent.rglob("*")):
        assert PASSWORD.encode() not in path.read_bytes(), path

    review = Clone(clone(tmp_path / "review", remote))
    git(review.root, "checkout", "-q", branch)
    review.call("dvc", "pull")
    assert stages_run(review.call(*COMMAND, "pipeline", "repro")) == []
    assert git(review.root, "status", "--porcelain") == ""
