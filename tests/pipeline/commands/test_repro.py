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
from tests.pipeline.scored_workspace import Workspace

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def crowned(monkeypatch: pytest.MonkeyPatch) -> list[list[model_registry.Alias]]:
    """The aliases that were asked for; here without a store."""
    asked: list[list[model_registry.Alias]] = []

    def crown(_root: Path, aliases: list[model_registry.Alias]) -> list[str]:
        asked.append(aliases)
        return []

    monkeypatch.setattr(model_registry, "set_aliases", crown)
    return asked


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["alo"], f"repro: unknown model 'alo'; known: {', '.join(MODELS)} [exit 2]\n"),
        (
            ["--preset", "smok"],
            "repro: unknown preset 'smok'; did you mean 'smoke'?; known: default, ",
        ),
        (["--preset", "../x"], "repro: unknown preset '../x'; known: default, "),
    ],
)
def test_an_unknown_model_or_preset_ends_with_2_in_one_line(
    checkout: Path, capsys: Capture, arguments: list[str], why: str
):
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert err.startswith(why)
    assert err.count("\n") == 1
    assert out == ""
    assert not (checkout / ".presets").exists()


@pytest.mark.parametrize("jobs", ["0", "-1", "two", "1.5", ""])
def test_jobs_are_counted(capsys: Capture, jobs: str):
    with pytest.raises(SystemExit, match="2"):
        main([f"--jobs={jobs}"])
    printed = capsys.readouterr().err
    assert f"argument --jobs: {jobs!r} is no number of jobs; pass 1 or more" in printed


def test_params_that_cannot_be_used_never_reach_dvc(
    checkout: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(repro, "dvc", lambda *_: pytest.fail("dvc was called"))
    (checkout / "params.yaml").write_text("seed: -1\n")
    assert main([]) == 2
    assert capsys.readouterr().err.endswith("[exit 2]\n")


# Signals: the child is given the time to save.


SAVES = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
print("ready", flush=True)
time.sleep({seconds})
pathlib.Path(sys.argv[1]).touch()
sys.exit(3)
"""


def child(tmp_path: Path, seconds: float) -> subprocess.Popen:
    command = [sys.executable, "-c", SAVES.format(seconds=seconds), str(tmp_path / "saved")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def after(seconds: float, number: signal.Signals) -> None:
    threading.Timer(seconds, os.kill, (os.getpid(), number)).start()


def test_ctrl_c_leaves_the_child_the_time_to_save(tmp_path: Path):
    with child(tmp_path, 0.9) as process:
        after(0.1, signal.SIGINT)
        after(0.5, signal.SIGINT)
        assert repro.wait_for_child(process) == 3
    assert (tmp_path / "saved").exists()


def test_sigterm_is_passed_on(tmp_path: Path):
    before = signal.getsignal(signal.SIGTERM)
    with child(tmp_path, 60) as process:
        after(0.1, signal.SIGTERM)
        assert repro.wait_for_child(process) == 9
    assert signal.getsignal(signal.SIGTERM) is before


STAGE_BELOW = """
import signal, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", sys.argv[2], sys.argv[1]]).wait()
"""
SAVES_SLOWLY = """
import ctypes, pathlib, signal, sys, time
def save(*_):
    time.sleep(0.6)
    pathlib.Path(sys.argv[1]).touch()
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)
print("ready", flush=True)
time.sleep(60)
"""


def test_sigterm_waits_for_the_stage_below_which_saves_after_dvc_has_died(tmp_path: Path):
    command = [sys.executable, "-c", STAGE_BELOW, str(tmp_path / "saved"), SAVES_SLOWLY]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        after(0.1, signal.SIGTERM)
        assert repro.wait_for_child(process) == 143
        assert (tmp_path / "saved").exists()


def test_a_killed_child_is_an_exit_code(tmp_path: Path):
    with child(tmp_path, 60) as process:
        process.kill()
        assert repro.wait_for_child(process) == 137


# What is printed in the end.


class Dvc:
    """Stands in for dvc: notes how it is called."""

    def __init__(self, code: int = 0) -> None:
        self.code, self.calls = code, list[tuple[Path, tuple[str, ...]]]()

    def __call__(self, _root: Path, work: Path, *arguments: str) -> int:
        self.calls.append((work, arguments))
        return self.code


def test_the_gate_comes_last_and_its_exit_code_is_the_answer(
    checkout: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(repro, "dvc", dvc := Dvc())
    assert main([]) == 0
    assert dvc.calls == [(checkout, ("repro",))]
    metrics = sum(len(verdicts.rules_of(model, "default")) for model in MODELS)
    assert capsys.readouterr().out.endswith(
        f"gate: passed; {metrics} metrics hold their baselines\n\n"
        "report   reports/report.md\nruns     `make ui`, then http://127.0.0.1:5000\n"
    )
    Workspace(checkout).score(cosine_mean=0.5)
    assert main([]) == 4
    out, err = capsys.readouterr()
    assert "gate: allo: worse: cosine_mean 0.5 is 0.495 worse than baseline 0.995" in err
    assert "report   reports/report.md" in out


def test_the_aliases_follow_what_was_judged(
    checkout: Path, crowned: list[list[model_registry.Alias]], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(repro, "dvc", Dvc())
    main(["allo"])
    assert crowned == [model_registry.expected_aliases(checkout, checkout, "default", ["allo"])]
    repro.judge_again(checkout, "default", ["allo"], update_aliases=False)
    assert len(crowned) == 1


@pytest.mark.usefixtures("checkout")
def test_a_store_that_is_away_costs_a_line_and_no_verdict(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
):
    def away(*_: object) -> list[str]:
        raise ConnectionError("nobody answers there")

    monkeypatch.setattr(model_registry, "set_aliases", away)
    monkeypatch.setattr(repro, "dvc", Dvc())
    assert main([]) == 0
    printed = (
        "warning: registry: its aliases are not set yet (nobody answers there); `make sync` "
        "does it\n"
    )
    assert capsys.readouterr().err.endswith(printed)


def test_a_preset_says_where_its_report_is(
    checkout: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(repro, "dvc", dvc := Dvc())
    assert main(["--preset", "smoke"]) == 4
    assert [work for work, _ in dvc.calls] == [checkout / ".presets" / "smoke"]
    out, err = capsys.readouterr()
    assert (
        "gate: allo: missing: allo was not evaluated yet; run `make repro PRESET=smoke` [exit 4]"
        in err
    )
    assert "report   .presets/smoke/reports/report.md" in out


@pytest.mark.usefixtures("checkout")
def test_a_run_that_cannot_be_recorded_yet_changes_no_verdict(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(repro, "dvc", Dvc())
    monkeypatch.setattr("pipeline.tracking.backfill.catch_up", lambda *_: 6)
    assert main([]) == 0
    assert (
        "repro: some runs are not recorded yet; the line above says why, `make sync` tries again\n"
        in (capsys.readouterr().err)
    )


def test_several_jobs_collect_first_then_train_then_do_the_rest(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(repro, "dvc", dvc := Dvc())
    trained: list[tuple[int, dict[str, list[str]]]] = []

    def run(
        self: repro.ParallelCommands, commands: dict[str, list[str]], *_: object
    ) -> dict[str, int]:
        trained.append((self.limit, commands))
        return dict.fromkeys(commands, 0)

    monkeypatch.setattr(repro.ParallelCommands, "run", run)
    assert main(["--jobs", "3", "allo", "iqn"]) == 0
    assert [arguments for _, arguments in dvc.calls] == [
        ("repro", "collect@allo", "collect@iqn"),
        ("repro", "evaluate@allo", "evaluate@iqn"),
    ]
    ((at_once, commands),) = trained
    assert at_once == 3
    assert {stage: command[3:] for stage, command in commands.items()} == {
        f"train@{model}": ["--wait-for-lock", "repro", "--single-item", f"train@{model}"]
        for model in ("allo", "iqn")
    }
    assert {work for work, _ in dvc.calls} == {checkout}


@pytest.mark.usefixtures("checkout")
def test_where_dvc_stops_there_is_no_judgement(capsys: Capture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(repro, "dvc", Dvc(255))
    assert main([]) == 255
    out, err = capsys.readouterr()
    assert out == ""
    assert (
        err
        == "repro: dvc stopped before the end; the line above that ends with [exit N] says why\n"
    )


def test_judging_again_evaluates_and_reports_but_never_trains(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(repro, "dvc", dvc := Dvc())
    assert repro.judge_again(checkout, "default", MODELS) == 0
    assert [arguments for _, arguments in dvc.calls] == [
        *(("repro", "--single-item", f"evaluate@{model}") for model in MODELS),
        ("repro", "--single-item", "report"),
    ]


def test_dvc_runs_with_this_python_first_and_the_checkouts_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    recorded: list[dict[str, str]] = []
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    monkeypatch.setattr(repro, "wait_for_child", lambda _: 0)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, env, **__: recorded.append(env))
    assert repro.dvc(tmp_path, tmp_path / ".presets" / "smoke", "repro") == 0
    assert recorded[0]["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    assert recorded[0]["MLFLOW_TRACKING_URI"] == f"sqlite:///{tmp_path}/.mlflow/mlflow.db"
    assert recorded[0]["PYTHONPATH"] == f"{tmp_path}/.presets/smoke/src"
