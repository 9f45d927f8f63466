"""What `make repro` does around dvc: a workspace per preset, locks of killed runs, signals, the gate last."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from pipeline import repro
from pipeline.params import ConfigError
from tests.pipeline.scored_workspace import Workspace, make_workspace

Capture = pytest.CaptureFixture[str]


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small repository whose default run has been made."""
    root = tmp_path / "checkout"
    monkeypatch.chdir(tmp_path)
    root.mkdir()
    space = make_workspace(root)
    for name in ("src/a.py", "src/deep/b.py", "pipeline/c.py", "docs/d.md", ".dvc/config", "dvc.lock"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{name} as committed\n")
    (root / ".gitignore").write_text(".presets/\n/models/\n__pycache__/\n")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "start")
    space.score()
    monkeypatch.chdir(root)
    return root


def contents(root: Path) -> dict[str, bytes]:
    """Every file but those below .git and .presets."""
    files = (path for path in root.rglob("*") if path.is_file())
    names = {str(path.relative_to(root)): path for path in files}
    return {name: path.read_bytes() for name, path in names.items() if not name.startswith((".git/", ".presets/"))}


def test_the_default_run_is_made_in_place(checkout: Path):
    before = contents(checkout)
    assert repro.prepare_workspace(checkout, "default") == checkout
    assert contents(checkout) == before


def test_a_preset_gets_a_copy_with_its_own_params_and_leaves_the_checkout_alone(checkout: Path):
    before = contents(checkout)
    work = repro.prepare_workspace(checkout, "smoke")
    assert work == checkout / ".presets" / "smoke"
    assert contents(checkout) == before
    copied = contents(work)
    for name in ("src/a.py", "src/deep/b.py", "pipeline/c.py", "docs/d.md", "baselines/allo.json", ".dvc/config"):
        assert copied[name] == before[name]
    overlaid = YAML(typ="safe").load(work / "params.yaml")
    assert overlaid["preset"] == "smoke"
    assert overlaid["allo"]["train"]["steps"] == 2000
    assert overlaid["allo"]["train"]["learning_rate"] == 1e-3
    assert not {name for name in copied if name.startswith(("models/", "reports/")) or name == "dvc.lock"}


def test_a_workspace_shares_the_cache_and_is_no_git_repository_of_its_own(checkout: Path):
    work = repro.prepare_workspace(checkout, "smoke")
    assert (work / ".dvc" / "config.local").read_text() == (
        f'[core]\n    no_scm = true\n[cache]\n    dir = "{checkout}/.dvc/cache"\n'
    )
    assert not (work / ".git").exists()


def test_uncommitted_edits_and_new_files_travel(checkout: Path):
    repro.prepare_workspace(checkout, "smoke")
    (checkout / "src" / "a.py").write_text("edited\n")
    (checkout / "inputs" / "allo" / "new.txt").write_text("....\n")
    work = repro.prepare_workspace(checkout, "smoke")
    assert (work / "src" / "a.py").read_text() == "edited\n"
    assert (work / "inputs" / "allo" / "new.txt").read_text() == "....\n"


def test_files_that_are_gone_from_the_checkout_go_from_the_workspace(checkout: Path):
    work = repro.prepare_workspace(checkout, "smoke")
    (checkout / "src" / "a.py").unlink()
    git(checkout, "rm", "-q", "docs/d.md", "src/deep/b.py")
    (work / "src" / "stray.py").write_text("of an older version\n")
    repro.prepare_workspace(checkout, "smoke")
    for name in ("src/a.py", "docs/d.md", "src/deep/b.py", "src/stray.py"):
        assert not (work / name).exists(), name


def test_what_the_preset_has_made_stays(checkout: Path):
    work = repro.prepare_workspace(checkout, "smoke")
    for name in ("dvc.lock", "data/allo/dataset.npz", "models/allo/m", "reports/r", ".state/x/y", ".dvc/tmp/z"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("made")
    before = contents(work)
    repro.prepare_workspace(checkout, "smoke")
    assert contents(work) == before


def test_equal_files_keep_their_time(checkout: Path):
    work = repro.prepare_workspace(checkout, "smoke")
    os.utime(work / "src" / "a.py", (5, 5))
    repro.prepare_workspace(checkout, "smoke")
    assert (work / "src" / "a.py").stat().st_mtime == 5


def test_two_presets_do_not_meet(checkout: Path):
    smoke, large = (repro.prepare_workspace(checkout, preset) for preset in ("smoke", "large"))
    (smoke / "dvc.lock").write_text("smoke's")
    repro.prepare_workspace(checkout, "large")
    assert not (large / "dvc.lock").exists()
    assert (smoke / "dvc.lock").read_text() == "smoke's"


def test_a_preset_outside_a_git_checkout_is_refused(checkout: Path):
    (checkout / ".git").rename(checkout / "not-git")
    with pytest.raises(
        ConfigError, match="a preset runs in a copy of what git lists; run from a git checkout, with git"
    ):
        repro.prepare_workspace(checkout, "smoke")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["alo"], "repro: unknown model 'alo'; known: allo [exit 2]\n"),
        (["--preset", "smok"], "repro: unknown preset 'smok'; did you mean 'smoke'?; known: default, "),
        (["--preset", "../x"], "repro: unknown preset '../x'; known: default, "),
    ],
)
def test_an_unknown_model_or_preset_ends_with_2_in_one_line(
    checkout: Path, capsys: Capture, arguments: list[str], why: str
):
    assert repro.main(arguments) == 2
    out, err = capsys.readouterr()
    assert err.startswith(why)
    assert err.count("\n") == 1
    assert out == ""
    assert not (checkout / ".presets").exists()


def test_params_that_cannot_be_used_never_reach_dvc(checkout: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(repro, "dvc", lambda *_: pytest.fail("dvc was called"))
    (checkout / "params.yaml").write_text("seed: -1\n")
    assert repro.main([]) == 2
    assert capsys.readouterr().err.endswith("[exit 2]\n")


# Locks of killed runs.


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / ".dvc" / "tmp" / "rwlock"
    path.parent.mkdir(parents=True)
    return path


@pytest.mark.parametrize("text", ["", "{", '{"/data/allo": {"write": {"pid": 12', "[]", "\x00\x00"])
def test_a_half_written_lock_is_removed(lock: Path, tmp_path: Path, capsys: Capture, text: str):
    lock.write_text(text)
    repro.repair_lock(tmp_path)
    assert not lock.exists()
    assert capsys.readouterr().err == "repro: removed .dvc/tmp/rwlock, which a killed run left half-written\n"


@pytest.mark.parametrize("text", ["{}", '{"/data/allo": {"write": {"pid": 12, "cmd": "dvc repro"}}}'])
def test_a_whole_lock_is_kept(lock: Path, tmp_path: Path, capsys: Capture, text: str):
    lock.write_text(text)
    repro.repair_lock(tmp_path)
    assert lock.read_text() == text
    assert capsys.readouterr().err == ""


def test_a_lock_that_a_living_dvc_is_writing_is_kept(lock: Path, tmp_path: Path):
    lock.write_text("{")
    with lock.with_name("rwlock.lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        repro.repair_lock(tmp_path)
        assert lock.read_text() == "{"


def test_without_a_lock_there_is_nothing_to_repair(tmp_path: Path):
    repro.repair_lock(tmp_path)
    assert list(tmp_path.iterdir()) == []


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
        assert repro.patiently(process) == 3
    assert (tmp_path / "saved").exists()


def test_sigterm_is_passed_on(tmp_path: Path):
    before = signal.getsignal(signal.SIGTERM)
    with child(tmp_path, 60) as process:
        after(0.1, signal.SIGTERM)
        assert repro.patiently(process) == 9
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_killed_child_is_an_exit_code(tmp_path: Path):
    with child(tmp_path, 60) as process:
        process.kill()
        assert repro.patiently(process) == 137


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
    assert repro.main([]) == 0
    assert dvc.calls == [(checkout, ("repro",))]
    assert capsys.readouterr().out.endswith(
        "gate: passed; 3 metrics hold their baselines\n\n"
        "report   reports/report.md\nruns     `make ui`, then http://127.0.0.1:5000\n"
    )
    Workspace(checkout).score(cosine_mean=0.5)
    assert repro.main([]) == 4
    out, err = capsys.readouterr()
    assert "gate: allo: worse: cosine_mean 0.5 is 0.495 worse than baseline 0.995" in err
    assert "report   reports/report.md" in out


def test_a_preset_says_where_its_report_is(checkout: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(repro, "dvc", dvc := Dvc())
    assert repro.main(["--preset", "smoke"]) == 4
    assert [work for work, _ in dvc.calls] == [checkout / ".presets" / "smoke"]
    out, err = capsys.readouterr()
    assert "gate: allo: missing: allo was not evaluated yet; run `make repro PRESET=smoke` [exit 4]" in err
    assert "report   .presets/smoke/reports/report.md" in out


@pytest.mark.usefixtures("checkout")
def test_where_dvc_stops_there_is_no_judgement(capsys: Capture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(repro, "dvc", Dvc(255))
    assert repro.main([]) == 255
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "repro: dvc stopped before the end; the line above that ends with [exit N] says why\n"


def test_judging_again_evaluates_and_reports_but_never_trains(checkout: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(repro, "dvc", dvc := Dvc())
    assert repro.judge_again(checkout, "default", ["allo"]) == 0
    assert [arguments for _, arguments in dvc.calls] == [
        ("repro", "--single-item", "evaluate@allo"),
        ("repro", "--single-item", "report"),
    ]


def test_dvc_runs_with_this_python_first_and_the_checkouts_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen: list[dict[str, str]] = []
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    monkeypatch.setattr(repro, "patiently", lambda _: 0)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, env, **__: seen.append(env))
    assert repro.dvc(tmp_path, tmp_path / ".presets" / "smoke", "repro") == 0
    assert seen[0]["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    assert seen[0]["MLFLOW_TRACKING_URI"] == f"sqlite:///{tmp_path}/.mlflow/mlflow.db"
    assert seen[0]["PYTHONPATH"] == f"{tmp_path}/.presets/smoke/src"
