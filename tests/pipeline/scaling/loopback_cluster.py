"""A sweep of seconds as a user starts it, and Ray clusters on 127.0.0.1 that lose nodes."""

import io
import json
import os
import secrets
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple

from ruamel.yaml import YAML

from pipeline.scaling.records import Trial, read_trials
from tests.conftest import ROOT
from tests.pipeline.scaling.processes import Process, free_port_below, kill_all, members, soon
from tests.pipeline.small_checkout import git
from tests.pipeline.small_project import Project

TINY: dict[str, Any] = {
    "model": "allo",
    "preset": "default",
    "judge": "cosine_mean",
    "watch": "cosine_mean",
    "seeds": 1,
    "trials": 1,
    "seed": 0,
    "search": "random",
    "schedule": {"kind": "none"},
    "confirm": None,
    "cpus": 1,
    "gpus": 0,
    "retries": 3,
    "space": {"train.learning_rate": {"between": [1e-3, 1e-2], "scale": "log"}},
}
LONG = {"checkpoint_seconds": 1, "allo": {"train": {"steps": 20_000, "evaluate_every": 2000}}}
"""A training of some seconds that stores a checkpoint each second."""
PROGRAM = Path(__file__).with_name("ray_node.py")
FILES = ("dvc.yaml", ".gitignore")
ENVIRONMENT = {
    # XLA compiles in about half the time.
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".jax_cache"),
    "RAY_USAGE_STATS_ENABLED": "0",
    "OMP_WAIT_POLICY": "PASSIVE",
}
OTHERS = ("AWS_", "DVC_", "MLFLOW_", "PYTEST_", "RAY_", "QUATRAIN_", "SSH_")


def environment(root: Path, **variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OTHERS)}
    path = f"{root / 'src'}{os.pathsep}{root}"
    return kept | ENVIRONMENT | {"PYTHONPATH": path} | variables


class Ended(NamedTuple):
    code: int
    text: str

    @property
    def line(self) -> str:
        """The one line of a refusal."""
        assert "Traceback" not in self.text, self.text
        lines = [line for line in self.text.splitlines() if line.strip()]
        assert "[exit " in lines[-1], self.text
        return lines[-1]


class SweepCommand:
    """One run of the command; a driver that was killed leaves `text` behind."""

    def __init__(self, root: Path, arguments: tuple[str, ...], variables: Mapping[str, str]):
        self._path = root.parent / f"{root.name}-{secrets.token_hex(4)}.log"
        command = [sys.executable, "-m", "pipeline", "sweep", *arguments]
        with self._path.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                cwd=root,
                env=environment(root, **variables),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def text(self) -> str:
        return self._path.read_text(errors="replace")

    def wait(self, seconds: float = 300.0) -> Ended:
        try:
            self.process.wait(seconds)
        finally:
            self.end()
        return Ended(self.process.returncode, self.text)

    def says(self, text: str, seconds: float = 150.0) -> float:
        """Waits until it has said this, or has ended."""
        waited = soon(lambda: text in self.text or self.process.poll() is not None, seconds)
        assert text in self.text, self.text
        return waited

    def left(self) -> list[Process]:
        return members(self.process.pid)

    def end(self) -> None:
        """Kills whatever is left of it."""
        kill_all(self.process.pid)
        self.process.wait()


class SweepProject(Project):
    """A git checkout with a sweep of seconds, and what the sweep leaves in it."""

    @classmethod
    def of(
        cls,
        root: Path,
        sweep: Mapping[str, Any] = {},
        params: Mapping[str, Any] = {},
        code: bool = True,
    ) -> "SweepProject":
        cls.create(root, "allo", code=code)
        project = cls(root, "allo")
        project.choose(dict(params))
        for name in FILES:
            shutil.copy(ROOT / name, root)
        (root / "sweeps").mkdir()
        project.write_sweep(sweep)
        for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "start")):
            git(root, *words)
        return project

    def write_sweep(self, changes: Mapping[str, Any]) -> None:
        with (self.root / "sweeps" / "tiny.yaml").open("w") as file:
            YAML().dump(TINY | dict(changes), file)

    def sweep(self, *arguments: str, **variables: str) -> SweepCommand:
        return SweepCommand(self.root, ("sweeps/tiny.yaml", *arguments), variables)

    @property
    def folder(self) -> Path:
        (folder,) = (self.root / ".state" / "sweeps").glob("tiny-*")
        return folder

    @property
    def storage(self) -> Path:
        return self.folder / "storage"

    def trials(self) -> list[Trial]:
        folders = (self.root / ".state" / "sweeps").glob("tiny-*")
        return [trial for folder in folders for trial in read_trials(folder / "trials")]

    def results(self) -> list[dict[str, Any]]:
        """What must not depend on how often a sweep was killed."""
        noise = {"seconds", "last"}
        return [trial.model_dump(exclude=noise) for trial in self.trials()]

    def archive(self, name: str, storage: Path | None = None) -> dict[str, bytes]:
        """What lies in a trial's archive, by path."""
        data = ((storage or self.storage) / f"{name}.tar").read_bytes()
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            members = {member.name: archive.extractfile(member) for member in archive.getmembers()}
            return {path: file.read() for path, file in members.items() if file is not None}

    def outs(self, name: str, storage: Path | None = None) -> dict[str, str]:
        """sha256 of the learner and the scores of a trial."""
        files = self.archive(name, storage)
        kept = {path: data for path, data in files.items() if is_out(path)}
        return {path: sha256(data).hexdigest() for path, data in kept.items()}


def is_out(path: str) -> bool:
    return path.startswith("models/") or path.endswith("/scores.json")


class Node:
    """A process with all that it starts, as one machine of a cluster."""

    def __init__(self, cluster: "LoopbackCluster", cpus: int, head: bool, root: Path) -> None:
        self._log = cluster.folder / f"{secrets.token_hex(4)}.log"
        options: dict[str, Any] = {
            "head": head,
            "num_cpus": cpus,
            "num_gpus": 0,
            "node_ip_address": "127.0.0.1",
            "object_store_memory": 80_000_000,
            "min_worker_port": 0,
            "max_worker_port": 0,
            "node_manager_port": free_port_below(),
            "object_manager_port": free_port_below(),
            "dashboard_agent_listen_port": None,
            "include_log_monitor": False,
            "include_dashboard": False,
            "temp_dir": str(cluster.folder / "ray"),
            **({"gcs_server_port": cluster.port} if head else {"gcs_address": cluster.address}),
        }
        command = [sys.executable, str(PROGRAM), json.dumps(options)]
        with self._log.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                cwd=cluster.folder,
                env=environment(root, **cluster.variables),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        soon(lambda: self.is_up or self.process.poll() is not None)
        assert self.is_up, self._log.read_text()

    @property
    def is_up(self) -> bool:
        return "the node is up" in self._log.read_text(errors="replace")

    def stages(self) -> list[Process]:
        return [process for process in members(self.process.pid) if process.is_stage]

    def kill(self) -> None:
        """As a machine that is switched off."""
        kill_all(self.process.pid)
        self.process.wait()


class LoopbackCluster:
    """Nodes on 127.0.0.1 with a token, all in one folder that goes with them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = Path(mkdtemp(prefix="qc-", dir="/tmp"))
        self.port = free_port_below()
        self.address = f"127.0.0.1:{self.port}"
        self.token = self.folder / "token"
        self.token.touch(mode=0o600)
        self.token.write_text(secrets.token_hex(32))
        self.variables = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.token),
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        }
        self.nodes: list[Node] = []

    def add(self, cpus: int = 1, root: Path | None = None) -> Node:
        """A node more, whose Python finds the code in `root`."""
        node = Node(self, cpus, head=not self.nodes, root=root or self.root)
        self.nodes.append(node)
        return node

    def sweep(self, project: SweepProject, storage: str, **variables: str) -> SweepCommand:
        place = ("--address", self.address, "--storage", storage)
        return project.sweep(*place, **self.variables | variables)

    def down(self) -> None:
        for node in reversed(self.nodes):
            node.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def cluster(root: Path, *cpus: int) -> Iterator[LoopbackCluster]:
    """A cluster whose first node is the head."""
    machines = LoopbackCluster(root)
    try:
        for count in cpus:
            machines.add(count)
        yield machines
    finally:
        machines.down()
