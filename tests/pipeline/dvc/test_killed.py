"""`dvc repro` in a git clone, killed for real: the next one ends with the same bytes and the same
dvc.lock.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from pipeline.dvc.workspace import copy_if_changed, files_of_git
from pipeline.storage.atomic_write import write_durably
from pipeline.storage.params_file import overlaid, parse
from tests.conftest import ROOT
from tests.pipeline.recorded_runs import until
from tests.pipeline.small_project import NOBODY, Project, lines_until, orphans

MOMENTS = (
    r"Running stage 'collect",
    r"Running stage 'train",
    r"preparing, then",
    r" 200/2,000",
    r" 700/2,000",
    r" 1,400/2,000",
    r" 2,000/2,000",
    r"Running stage 'evaluate",
    r"cosine_min",
    r"Running stage 'report",
)
"""What dvc or a stage says when it is killed, in the order of a run."""


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git clone with the working tree's files and the smoke preset's values, after one run."""
    work = tmp_path_factory.mktemp("clone") / "work"
    subprocess.run(["git", "clone", "-q", ROOT, work], check=True)
    for name in sorted(files_of_git(ROOT) - {"dvc.lock"}):
        copy_if_changed(ROOT / name, work / name)
    (work / "dvc.lock").unlink(missing_ok=True)
    Project(work).choose(
        overlay=overlaid(parse(ROOT / "presets" / "smoke.yaml"), {"checkpoint_seconds": 0})
    )
    write_durably(
        work / ".dvc" / "config.local", b"[core]\n    analytics = false\n[cache]\n    dir = cache\n"
    )
    untouched = work.with_name("untouched")
    shutil.copytree(work, untouched)
    with repro(work) as process:
        process.communicate()
    assert process.returncode == 0
    return untouched


def repro(work: Path) -> "subprocess.Popen[str]":
    """`dvc repro` in a process group of its own; with what its stages say, in one stream."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {
        "PATH": path,
        "MLFLOW_TRACKING_URI": NOBODY,
        "PYTHONUNBUFFERED": "1",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "dvc", "repro"],
        cwd=work,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def kill_stage(dvc: "subprocess.Popen[str]") -> None:
    children = Path(f"/proc/{dvc.pid}/task/{dvc.pid}/children")
    until(lambda: children.read_text() != "" or dvc.poll() is not None)
    for child in children.read_text().split() if dvc.poll() is None else []:
        with suppress(ProcessLookupError):
            os.kill(int(child), signal.SIGKILL)


def kill_group(dvc: "subprocess.Popen[str]") -> None:
    os.killpg(dvc.pid, signal.SIGKILL)


def kill_dvc(dvc: "subprocess.Popen[str]") -> None:
    dvc.kill()


@pytest.mark.slow
@pytest.mark.parametrize("kill", [kill_stage, kill_group, kill_dvc])
def test_dvc_repro_killed_at_ten_moments_ends_with_the_same_bytes(
    clone: Path, tmp_path: Path, kill: Callable[["subprocess.Popen[str]"], None]
) -> None:
    work = tmp_path / "work"
    shutil.copytree(clone, work)
    for moment in MOMENTS:
        with repro(work) as dvc:
            lines_until(dvc.stdout, moment)
            kill(dvc)
            said = dvc.communicate()[0]
            assert "Traceback" not in said
        until(lambda: not orphans(Project(work)))
    with repro(work) as dvc:
        said = dvc.communicate()[0]
    assert dvc.returncode == 0, said
    done = Project(clone.with_name("work"))
    assert Project(work).hashes() == done.hashes()
    assert (work / "dvc.lock").read_bytes() == (done.root / "dvc.lock").read_bytes()
    assert Project(work).statuses("train") == ["FINISHED"]
    assert Project(work).history_steps() == done.history_steps()
