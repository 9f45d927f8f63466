"""Ray clusters on 127.0.0.1 whose nodes can be killed, and a driver with trials of stub stages."""

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import psutil

from tests.conftest import ROOT
from tests.pipeline.faulty_server import free_port
from tests.pipeline.recorded_runs import until

# `ray start` lets no node join on 127.0.0.1.
NODE = """
import json, signal, sys
from ray._private.node import Node
from ray._private.parameter import RayParams

options = json.loads(sys.argv[1])
head = options.pop("head")
Node(RayParams(**options), head=head, shutdown_at_exit=True, spawn_reaper=True)
print("the node is up", flush=True)
signal.pause()
"""
# Trains for `steps` steps, with a checkpoint after every tenth one; behind the twentieth it waits
# for the file `go`. A stage that is `lost` kills itself.
STAGE = """
import os, pathlib, signal, sys, time
import numpy as np
from quatrain.presets import parse
from pipeline.judging.scores import stored_scores, write_scores
from pipeline.runtime.processes import die_with_parent
from pipeline.storage.checkpoints import Checkpoints
from pipeline.tracking.outbox import Outbox
from pipeline.tracking.records import Header
from quatrain.storage import folders

die_with_parent()
verb, here, stopped = pathlib.Path(__file__).stem, pathlib.Path(), []
params = parse(here / "params.yaml")
if params.get("lost") == verb:
    print(verb, "is lost", flush=True)
    os.kill(os.getpid(), 9)
if verb == "collect":
    with open(params["collections"], "a") as file:
        file.write("collected\\n")
    folders.save(here / "data/allo", {"dataset.json": [1]}, {})
if verb == "train":
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
    outbox = Outbox(here / ".state/outbox/train@allo-1.sqlite")
    outbox.begin(Header("k1", "quatrain", "allo", {}, {}))
    checkpoints = Checkpoints(here / ".state/train@allo/key")
    latest = checkpoints.latest()
    first = latest.step + 1 if latest else 1
    print("train begins at step", first, flush=True)
    for step in range(first, params["steps"] + 1):
        while step > 20 and not stopped and not os.path.exists(params["go"]):
            time.sleep(0.05)
        outbox.metrics([("train/loss", step, 1 / step)])
        if stopped or step % 10 == 0:
            checkpoints.save(step, {"kernel": np.full(3, step, np.float32)})
        if stopped:
            sys.exit(143)
    contents = {"config.json": {}, "history.csv": f"step,{step}", "state.safetensors": {}}
    folders.save(here / "models/allo", contents | {"weights.safetensors": {}}, {})
if verb == "evaluate":
    run, scores = {"run_key": "k1", "settings": {}}, {"cosine_mean": 0.5, "gap": None}
    write_scores(here, stored_scores("allo", "default", {}, run, scores))
"""
DRIVER = """
import json, sys
from pathlib import Path
from pipeline.runtime.command import run_guarded
from pipeline.trials.cluster import Cluster
from pipeline.trials import cluster, local
from pipeline.trials.engine import ListPlan, run
from pipeline.trials.local import Machine
from pipeline.trials.trial import Trial

cluster.check_current = local.check_current = lambda *_: None  # Its trials have no params.

class Told(ListPlan):
    def saw(self, trial, point):
        print("row", trial.key, point.step, flush=True)
        return point.step == trial.raw.get("hopeless")

root, trials, options = json.loads(sys.argv[1])
trials = [Trial("allo", raw, None, {}, key, raw["data"]) for key, raw in trials.items()]
def work():
    place = (Cluster if "address" in options else Machine)(Path(root), watch="loss", **options)
    with place:
        run(Path(root), Told(trials, [trial.key for trial in trials]), place)
sys.exit(run_guarded("driver", work))
"""
OTHERS = ("AWS_", "DVC_", "MLFLOW_", "PYTEST_", "RAY_", "QUATRAIN_")


def make_checkout(folder: Path) -> Path:
    """Copies the code, with a stub in place of each stage."""
    for top in ("src", "pipeline"):
        shutil.copytree(ROOT / top, folder / top, ignore=shutil.ignore_patterns("__pycache__"))
    for verb in ("collect", "train", "evaluate"):
        (folder / "pipeline" / f"{verb}.py").write_text(STAGE)
    return folder


class Session:
    """A process with all that it starts, which can be killed as a machine that is switched off."""

    def __init__(self, code: Path, program: str, arguments: Any, **variables: str) -> None:
        self._log = code.parent / f"{secrets.token_hex(4)}.log"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(OTHERS)}
        path = {"PYTHONPATH": f"{code / 'src'}{os.pathsep}{code}"}
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", program, json.dumps(arguments)],
                cwd=code.parent,
                env=kept | path | variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def text(self) -> str:
        return self._log.read_text(errors="replace")

    def says(self, words: str) -> None:
        until(lambda: words in self.text or self.process.poll() is not None)
        assert words in self.text, self.text

    def wait(self) -> int:
        """Returns its exit code."""
        self.process.wait(600)
        assert "Traceback" not in self.text, self.text
        return self.process.returncode

    def stages(self) -> list[psutil.Process]:
        return [each for each in self._members() if "pipeline." in str(each.info["cmdline"])]

    def _members(self) -> list[psutil.Process]:
        processes = psutil.process_iter(["cmdline", "status"])
        return [
            process
            for process in processes
            if process.info["status"] != psutil.STATUS_ZOMBIE
            and session_of(process.pid) == self.process.pid
        ]

    def kill(self) -> None:
        while members := self._members():
            for process in members:
                with suppress(psutil.Error):
                    process.kill()
            time.sleep(0.05)
        self.process.wait()


def session_of(pid: int) -> int | None:
    with suppress(OSError):
        return os.getsid(pid)
    return None


class LoopbackCluster:
    """Nodes with a token, all in one folder that goes with them; the first is the head."""

    def __init__(self, code: Path) -> None:
        self.code = code
        self.folder = Path(mkdtemp(prefix="qc-", dir="/tmp"))
        self.port = free_port()
        self.token = self.folder / "token"
        self.token.touch(mode=0o600)
        self.token.write_text(secrets.token_hex(32))
        self.variables = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.token),
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
            "TMPDIR": str(self.folder),
        }
        self.nodes: list[Session] = []

    def add(self, cpus: int = 1) -> Session:
        options: dict[str, Any] = {
            "head": not self.nodes,
            "num_cpus": cpus,
            "num_gpus": 0,
            "node_ip_address": "127.0.0.1",
            "object_store_memory": 80_000_000,
            "min_worker_port": 0,
            "max_worker_port": 0,
            "node_manager_port": free_port(),
            "object_manager_port": free_port(),
            "include_log_monitor": False,
            "include_dashboard": False,
            "temp_dir": str(self.folder / "ray"),
            **({"gcs_address": f"127.0.0.1:{self.port}"} if self.nodes else {}),
            **({} if self.nodes else {"gcs_server_port": self.port}),
        }
        node = Session(self.code, NODE, options, **self.variables)
        self.nodes.append(node)
        node.says("the node is up")
        return node

    def drive(self, root: Path, trials: dict[str, Any], **options: Any) -> Session:
        options = {"address": f"127.0.0.1:{self.port}"} | options
        return Session(self.code, DRIVER, [str(root), trials, options], **self.variables)

    def stages(self) -> list[psutil.Process]:
        return [stage for node in self.nodes for stage in node.stages()]

    def down(self) -> None:
        for node in reversed(self.nodes):
            node.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
