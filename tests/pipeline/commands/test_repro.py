"""What `make repro` does around dvc: locks of killed runs, signals, the gate last."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pipeline.commands.repro import main
from pipeline.dvc import repro
from pipeline.judging import verdicts
from pipeline.tracking import model_registry
from quatrain.registry import MODELS
from tests.pipeline.fixture_types import Capture, Failure, Patch
from tests.pipeline.scored_workspace import Workspace

Aliases = list[model_registry.Alias]


@pytest.fixture(autouse=True)
def crowned(monkeypatch: Patch) -> list[Aliases]:
    """The aliases that were asked for; here without a store."""
    asked: list[Aliases] = []

    def crown(_root: Path, aliases: Aliases) -> list[str]:
        asked.append(aliases)
        return []

    monkeypatch.setattr(model_registry, "set_aliases", crown)
    return asked


class Dvc:
    """Stands in for dvc: notes how it is called."""

    def __init__(self) -> None:
        self.code, self.calls = 0, list[tuple[Path, tuple[str, ...]]]()

    def __call__(self, _root: Path, work: Path, *arguments: str) -> int:
        self.calls.append((work, arguments))
        return self.code


@pytest.fixture
def dvc(checkout: Path, monkeypatch: Patch) -> Dvc:
    assert Path.cwd() == checkout
    monkeypatch.setattr(repro, "dvc", stand_in := Dvc())
    return stand_in


# Options.


def test_what_cannot_be_used_never_reaches_dvc(checkout: Path, dvc: Dvc, failure: Failure):
    models = ", ".join(MODELS)
    assert failure(main, "alo", code=2) == f"repro: unknown model 'alo'; known: {models}"
    for preset, why in (("smok", "'smok'; did you mean 'smoke'?"), ("../x", "'../x'")):
        said = failure(main, "--preset", preset, code=2)
        assert said.startswith(f"repro: unknown preset {why}; known: default, ")
    assert not (checkout / ".presets").exists()
    (checkout / "params.yaml").write_text("seed: -1\n")
    assert failure(main, code=2).startswith("repro: params.yaml: ")
    assert dvc.calls == []


@pytest.mark.parametrize("jobs", ["0", "-1", "1.5"])
def test_jobs_are_counted(capsys: Capture, jobs: str):
    with pytest.raises(SystemExit, match="2"):
        main([f"--jobs={jobs}"])
    printed = capsys.readouterr().err
    assert f"argument --jobs: {jobs!r} is no number of jobs; pass 1 or more" in printed


# Signals: the child is given the time to save.


SAVES = """
import ctypes, pathlib, signal, sys, time
def save(*_):
    time.sleep(0.5)
    pathlib.Path("saved").touch()
    sys.exit(3)
signal.signal(signal.SIGTERM, save)
ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)
print("ready", flush=True)
save()
"""
STAGE_BELOW = """
import subprocess, sys
subprocess.Popen([sys.executable, "-S", "-c", {code!r}]).wait()
"""


def child(folder: Path, code: str) -> subprocess.Popen:
    command = [sys.executable, "-S", "-c", code]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def after(seconds: float, number: signal.Signals) -> None:
    threading.Timer(seconds, os.kill, (os.getpid(), number)).start()


def test_ctrl_c_leaves_the_child_the_time_to_save(tmp_path: Path):
    with child(tmp_path, SAVES) as process:
        after(0.1, signal.SIGINT)
        after(0.3, signal.SIGINT)
        assert repro.wait_for_child(process) == 3
    assert (tmp_path / "saved").exists()


def test_sigterm_waits_for_the_stage_which_saves_after_dvc_has_died(tmp_path: Path):
    before = signal.getsignal(signal.SIGTERM)
    with child(tmp_path, STAGE_BELOW.format(code=SAVES)) as process:
        after(0.1, signal.SIGTERM)
        assert repro.wait_for_child(process) == 143
        assert (tmp_path / "saved").exists()
    assert signal.getsignal(signal.SIGTERM) is before


# What is called, and what is printed in the end.


def test_the_gates_exit_code_is_the_answer(
    checkout: Path, dvc: Dvc, crowned: list[Aliases], capsys: Capture
):
    assert main([]) == 0
    assert dvc.calls == [(checkout, ("repro",))]
    metrics = sum(len(verdicts.rules_of(model, "default")) for model in MODELS)
    assert capsys.readouterr().out.endswith(
        f"gate: passed; {metrics} metrics hold their baselines\n\n"
        "report   reports/report.md\nruns     `make ui`, then http://127.0.0.1:5000\n"
    )
    assert crowned == [model_registry.expected_aliases(checkout, checkout, "default", MODELS)]

    Workspace(checkout).score(cosine_mean=0.5)
    assert main(["allo"]) == 4
    assert dvc.calls[1:] == [(checkout, ("repro", "evaluate@allo"))]
    out, err = capsys.readouterr()
    assert "gate: allo: worse: cosine_mean 0.5 is 0.495 worse than baseline 0.995" in err
    assert "scores, plots   reports/{allo}\n" in out


def test_a_preset_says_where_its_report_is(checkout: Path, dvc: Dvc, capsys: Capture):
    assert main(["--preset", "smoke"]) == 4
    assert dvc.calls == [(checkout / ".presets" / "smoke", ("repro",))]
    out, err = capsys.readouterr()
    why = "allo was not evaluated yet; run `make repro PRESET=smoke` [exit 4]"
    assert f"gate: allo: missing: {why}" in err
    assert "report   .presets/smoke/reports/report.md" in out


@pytest.mark.usefixtures("dvc")
def test_a_store_that_is_away_costs_a_line_and_no_verdict(capsys: Capture, monkeypatch: Patch):
    def away(*_: object) -> list[str]:
        raise ConnectionError("nobody answers there")

    monkeypatch.setattr(model_registry, "set_aliases", away)
    monkeypatch.setattr("pipeline.tracking.backfill.catch_up", lambda *_: 6)
    assert main([]) == 0
    assert capsys.readouterr().err == (
        "repro: some runs are not recorded yet; the line above says why, `make sync` tries again\n"
        "warning: registry: its aliases are not set yet (nobody answers there); `make sync` "
        "does it\n"
    )


def test_where_dvc_stops_there_is_no_judgement(checkout: Path, dvc: Dvc, capsys: Capture):
    dvc.code = 255
    assert main([]) == 255
    why = "repro: dvc stopped before the end; the line above that ends with [exit N] says why\n"
    assert capsys.readouterr() == ("", why)

    assert repro.judge_again(checkout, "default", ["iqn"]) == 255
    why = "repro: not judged again: evaluate@iqn did not end well; run `make repro`\n"
    assert capsys.readouterr() == ("", why)


def test_several_jobs_collect_then_train_then_do_the_rest(
    checkout: Path, dvc: Dvc, monkeypatch: Patch
):
    trained: list[tuple[int, dict[str, list[str]]]] = []

    def run(
        self: repro.ParallelCommands, commands: dict[str, list[str]], *_: object
    ) -> dict[str, int]:
        trained.append((self.limit, commands))
        return dict.fromkeys(commands, 0)

    monkeypatch.setattr(repro.ParallelCommands, "run", run)
    assert main(["--jobs", "3", "allo", "iqn"]) == 0
    assert dvc.calls == [
        (checkout, ("repro", "collect@allo", "collect@iqn")),
        (checkout, ("repro", "evaluate@allo", "evaluate@iqn")),
    ]
    ((at_once, commands),) = trained
    assert at_once == 3
    assert {stage: command[3:] for stage, command in commands.items()} == {
        f"train@{model}": ["--wait-for-lock", "repro", "--single-item", f"train@{model}"]
        for model in ("allo", "iqn")
    }


def test_judging_again_evaluates_and_never_trains(checkout: Path, dvc: Dvc, crowned: list[Aliases]):
    assert repro.judge_again(checkout, "default", MODELS, update_aliases=False) == 0
    stages = [*(f"evaluate@{model}" for model in MODELS), "report"]
    assert dvc.calls == [(checkout, ("repro", "--single-item", stage)) for stage in stages]
    assert crowned == []


def test_dvc_runs_with_this_python_and_the_checkouts_store(tmp_path: Path, monkeypatch: Patch):
    recorded: list[dict[str, str]] = []
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    monkeypatch.setattr(repro, "wait_for_child", lambda _: 0)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, env, **__: recorded.append(env))
    assert repro.dvc(tmp_path, tmp_path / ".presets" / "smoke", "repro") == 0
    assert recorded[0]["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    assert recorded[0]["MLFLOW_TRACKING_URI"] == f"sqlite:///{tmp_path}/.mlflow/mlflow.db"
    assert recorded[0]["PYTHONPATH"] == f"{tmp_path}/.presets/smoke/src"
