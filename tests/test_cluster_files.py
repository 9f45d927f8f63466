"""The script for Slurm runs with stand-ins, and the page about clusters agrees with the code."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline.trials.space import Sweep
from tests.conftest import ROOT

SLURM = ROOT / "docs" / "cluster" / "slurm.sh"
NOTE = 'echo "$*" >>"$STAND_IN/${0##*/}.log"\n'
STAND_INS = {
    "scontrol": f"""#!/bin/bash
if [[ $1 == show ]]; then printf '127.0.0.1\\n127.0.0.1\\n'; exit; fi
{NOTE}""",
    "srun": f"""#!/bin/bash
{NOTE}
while [[ $1 == --* ]]; do shift; done
exec "$@"
""",
    "python": f"""#!/bin/bash
stat --format %a "$RAY_AUTH_TOKEN_PATH" >"$STAND_IN/mode"
trap 'exit 143' TERM
{NOTE}
while [[ ! -e $STAND_IN/over ]]; do sleep 0.05; done
""",
    "ray": f"""#!{sys.executable}
import os, signal, socket, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
with open(os.environ["STAND_IN"] + "/ray.log", "a") as log:
    print(*sys.argv[1:], file=log)
options = dict(word.split("=", 1) for word in sys.argv if "=" in word)
if "--head" in sys.argv:
    server = socket.create_server((options["--node-ip-address"], int(options["--port"])))
signal.pause()
""",
}
"""Each notes how it was called; Ray's head listens, and the sweep ends when it is told or over."""


@pytest.mark.full
def test_a_sweep_below_slurm_is_interrupted_queued_again_and_leaves_nothing(tmp_path: Path):
    checkout, notes, job = tmp_path / "quatrain", tmp_path / "slurm", os.getpid()
    for folder in (checkout / "pipeline", checkout / "sweeps", notes):
        folder.mkdir(parents=True)
    (checkout / "sweeps" / "little.yaml").touch()
    for name, text in STAND_INS.items():
        (notes / name).write_text(text)
        (notes / name).chmod(0o755)
    variables = {
        "PATH": f"{notes}:{os.environ['PATH']}",
        "STAND_IN": str(notes),
        "REQUEUE": "1",
        "SLURM_JOB_ID": str(job),
        "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_SUBMIT_DIR": str(checkout),
        "SLURM_CPUS_PER_TASK": "3",
    }
    command = ["bash", str(SLURM), "sweeps/little.yaml", "--name", "mine"]
    address = f"127.0.0.1:{6000 + job % 4000}"
    for code in (143, 0):
        for name in ("python.log", "ray.log"):
            (notes / name).write_text("")
        script = subprocess.Popen(command, env=variables, stderr=subprocess.PIPE, text=True)
        calls = ""
        while not all(word in calls for word in ("--head", f"--address={address}", "sweep")):
            assert script.poll() is None
            time.sleep(0.05)
            calls = (notes / "ray.log").read_text() + (notes / "python.log").read_text()
        if code:
            script.send_signal(signal.SIGTERM)
        else:
            (notes / "over").touch()
        said = script.communicate(timeout=60)[1]
        assert script.returncode == code, said
        assert ("the same sbatch command continues it" in said) == (code == 143)
        assert (notes / "mode").read_text() == "600\n"
        asked = f"-m pipeline sweep sweeps/little.yaml --address {address} --name mine\n"
        assert (notes / "python.log").read_text() == asked
        assert list(Path("/tmp").glob(f"quatrain-{job}-*")) == []
        assert list((checkout / ".state" / "ray").iterdir()) == []
    assert (notes / "scontrol.log").read_text() == f"requeue {job}\n"
    assert (notes / "srun.log").read_text().count("--nodes=1 --ntasks=1 ") == 2


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


def test_slurm_sh_has_ray_listen_on_one_address_and_without_its_dashboard():
    commands = re.sub(r"^\s*#.*", "", SLURM.read_text(), flags=re.MULTILINE)
    assert '--node-ip-address="$ip"' in commands
    assert "--include-dashboard=false" in commands
    assert "0.0.0.0" not in commands


def test_the_page_describes_every_key_of_a_sweep_and_no_other():
    text = (ROOT / "docs" / "cluster.md").read_text()
    section = text.partition("## The file")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(Sweep.model_fields)
