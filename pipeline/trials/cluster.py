"""trials -> tasks of a Ray cluster, which places them, repeats lost ones and cancels hopeless ones.

A dataset is a task, too, and an argument of its trials: Ray begins them when it is there, and
collects it again when its node is lost. Who may join a Ray cluster runs code on it: so there is
always a token.
"""

import gc
import logging
import os
import socket
import stat
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from pipeline.runtime import console
from pipeline.runtime.errors import CommandFailed, LockHeld
from pipeline.runtime.processes import folder_lock
from pipeline.storage.run_key import CHECKOUT
from pipeline.trials.engine import Event
from pipeline.trials.node import Job, code_digest, collect_dataset, run_trial
from pipeline.trials.stages import POLL_SECONDS, StageLost, last_line, remove_checkpoints
from pipeline.trials.storage import open_storage, restore
from pipeline.trials.trial import (
    TRIALS,
    Outcome,
    Point,
    Trial,
    check_current,
    folder_of,
    read_outcome,
)
from quatrain.errors import QuatrainError

CONNECT_SECONDS = 3.0
HEALTH_SECONDS = 20.0
# Datasets that stay in Ray's memory.
KEPT_DATASETS = 8
SETTINGS = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Its lines about lost processes, which it prints among those of the command.
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
}


@dataclass
class Running:
    """Holds what a trial tells through Ray, and which attempt at it told the last item."""

    trial: Trial
    items: Any
    attempt: str = ""


@dataclass
class Cluster:
    """Runs trials on the nodes of the Ray cluster at HOST:PORT.

    storage: a folder that all nodes reach, or a URI; a folder of the checkout if it is empty. cpus,
    gpus: what a trial takes; a part of a GPU shares it. retries: how often a trial whose process or
    node was lost begins again.

    Raises:
        CommandFailed: on entry; no cluster answers, or it refuses the token.
        StorageFailed: on entry; the storage cannot be used.
    """

    root: Path
    address: str
    storage: str | None = None
    cpus: int = 1
    gpus: float = 0
    watch: str = ""
    retries: int = 3
    _running: dict[str, Running] = field(init=False, default_factory=dict)
    _datasets: dict[str, Any] = field(init=False, default_factory=dict)

    def __enter__(self) -> Self:
        check_token()
        check_address(self.address)
        self._storage = open_storage(self.storage or str(self.root / TRIALS / "archives"))
        self._ray = connect(self.address)
        options = {
            "num_cpus": self.cpus,
            "num_gpus": self.gpus,
            "max_retries": self.retries,
            "retry_exceptions": [StageLost, OSError],
        }
        self._collect = self._ray.remote(**options)(collect_dataset)
        self._run = self._ray.remote(**options, num_returns="streaming")(run_trial)
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the connection, and with it what still runs. No other thread may free an object of
        Ray's meanwhile: Ray would end this process.
        """
        self._running.clear()
        self._datasets.clear()
        gc.collect()
        gc.disable()
        try:
            self._ray.shutdown()
        finally:
            gc.enable()

    def room(self) -> int:
        """Returns how many trials fit beside those that run; one may always begin, and waits."""
        return max(self._slots(), 1) - len(self._running)

    def _slots(self) -> int:
        needs = {"CPU": self.cpus, "GPU": self.gpus}
        alive = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        return sum(
            int(min(offered.get(kind, 0) / count for kind, count in needs.items() if count))
            for offered in alive
        )

    def begin(self, trial: Trial) -> None:
        check_current(self.root, trial)
        files = {name: path.read_bytes() for name, path in trial.files.items()}
        bare = trial._replace(files={})
        job = Job(bare, files, self._storage, self.watch, self.cpus, self.gpus, code_digest())
        if trial.data_key not in self._datasets:
            for old in list(self._datasets)[: 1 - KEPT_DATASETS]:
                del self._datasets[old]
            self._datasets[trial.data_key] = self._collect.remote(job)
        items = self._run.remote(job, self._datasets[trial.data_key])
        self._running[trial.key] = Running(trial, items)
        if not self._slots():
            needs = f"{self.cpus} CPUs and {self.gpus:g} GPUs"
            console.info(f"{trial.model} {trial.key}: waits for a node with {needs}")

    def stop(self, trial: Trial) -> None:
        self._ray.cancel(self._running[trial.key].items, force=False)

    def events(self) -> Iterator[tuple[Trial, Event]]:
        """Yields what a trial has told, the one that was silent longest first.

        Raises:
            QuatrainError: a fault that is not of one trial.
        """
        by_items = {running.items: running for running in self._running.values()}
        ready = self._ray.wait([*by_items], timeout=POLL_SECONDS)[0] if by_items else ()
        for running in map(by_items.__getitem__, ready):
            trial, before = running.trial, running.attempt
            running.attempt, event = self._next(running)
            if before and running.attempt not in (before, ""):
                yield trial, "lost its process or node, and has started again"
            del self._running[trial.key]
            if isinstance(event, Outcome):
                self._unpack(trial)
                if event.state == "stopped":  # Another attempt may have told less than it stored.
                    event = read_outcome(folder_of(self.root, trial)) or event
            else:
                self._running[trial.key] = running
            yield trial, event

    def _next(self, running: Running) -> tuple[str, Point | Outcome]:
        """Returns the next item of a trial, or the outcome of one that was stopped or lost.

        Raises:
            QuatrainError: a fault that is not of the trial.
        """
        from ray.exceptions import RayError, TaskCancelledError

        try:
            return self._ray.get(next(running.items))
        except (StopIteration, TaskCancelledError):
            return "", Outcome("stopped")
        except RayError as error:
            cause = getattr(error, "cause", None) or error
            if isinstance(cause, QuatrainError) and not isinstance(cause, (StageLost, OSError)):
                raise cause from None
            self._datasets.pop(running.trial.data_key, None)  # It may be what was lost.
            return "", Outcome("failed", reason=last_line(str(cause)))

    def _unpack(self, trial: Trial) -> None:
        """Puts what a trial left into its folder on this machine, unless a trial of another command
        is at work there, which will make the same.
        """
        folder = folder_of(self.root, trial)
        with suppress(LockHeld), folder_lock(folder, patience_seconds=0):
            outcome = read_outcome(folder)
            if outcome is None:
                restore(self._storage, trial.key, folder)
                outcome = read_outcome(folder)
            if outcome is not None and outcome.state == "finished":
                remove_checkpoints(trial, folder)


# The connection.


def connect(address: str) -> Any:
    """Connects to the cluster at HOST:PORT, and returns the module ray."""
    os.environ |= SETTINGS
    import ray

    # Its lines are about its own classes; a failed trial has its reason.
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    variables = {"PYTHONPATH": f"{CHECKOUT / 'src'}:{CHECKOUT}", "PYTHONWARNINGS": "ignore"}
    ray.init(
        address, log_to_driver=False, configure_logging=False, runtime_env={"env_vars": variables}
    )
    return ray


def check_token() -> None:
    """Raises CommandFailed unless Ray is installed, Python unpacks archives safely, and there is a
    token that only this user can read.
    """
    if find_spec("ray") is None:
        raise CommandFailed("--address needs Ray: make cluster")
    if not hasattr(tarfile, "data_filter"):
        raise CommandFailed("--address needs Python 3.11.4 or newer, which unpacks archives safely")
    if os.environ.get("RAY_AUTH_TOKEN"):
        return
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or "~/.ray/auth_token").expanduser()
    if not path.is_file() or stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise CommandFailed(
            f"{path} is not there, or others can read it; --address needs the cluster's token: "
            "copy it from the head node, name it by RAY_AUTH_TOKEN_PATH, and run "
            f"`chmod 600 {path}`"
        )


def check_address(address: str) -> None:
    """Asks a cluster from a process apart: Ray itself tries a dead one for minutes, then exits.

    Raises:
        CommandFailed: no cluster answers there, or it refuses the token.
    """
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    options: dict[str, Any] = {"env": os.environ | SETTINGS, "capture_output": True, "text": True}
    try:
        host, port = address.rsplit(":", 1)
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
        subprocess.run(command, timeout=HEALTH_SECONDS, check=True, **options)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        reason = last_line(getattr(error, "stderr", None) or str(error))
        raise CommandFailed(
            f"no Ray cluster answers at {address} ({reason}); name HOST:PORT of its head, as "
            "NAME:6379, on a node of the cluster, and use its token"
        ) from None
