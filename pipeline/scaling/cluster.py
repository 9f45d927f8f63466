"""--address and a token -> a connection to Ray: to a cluster, or to one of this machine alone.

Who may join a Ray cluster runs code on it. So there is always a token, and a cluster that a sweep
starts itself listens on 127.0.0.1 alone.
"""

import gc
import logging
import os
import platform
import secrets
import socket
import stat
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from pipeline.runtime.errors import CommandFailed
from pipeline.runtime.processes import core_count
from pipeline.scaling import work
from pipeline.scaling.work import StageLost, StageProcess

MISSING = "sweep needs Ray: make cluster"
OLD_PYTHON = (
    f"sweep needs Python 3.11.4 to unpack archives safely, not {platform.python_version()}; "
    "remove .venv, then `make setup cluster PYTHON=...` with a newer one"
)
DEFAULT_TOKEN = Path("~/.ray/auth_token")
CONNECT_SECONDS = 3.0
PROBE_SECONDS = 25.0
# Datasets that stay in Ray's memory.
KEPT_DATASETS = 8
# Settings of Ray's processes. The first keeps every socket of a cluster of this machine on
# 127.0.0.1: `include_dashboard=False` and `_node_ip_address` do not.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    # Experiment state of Tune, which nothing here reads.
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}
PROBE = (
    "import sys, ray; ray.init(sys.argv[1], log_to_driver=False, configure_logging=False); "
    "print('reached')"
)


def check_installed() -> None:
    """Raises CommandFailed unless Ray and Optuna are installed, and Python unpacks archives safely;
    imports none of them.
    """
    if not hasattr(tarfile, "data_filter"):
        raise CommandFailed(OLD_PYTHON)
    if find_spec("ray") is None or find_spec("optuna") is None:
        raise CommandFailed(MISSING)


@contextmanager
def connection(address: str | None, cpus: int | None) -> Iterator[Any]:
    """Connects to the cluster at HOST:PORT, or starts one on this machine with so many CPUs; yields
    the module ray.

    Raises:
        CommandFailed: no cluster answers, or it refuses the token.
    """
    os.environ |= QUIET
    if address is None:
        os.environ |= LOOPBACK | {"RAY_AUTH_TOKEN": secrets.token_hex(32)}
        os.environ.pop("RAY_AUTH_TOKEN_PATH", None)
    else:
        check_address(address)
    import ray

    # Its lines are about its own classes; a failed trial is told by its last line.
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    # An address is always named: without one Ray joins a cluster that it finds.
    arguments: dict[str, Any] = {"address": address or "local"}
    if address is None:
        cores = core_count()
        arguments |= {"num_cpus": cpus or cores, "include_dashboard": False}
    ray.init(
        **arguments,
        log_to_driver=False,
        configure_logging=False,
        runtime_env={"env_vars": {"PYTHONPATH": str(work.CHECKOUT), "PYTHONWARNINGS": "ignore"}},
    )
    try:
        with processes_end_with_this():
            yield ray
    finally:
        _shut_down(ray)


@contextmanager
def processes_end_with_this() -> Iterator[None]:
    """Kills the processes that run now below this one when it is killed.

    Ray's own ones end by themselves, but for two agents, which first report for a minute to a
    server that is gone.
    """
    pids = [str(child.pid) for child in psutil.Process().children(recursive=True)]
    watcher = subprocess.Popen(
        ["sh", "-c", 'read -r _; kill -9 "$@"', "sh", *pids],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        watcher.kill()
        watcher.communicate()


def _shut_down(ray: Any) -> None:
    """Ends the connection. No other thread may free an object of Ray's meanwhile: Ray would end
    this process.
    """
    gc.collect()
    gc.disable()
    try:
        ray.shutdown()
    finally:
        gc.enable()


def check_token() -> None:
    """Raises CommandFailed unless there is a token that only this user can read."""
    if os.environ.get("RAY_AUTH_TOKEN"):
        return
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or DEFAULT_TOKEN).expanduser()
    if not path.is_file():
        raise CommandFailed(
            f"{path} is not there; --address needs the cluster's token: copy it from the head node "
            "and name it by RAY_AUTH_TOKEN_PATH"
        )
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise CommandFailed(f"{path}: others can read the token; run `chmod 600 {path}`")
    os.environ["RAY_AUTH_TOKEN_PATH"] = str(path)


def check_address(address: str) -> None:
    """Asks a cluster from a process apart: Ray itself tries a dead one for minutes, then exits.

    Raises:
        CommandFailed: no cluster answers there, or it refuses the token.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise CommandFailed(
            f"--address {address}: run the command on a node of the cluster, "
            "and write HOST:PORT of its head, as NAME:6379"
        )
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise CommandFailed(f"no Ray cluster answers at {address}: {error}") from None
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", PROBE, address],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            text = _wait_for_answer(process, output)
        finally:
            process.kill()
            process.wait()
    if "Unauthenticated" in text:
        raise CommandFailed(
            f"the Ray cluster at {address} refuses the token; copy it again from the head node"
        )
    if "reached" not in text:
        last = (text.strip().splitlines() or ["no answer"])[-1]
        raise CommandFailed(f"the Ray cluster at {address} cannot be used: {last[-200:]}")


def _wait_for_answer(process: subprocess.Popen[bytes], output: Any) -> str:
    """Returns what the probe printed when it ended, or as soon as its token was refused."""
    for _ in range(round(PROBE_SECONDS / 0.1)):
        text = os.pread(output.fileno(), 2**20, 0).decode(errors="replace")
        if process.poll() is not None or "Unauthenticated" in text:
            return text
        try:
            process.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
    return os.pread(output.fileno(), 2**20, 0).decode(errors="replace")


def make_shelf(ray: Any, model: str, files: Mapping[str, bytes], cpus: int) -> Any:
    """Returns an actor with `dataset(key, params, node)`, which collects each dataset once, and
    which trials tell when they leave.

    It lies on the node of the driver, so that no lost node takes it away. Neither the actor nor a
    collection asks for CPUs: trials that wait for a dataset hold them all.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    def on(node: str, soft: bool) -> Any:
        return NodeAffinitySchedulingStrategy(node, soft=soft)

    collect_files = ray.remote(num_cpus=0, max_retries=3, retry_exceptions=[StageLost])(collect)

    class Shelf:
        def __init__(self) -> None:
            self._datasets: dict[str, Any] = {}
            self._left: set[str] = set()

        def dataset(self, key: str, params: Mapping[str, Any], node: str) -> list[Any]:
            if key not in self._datasets:
                for old in list(self._datasets)[: 1 - KEPT_DATASETS]:
                    del self._datasets[old]
                task = collect_files.options(scheduling_strategy=on(node, soft=True))
                self._datasets[key] = task.remote(model, params, files, cpus)
            return [self._datasets[key]]

        def forget(self, key: str) -> None:
            """Lets the next trial that asks collect again."""
            self._datasets.pop(key, None)

        def leave(self, trial: str) -> None:
            """Notes that a trial that was stopped has stored its work."""
            self._left.add(trial)

        def left(self) -> set[str]:
            return self._left

    here = ray.get_runtime_context().get_node_id()
    actor = ray.remote(num_cpus=0, scheduling_strategy=on(here, soft=False))(Shelf)
    return actor.remote()


def collect(
    model: str, params: Mapping[str, Any], files: Mapping[str, bytes], cpus: int
) -> dict[str, Any]:
    """Runs the stage `collect` in a folder of its own; returns its files, or why it refused."""
    import numpy as np

    with tempfile.TemporaryDirectory(prefix="quatrain-collect-") as name:
        folder = Path(name)
        work.prepare(folder, params, files)
        stage = StageProcess(folder, "collect", model, work.stage_environment(cpus, 0, {}))
        try:
            code = stage.wait()
        finally:
            reason = stage.reason()
            stage.end()
        if code in work.FINAL:
            return {"refused": reason}
        if code:
            raise StageLost(f"collect@{model} ended with {code}: {reason}")
        outs = sorted((folder / "data" / model).iterdir())
        return {path.name: np.frombuffer(path.read_bytes(), np.uint8) for path in outs}
