"""A sweep runs below a stand-in of Slurm, and the page about clusters agrees with the code."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest

from pipeline.trials.space import Sweep
from tests.conftest import ROOT
from tests.pipeline.small_checkout import clone

SLURM = ROOT / "docs" / "cluster" / "slurm.sh"
# Each runs on this machine what Slurm would run on a node, and notes how it was called.
STAND_INS = {
    "scontrol": """#!/bin/bash
if [[ $1 == show ]]; then printf '%s\\n' $STAND_IN_HOSTS; exit; fi
echo "$*" >>"$STAND_IN/scontrol.log"
""",
    "srun": """#!/bin/bash
stat --format %a "$RAY_AUTH_TOKEN_PATH" >"$STAND_IN/mode"
while [[ $1 == --* ]]; do echo "$1" >>"$STAND_IN/srun.log"; shift; done
exec "$@"
""",
    # The variable that keeps all sockets on 127.0.0.1 makes the command refuse workers.
    "ray": f"""#!{sys.executable}
from types import SimpleNamespace
from ray._private import ray_constants
from ray.scripts import scripts
scripts.ray_constants = SimpleNamespace(**vars(ray_constants) | {{"ENABLE_RAY_CLUSTER": True}})
scripts.main()
""",
}
PRESET = """preset: tiny
checkpoint_seconds: 1
allo:
  collect: {num_envs: 20, steps_per_env: 100}
  network: {hidden: 8, layers: 1}
  train: {steps: 4000, evaluate_every: 1000}
"""
SWEEP = """model: allo
preset: tiny
judge: cosine_mean
watch: cosine_mean
seeds: 1
trials: 1
seed: 0
search: random
schedule: {kind: none}
confirm: null
cpus: 1
gpus: 0
retries: 0
space:
  train.learning_rate: {between: [1e-3, 2e-3], scale: log}
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = clone(tmp_path / "quatrain")
    (root / "presets" / "tiny.yaml").write_text(PRESET)
    (root / "sweeps" / "little.yaml").write_text(SWEEP)
    return root


class Allocation:
    """Stands for a job of Slurm whose nodes are all this machine."""

    def __init__(self, folder: Path, checkout: Path, nodes: int) -> None:
        self.notes = folder / "slurm"
        self.notes.mkdir()
        for name, text in STAND_INS.items():
            (self.notes / name).write_text(text)
            (self.notes / name).chmod(0o755)
        self.checkout = checkout
        self.number = free_job()
        self.restarts = 0
        self.nodes = nodes

    @property
    def folders(self) -> list[Path]:
        return sorted(Path("/tmp").glob(f"quatrain-{self.number}-*"))

    def left(self) -> list[psutil.Process]:
        """Returns the processes of this job that run."""
        running = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("STAND_IN") == str(self.notes):
                    running.append(process)
        return running

    def wait_for_archive(self, script: "subprocess.Popen[str]") -> None:
        """Waits until a trial has stored a checkpoint, at most ten minutes."""
        archives = self.checkout / ".state" / "trials" / "archives"
        for _ in range(6000):
            if list(archives.glob("*.tar")):
                return
            assert script.poll() is None, self.log.read_text()
            time.sleep(0.1)
        raise AssertionError(self.log.read_text())

    def start(self, *arguments: str, **variables: str) -> "subprocess.Popen[str]":
        """Runs the script as Slurm does on the first node."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "SLURM_"))}
        paths = [str(self.notes), str(Path(sys.executable).parent), kept["PATH"]]
        slurm = {
            "SLURM_JOB_ID": str(self.number),
            "SLURM_JOB_NODELIST": "node[1-2]",
            "SLURM_SUBMIT_DIR": str(self.checkout),
            "SLURM_CPUS_PER_TASK": "1",
            "SLURM_RESTART_COUNT": str(self.restarts),
        }
        stand_in = {"STAND_IN": str(self.notes), "STAND_IN_HOSTS": "127.0.0.1 " * self.nodes}
        loopback = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
        self.restarts += 1
        self.log = self.notes / f"log-{self.restarts}"
        with self.log.open("w") as log:
            return subprocess.Popen(
                ["bash", str(SLURM), *arguments],
                env=kept | {"PATH": ":".join(paths)} | slurm | stand_in | loopback | variables,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                text=True,
            )


def free_job() -> int:
    """Returns a number whose port (6000 and above) is free."""
    for number in range(os.getpid(), os.getpid() + 4000):
        with closing(socket.socket()) as probe:
            if probe.connect_ex(("127.0.0.1", 6000 + number % 4000)):
                return number
    raise AssertionError("no port is free")


@pytest.fixture
def job(checkout: Path, tmp_path: Path) -> Iterator[Allocation]:
    job = Allocation(tmp_path, checkout, nodes=2)
    yield job
    for process in job.left():
        process.kill()
    for folder in job.folders:
        shutil.rmtree(folder)


@pytest.mark.slow
def test_a_sweep_below_slurm_is_interrupted_queued_again_and_continued(job: Allocation):
    checkout = job.checkout
    script = job.start("sweeps/little.yaml", REQUEUE="1")
    job.wait_for_archive(script)
    assert (job.notes / "mode").read_text() == "600\n"
    script.send_signal(signal.SIGTERM)
    assert script.wait(300) == 143, job.log.read_text()
    assert "the same sbatch command continues it" in job.log.read_text()
    assert (job.notes / "scontrol.log").read_text() == f"requeue {job.number}\n"
    assert job.left() == []
    assert (job.folders, list((checkout / ".state" / "ray").iterdir())) == ([], [])

    job.nodes = 1
    script = job.start("sweeps/little.yaml")
    assert script.wait(600) == 0, job.log.read_text()
    assert "page     reports/sweeps/little/sweep.html" in job.log.read_text()
    assert (checkout / "reports" / "sweeps" / "little" / "sweep.html").is_file()
    assert (job.folders, list((checkout / ".state" / "ray").iterdir())) == ([], [])
    assert job.left() == []
    assert (job.notes / "srun.log").read_text().count("--nodes=1\n") == 1


def test_slurm_sh_is_clean_and_refuses_what_is_not_a_sweep(tmp_path: Path):
    lint = shutil.which("shellcheck")
    if lint is not None:
        subprocess.run([lint, str(SLURM)], check=True)
    variables = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
    job = {"SLURM_JOB_ID": "1", "SLURM_SUBMIT_DIR": str(tmp_path)}
    cases = {
        ((), ()): "name a sweep",
        (("sweeps/none.yaml",), ()): "submit this script with sbatch",
        (
            ("sweeps/none.yaml",),
            tuple(job),
        ): "sweeps/none.yaml is not there; submit in the checkout",
    }
    for (arguments, names), reason in cases.items():
        environment = variables | {name: job[name] for name in names}
        done = subprocess.run(
            ["bash", str(SLURM), *arguments], env=environment, capture_output=True, text=True
        )
        assert (done.returncode, reason in done.stderr) == (2, True), done.stderr
    assert list(tmp_path.iterdir()) == []


def test_slurm_sh_tells_its_driver_in_time_and_ends_only_what_it_began():
    text = SLURM.read_text()
    directives = re.findall(r"^#SBATCH --(\S+)", text, re.MULTILINE)
    assert "signal=B:TERM@120" in directives
    assert "requeue" in directives
    commands = re.sub(r"^\s*#.*", "", text, flags=re.MULTILINE)
    assert not re.search(r"ray stop|pkill|killall", commands)


def test_the_page_describes_every_key_of_a_sweep_and_no_other():
    text = (ROOT / "docs" / "cluster.md").read_text()
    section = text.partition("## The file")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(Sweep.model_fields)
