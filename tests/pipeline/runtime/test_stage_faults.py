"""Stages in processes of their own, killed for real: the next run ends with the same bytes."""

import os
import re
import shutil
import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from pipeline.runtime.file_lock import folder_lock
from quatrain.registry import MODELS
from tests.pipeline.recorded_runs import until
from tests.pipeline.small_project import Ended, Project, ended, interrupted, lines_until, orphans

pytestmark = pytest.mark.full
CONTINUES = "the next run continues"


@pytest.fixture(scope="module")
def finished_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Project]:
    """A model's project, collected and trained without any interruption, once."""

    @cache
    def created(model: str) -> Project:
        project = Project.create(tmp_path_factory.mktemp("finished") / "project", model, code=True)
        assert [project.run(verb).code for verb in ("collect", "train")] == [0, 0]
        return project

    return created


@pytest.fixture
def finished(finished_of: Callable[[str], Project], request: pytest.FixtureRequest) -> Project:
    return finished_of(getattr(request, "param", "allo"))


@pytest.fixture
def project(finished: Project, tmp_path: Path) -> Project:
    """With data, and nothing trained yet."""
    project = finished.copied(tmp_path / "project")
    for out in ("models", ".state"):
        shutil.rmtree(project.root / out)
    return project


def the_rest_is_as_if_nothing_had_happened(project: Project, finished: Project) -> None:
    last = project.run("train")
    assert last.code == 0, last.lines
    assert project.hashes("data", "models") == finished.hashes("data", "models")
    assert project.history_steps() == finished.history_steps()
    assert project.statuses("train") == ["FINISHED"]


# Signals.


def test_ctrl_c_while_modules_are_imported_is_one_line(project: Project):
    # What starts the tests may have had SIGINT ignored (a shell does it to background jobs).
    (project.root / "safetensors.py").write_text(
        "import os, signal, time; signal.signal(2, signal.default_int_handler)\n"
        "os.kill(os.getpid(), 2); time.sleep(60)\n"
    )
    line = f"{project.name('train')}: interrupted by SIGINT [exit 130]"
    assert project.run("train") == Ended(130, [line])


@pytest.mark.parametrize("finished", MODELS, indirect=True)
def test_a_killed_training_ends_with_the_same_bytes_wherever_it_is_killed(
    project: Project, finished: Project
):
    for operation in (3, 60) if project.model == "allo" else (60,):
        assert project.run("train", QUATRAIN_CRASH_AT=str(operation)).code == -signal.SIGKILL
        assert not (project.root / "models").exists()
    assert project.statuses("train") == ["RUNNING"]
    the_rest_is_as_if_nothing_had_happened(project, finished)


def test_a_signal_is_answered_by_saving_and_the_code_of_the_signal(project: Project):
    for number, name, code in ((signal.SIGTERM, "SIGTERM", 143), (signal.SIGINT, "SIGINT", 130)):
        done = interrupted(project.start("train"), number, r"/240 ")
        message = f"train@allo: interrupted by {name}; {CONTINUES} [exit {code}]"
        assert (done.code, done.said) == (code, message)
        assert f"{name}: saving, then leaving (Ctrl-C: at once)" in done.lines
        assert project.statuses("train") == ["KILLED"]
    assert any(re.match(r"train@allo: continues at step \d+ of 240$", line) for line in done.lines)


def test_a_second_sigterm_is_no_hurry_and_a_second_sigint_is(project: Project):
    """A group that is ended sends SIGTERM twice: itself, and by the death of dvc."""
    code = (
        "import os, signal, sys, time; from pipeline.runtime import stage\n"
        "def body(_, signals):\n"
        "    for number in map(int, sys.argv[1:]):\n"
        "        os.kill(os.getpid(), number)\n"
        "    print('saved', file=sys.stderr); signals.check()\n"
        "sys.exit(stage.main('collect', '', body, ['allo']))"
    )
    twice = project.run("-c", code, "15", "15")
    assert (twice.code, twice.lines[1]) == (143, "saved")
    assert twice.said == f"collect@allo: interrupted by SIGTERM; {CONTINUES} [exit 143]"
    assert project.run("-c", code, "15", "2").code == 130
    assert project.run("-c", code, "2", "2") == Ended(
        130, ["SIGINT: saving, then leaving (Ctrl-C: at once)"]
    )


def test_a_stage_whose_dvc_is_killed_saves_and_leaves(project: Project):
    as_dvc = (
        "import subprocess, sys; subprocess.run([sys.executable, '-m', 'pipeline.train', 'allo'])"
    )
    dvc = project.start("-c", as_dvc, DVC_STAGE="train@allo")
    lines_until(dvc.stderr, r"/240 ")
    dvc.kill()
    assert ended(dvc).said == f"train@allo: interrupted by SIGTERM; {CONTINUES} [exit 143]"
    until(lambda: not orphans(project))
    assert project.statuses("train") == ["KILLED"]


def test_a_stage_whose_dvc_was_dead_before_it_could_ask_does_not_begin(project: Project):
    code = (
        "import os, sys; from pathlib import Path\n"
        "from pipeline.runtime import command, signals\n"
        "os.getppid = lambda: 1\n"
        "for stage, parent in (('x', '/sbin/init'), ('x', '/usr/bin/dvc'), ('', '/sbin/init')):\n"
        "    os.environ['DVC_STAGE'] = stage\n"
        "    if not stage: del os.environ['DVC_STAGE']\n"
        "    Path.read_bytes = lambda _: parent.encode()\n"
        "    print(command.run_guarded('x', signals.die_with_parent), file=sys.stderr)"
    )
    interrupted = f"x: interrupted by SIGTERM; {CONTINUES} [exit 143]"
    assert project.run("-c", code).lines == [interrupted, "143", "0", "0"]


# What stands in the way.


def test_changed_code_starts_afresh(project: Project):
    assert project.run("train", QUATRAIN_CRASH_AT="60").code == -signal.SIGKILL
    with (project.root / "src/quatrain/models/allo/losses.py").open("a") as losses:
        losses.write("\n# changed\n")
    again = project.run("train", QUATRAIN_CRASH_AT="60")
    assert again.lines[0] == "train@allo: preparing, then 240 steps"
    assert sorted(project.statuses("train")) == ["KILLED", "RUNNING"]


def test_a_second_stage_of_one_name_waits_and_then_names_the_first(project: Project):
    code = (
        "import sys; from pipeline.stages import train; from pipeline.runtime.stage import main\n"
        "sys.exit(main('train', '', train.train, ['allo'], patience_seconds=float(sys.argv[1])))"
    )
    pid = os.getpid()
    with folder_lock(project.root / ".state" / "locks" / "train@allo"):
        second = project.run("-c", code, "0.2")
        assert second.code == 5
        assert second.said == (
            f"train@allo: train@allo is at work in process {pid}; "
            f"wait for it or end it with `kill {pid}`, then run again [exit 5]"
        )
        waiting = project.start("-c", code, "60")
        until(lambda: caught(waiting.pid, signal.SIGTERM))
        waiting.terminate()
        assert ended(waiting).code == 143
    assert not (project.root / "models").exists()


def caught(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal."""
    mask = re.search(r"^SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return mask is not None and bool(int(mask[1], 16) >> (number - 1) & 1)


@pytest.mark.skipif(bool(list(Path("/dev").glob("nvidia[0-9]*"))), reason="there is a device here")
def test_a_device_that_is_not_there_is_refused(project: Project):
    project.choose(overlay={"device": "cuda"})
    line = (
        "train@allo: params.yaml: device = 'cuda', but jax finds no NVIDIA device here (or is "
        "built without CUDA); set device: auto or cpu [exit 5]"
    )
    assert project.run("train") == Ended(5, [line])
    project.choose(overlay={"devices": 2})
    line = (
        "train@allo: params.yaml: devices = 2, but jax finds fewer NVIDIA devices here (or is "
        "built without CUDA); lower devices, or set device: cpu [exit 5]"
    )
    assert project.run("train") == Ended(5, [line])
