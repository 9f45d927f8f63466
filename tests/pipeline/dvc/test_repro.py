"""What `make repro` does around dvc: locks of killed runs, signals, the gate last."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from pipeline.cli import main
from pipeline.dvc import repro, workspace
from pipeline.dvc.brief import VERBOSE_VARIABLE
from pipeline.judging.gate import rules_of
from pipeline.storage import run_key
from pipeline.tracking import champions
from quatrain.presets import parse
from quatrain.registry import MODELS
from tests.pipeline.fixture_types import Capture, Failure, Patch
from tests.pipeline.scored_workspace import Workspace
from tests.pipeline.small_checkout import git


class StandIn:
    """Notes how dvc is called, and which aliases are asked for; here without a store."""

    def __init__(self, patch: Patch) -> None:
        self.code = 0
        # Folders that the next dvc removes.
        self.removes: list[Path] = []
        self.calls, self.aliases, self.reports = list[Any](), list[Any](), list[Any]()
        patch.setattr(repro, "dvc", self.dvc)
        patch.setattr(repro, "write_report", lambda work, _: self.reports.append(work))
        patch.setattr(repro, "is_stale", lambda *_: False)
        patch.setattr(repro, "record_restored", lambda *_: None)
        patch.setattr(champions, "set_champions", self.set_champions)

    def dvc(self, work: Path, _variables: Any, *arguments: str) -> int:
        self.calls.append((work, arguments))
        while self.removes:
            shutil.rmtree(self.removes.pop())
        return self.code

    def set_champions(self, _root: Path, work: Path, preset: str) -> list[str]:
        self.aliases.append((work, preset))
        return []


@pytest.fixture
def dvc(checkout: Path, monkeypatch: Patch) -> StandIn:
    assert Path.cwd() == checkout
    return StandIn(monkeypatch)


def test_a_run_or_a_promotion_beside_a_run_is_refused(
    checkout: Path, failure: Failure, monkeypatch: Patch
):
    monkeypatch.setattr(workspace, "PATIENCE_SECONDS", 0.0)
    with workspace.alone(checkout, "default"):
        for verb in ("repro", "promote"):
            why = f"{verb}: repro is at work in process {os.getpid()}; wait for it or end it"
            assert failure(main, verb, code=5).startswith(why)


SAVES = """
import ctypes, pathlib, signal, sys, time
both = {signal.SIGINT, signal.SIGTERM}
signal.pthread_sigmask(signal.SIG_BLOCK, both)
ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)
print("ready", flush=True)
signal.sigtimedwait(both, 60) or sys.exit(5)
signal.pthread_sigmask(signal.SIG_UNBLOCK, both)
time.sleep(0.3)
pathlib.Path("saved").touch()
sys.exit(3)
"""
"""Saves after its first signal; a second one would end it at once."""
STAGE_BELOW = """
import subprocess, sys
subprocess.Popen([sys.executable, "-S", "-c", {code!r}]).wait()
"""


@pytest.mark.parametrize(
    ("code", "numbers", "ends"),
    [
        (SAVES, [signal.SIGINT, signal.SIGINT], 130),
        (STAGE_BELOW.format(code=SAVES), [signal.SIGTERM], 143),
    ],
)
def test_a_signal_leaves_the_stage_the_time_to_save(
    tmp_path: Path, monkeypatch: Patch, code: str, numbers: list[int], ends: int
):
    """SIGTERM ends dvc at once; its stage, which hears of that, is waited for."""
    before = signal.getsignal(signal.SIGTERM)
    command = [sys.executable, "-S", "-c", code]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        if signal.SIGINT in numbers:
            process.send_signal(signal.SIGINT)  # by the terminal
        wait, left = process.wait, [*numbers]

        def wait_and_receive(timeout: float | None = None) -> int:
            while left:
                signal.raise_signal(left.pop())
            return wait(timeout)

        monkeypatch.setattr(process, "wait", wait_and_receive)
        assert repro.wait_for_child(process) == ends
        assert (tmp_path / "saved").exists()
    assert left == []
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_gates_exit_code_is_the_answer_and_it_says_where_results_are(
    checkout: Path, dvc: StandIn, capsys: Capture
):
    report = checkout / "reports" / "report.md"
    report.touch()
    report.with_suffix(".html").touch()
    git(checkout, "add", "reports")
    git(checkout, "commit", "-q", "-m", "report")
    assert main(["repro"]) == 0
    metrics = sum(len(rules_of(model, "default")) for model in MODELS)
    out = capsys.readouterr().out
    assert out.startswith(
        "\nreport   reports/report.html  (open it in a browser; report.md is its text)\n"
        "runs     `make ui`, then "
        "http://127.0.0.1:5000/#/experiments?workflowType=machine_learning\n\nmodel  "
    )
    assert dvc.reports == []
    assert out.endswith(f"passed; {metrics} metrics of preset default hold their baselines\n")
    assert dvc.aliases == [(checkout, "default")]

    Workspace(checkout).score(cosine_mean=0.5)
    assert main(["repro", "allo"]) == 4
    out, err = capsys.readouterr()
    assert "gate: allo: worse: cosine_mean 0.5 is 0.495 worse than baseline 0.995" in err
    assert "\ncommit   git add reports  (`make back` drops all but baselines)\n" in out
    assert dvc.reports == [checkout]
    report.touch()

    assert main(["repro", "--preset", "smoke"]) == 4
    out, err = capsys.readouterr()
    why = "allo was not evaluated yet; run `make repro PRESET=smoke MODELS=allo` [exit 4]"
    assert f"gate: allo: missing: {why}" in err
    assert "report   .presets/smoke/reports/report.html" in out
    assert dvc.reports == [checkout]

    assert main(["repro", "--preset", "smoke", "allo", "iqn"]) == 4
    assert "report   .presets/smoke/reports/report.html" in capsys.readouterr().out
    assert dvc.reports == [checkout]  # nothing was evaluated
    places = [checkout, checkout, *2 * [checkout / ".presets" / "smoke"]]
    some = ("repro", "evaluate@allo", "evaluate@iqn")
    arguments = [("repro",), ("repro", "evaluate@allo"), ("repro",), some]
    assert dvc.calls == list(zip(places, arguments, strict=True))


def test_a_failure_of_the_registry_or_of_dvc_is_one_line(
    dvc: StandIn, capsys: Capture, monkeypatch: Patch
):
    away = Mock(side_effect=ConnectionError("nobody answers there"))
    monkeypatch.setattr(champions, "set_champions", away)
    assert main(["repro"]) == 0
    why = "registry: its aliases are not set yet (nobody answers there); `make sync` does it"
    assert capsys.readouterr().err == f"warning: {why}\n"

    dvc.code = 255
    assert main(["repro"]) == 255
    why = "repro: dvc stopped before the end; the lines above say why\n"
    assert capsys.readouterr() == ("", why)


def test_several_jobs_work_on_a_model_each_and_then_on_the_rest(
    checkout: Path, dvc: StandIn, monkeypatch: Patch
):
    def run(commands: Any, limit: int, *_: object) -> dict[str, int]:
        dvc.calls.append((limit, [command[3:] for command in commands.values()]))
        return dict.fromkeys(commands, 0)

    monkeypatch.setattr(repro, "run_parallel", run)
    models = ["allo", "iqn"]
    some = (checkout, ("repro", "evaluate@allo", "evaluate@iqn"))
    assert main(["repro", "--jobs", "3", *models]) == 0
    assert dvc.calls == [some]  # Nothing is stale.
    dvc.calls.clear()
    monkeypatch.setattr(repro, "is_stale", lambda *_: True)
    assert main(["repro", "--jobs", "3", *models]) == 0
    alone = ["--wait-for-lock", "repro", "--single-item"]
    verbs = ("collect", "train", "evaluate")
    parallel = [[*alone, *(f"{verb}@{model}" for verb in verbs)] for model in models]
    assert dvc.calls == [(3, parallel)]
    dvc.calls.clear()
    assert main(["repro", "--jobs", "3"]) == 0
    assert dvc.calls[1:] == [(checkout, ("repro", "--single-item", "report"))]


TOY = """
stages:
  collect:
    foreach: [allo, iqn]
    do: {cmd: 'echo of ${item} > ${item}.data', deps: [code], outs: ['${item}.data']}
  train:
    foreach: [allo, iqn]
    do: {cmd: './train ${item}', deps: [code, '${item}.data'], outs: ['${item}.net']}
  evaluate:
    foreach: [allo, iqn]
    do: {cmd: 'cp ${item}.net ${item}.score', deps: ['${item}.net'], outs: ['${item}.score']}
"""
TRAIN = """#!/bin/sh
test ! -e broken-$1 || exit 7
test $1 = iqn || sleep 1
echo $1 >>trained
cp $1.data $1.net
"""


@pytest.mark.full
def test_jobs_at_once_make_what_one_after_the_other_makes_and_a_failure_stops_no_other(
    tmp_path: Path, capfd: Capture
):
    """The last of the trainings is the first to end."""
    models = ("allo", "iqn")
    serial, parallel = (tmp_path / name for name in ("serial", "parallel"))
    for root in (serial, parallel):
        (root / ".dvc").mkdir(parents=True)
        (root / ".dvc" / "config").write_text("[core]\n    analytics = false\n    no_scm = true\n")
        for name, text in (("dvc.yaml", TOY), ("code", "1\n"), ("train", TRAIN)):
            (root / name).write_text(text)
        (root / "train").chmod(0o755)
    assert repro.reproduce(serial, os.environ, models, 1) == 0
    assert capfd.readouterr() == ("", "")
    (serial / "iqn.score").unlink()
    assert repro.reproduce(serial, os.environ, models, 1) == 0
    restored = "evaluate@iqn: restored from DVC's cache"
    assert sorted(capfd.readouterr().out.splitlines()) == [
        "allo: unchanged",
        "collect@iqn: unchanged",
        restored,
        "train@iqn: unchanged",
    ]
    loud = os.environ | {VERBOSE_VARIABLE: "1"}
    assert repro.reproduce(serial, loud, models, 1) == 0
    assert "Stage 'train@iqn' didn't change, skipping" in capfd.readouterr().out
    assert repro.reproduce(parallel, os.environ, models, 2) == 0
    locks = [parse(root / "dvc.lock")["stages"] for root in (serial, parallel)]
    assert locks[0] == locks[1]
    capfd.readouterr()

    (parallel / "code").write_text("2\n")
    (parallel / "broken-iqn").touch()
    assert repro.reproduce(parallel, os.environ, models, 2) == 255
    said = capfd.readouterr().err
    assert "ERROR: failed to reproduce 'train@iqn'" in said
    assert said.endswith("repro: iqn stopped before the end; the others are done\n")
    assert (parallel / "trained").read_text().split() == ["iqn", "allo", "allo"]


def test_a_changed_environment_of_a_user_runs_all_stages_of_its_model(
    space: Workspace, dvc: StandIn, monkeypatch: Patch
):
    def called() -> list[Any]:
        dvc.calls.clear()
        assert repro.rerun(space.root, {}, ["allo"]) == 0
        return [arguments for _, arguments in dvc.calls]

    assert called() == []
    for module in (repro, run_key):
        monkeypatch.setattr(module, "environment_of", lambda _env: {"paylib (version)": "2.0"})
    assert called() == [("repro", "--force", "evaluate@allo")]
    space.train("a" * 64)
    assert called() == []


def test_back_restores_the_commit_keeps_a_patch_and_makes_what_no_cache_has(
    checkout: Path, dvc: StandIn, capsys: Capture
):
    params = checkout / "params.yaml"
    before = params.read_text()
    params.write_text(before.replace("seed: 0", "seed: 7", 1))
    Workspace(checkout).score(cosine_mean=0.5)
    shutil.rmtree(checkout / "models" / "iqn")
    for model in MODELS:
        for out in (f"data/{model}", f"reports/{model}/plots", f"reports/{model}/curves"):
            (checkout / out).mkdir(parents=True)
    (checkout / "reports" / "new.md").touch()
    git(checkout, "add", "--force", "reports/new.md")
    git(checkout, "config", "diff.noprefix", "true")
    git(checkout, "config", "color.ui", "always")
    assert main(["back"]) == 0
    assert params.read_text() == before
    assert git(checkout, "status", "--porcelain", "--", "params.yaml", "reports") == ""
    kept, restored, *_ = capsys.readouterr().out.splitlines()
    assert restored.startswith("back: dvc.lock, params.yaml, reports are those of commit ")
    git(checkout, "apply", kept.partition("`git apply ")[2].partition(" &&")[0])
    assert "seed: 7" in params.read_text()
    assert (checkout / "reports" / "new.md").exists()
    options = ("checkout", "--quiet", "--allow-missing")
    assert dvc.calls == [(checkout, options)]

    dvc.removes = [checkout / "models" / "allo"]
    assert main(["back"]) == 4
    assert "back: no cache here has the commit's allo: made again\n" in capsys.readouterr().out
    assert dvc.calls[2:] == [(checkout, ("repro", "evaluate@allo"))]
