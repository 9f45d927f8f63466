"""Servers on this machine alone, with ports and data of their own: S3, PostgreSQL, MLflow."""

import os
import pwd
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from tests.pipeline.faulty_server import free_port
from tests.pipeline.recorded_runs import until

MOTO = Path(sys.prefix) / "moto" / "bin" / "moto_server"
POSTGRESQL = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
BUCKET = "quatrain"
KEYS = {
    "AWS_ACCESS_KEY_ID": "quatrain",
    "AWS_SECRET_ACCESS_KEY": "not-a-secret",
    "AWS_DEFAULT_REGION": "us-east-1",
}
PASSWORD = "swordfish/9"


def program(name: str, *folders: Path, reason: str = "") -> str:
    """Where a program lies; the test is skipped where it is not installed."""
    path = os.pathsep.join([os.environ["PATH"], "/usr/sbin", *map(str, folders)])
    result = shutil.which(name, path=path)
    if result is None:
        pytest.skip(reason or f"{name} is not installed")
    return result


def account() -> dict[str, Any]:
    """Who runs a server, as arguments of a process: root may not run PostgreSQL."""
    if os.getuid():
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


@contextmanager
def folder_of(server: Mapping[str, Any]) -> Iterator[Path]:
    """A folder that belongs to the server's user, who may not enter those of pytest."""
    folder = Path(mkdtemp(prefix="quatrain-", dir="/tmp"))
    os.chown(folder, server.get("user", -1), server.get("group", -1))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def running(
    command: list[str], log: Path, ready: Callable[[], bool], **values: Any
) -> Iterator[None]:
    """A server from its first answer on; it is killed with all that it started."""
    with log.open("a") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, start_new_session=True, **values
        )
    try:
        until(lambda: ready() or process.poll() is not None)
        assert process.poll() is None, f"{command[0]} ended:\n{log.read_text()}"
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def s3(log: Path) -> Iterator[str]:
    """The URL of an S3 server without a bucket."""
    binary = program(str(MOTO), reason=f"{MOTO} is not there: `make moto` installs it")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [binary, "-H", "127.0.0.1", "-p", str(port)]
    with running(command, log, lambda: opens(f"{url}/moto-api/")):
        yield url


class Postgresql:
    """A database server whose user `quatrain` logs in with PGPASSWORD; it can be restarted."""

    def __init__(self, folder: Path, user: Mapping[str, Any]) -> None:
        self.port = free_port()
        self._folder, self._user = folder, user
        (folder / "password").write_text(PASSWORD)
        files = ["-D", f"{folder}/data", "--pwfile", f"{folder}/password"]
        options = ["-U", "quatrain", "-A", "scram-sha-256", "-E", "UTF8", "--locale", "C"]
        self._call("initdb", *files, *options, "--no-sync")

    def start(self) -> None:
        options = f"-p {self.port} -h 127.0.0.1 -k '' -F"
        self._control("start", "-l", f"{self._folder}/log", "-o", options)

    def stop(self) -> None:
        """At once, as a machine that is switched off."""
        self._control("stop", "-m", "immediate")

    def create(self, database: str) -> str:
        """The URI of a new database."""
        server = f"-h 127.0.0.1 -p {self.port} -U quatrain".split()
        self._call("createdb", *server, database)
        return f"postgresql://quatrain@127.0.0.1:{self.port}/{database}"

    def _control(self, *arguments: str) -> None:
        self._call("pg_ctl", "-D", f"{self._folder}/data", "-w", "-s", *arguments)

    def _call(self, name: str, *arguments: str) -> None:
        command = [program(name, *POSTGRESQL), *arguments]
        values = {"cwd": self._folder, "env": os.environ | {"PGPASSWORD": PASSWORD}, **self._user}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        done = subprocess.run(command, check=False, **pipes, **values)
        assert done.returncode == 0, done.stdout


@contextmanager
def postgresql() -> Iterator[Postgresql]:
    """A running database server, whose password is in the environment meanwhile."""
    program("initdb", *POSTGRESQL, reason="PostgreSQL's server is not installed")
    with folder_of(user := account()) as folder, pytest.MonkeyPatch.context() as patch:
        server = Postgresql(folder, user)
        server.start()
        patch.setenv("PGPASSWORD", PASSWORD)
        try:
            yield server
        finally:
            with suppress(AssertionError):
                server.stop()


@contextmanager
def mlflow_server(folder: Path, store: str, artifacts: str, **environment: str) -> Iterator[str]:
    """The URL of a tracking server that keeps runs in `store` and their files in `artifacts`."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    options = f"-m mlflow server --host 127.0.0.1 --port {port} --workers 1"
    command = [sys.executable, *options.split()]
    values = {"MLFLOW_BACKEND_STORE_URI": store, "MLFLOW_ARTIFACTS_DESTINATION": artifacts}
    values |= {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"} | environment
    variables, log = os.environ | values, folder / "mlflow.log"
    with running(command, log, lambda: opens(f"{url}/health"), env=variables, cwd=folder):
        yield url


def opens(url: str) -> bool:
    with suppress(OSError), urllib.request.urlopen(url) as answer:
        return bool(answer.status == 200)
    return False


def put(url: str, data: bytes) -> None:
    """Write an object, or make a bucket; moto wants to know who does, and checks no signature."""
    credential = f"{KEYS['AWS_ACCESS_KEY_ID']}/20260101/us-east-1/s3/aws4_request"
    who = {"Authorization": f"AWS4-HMAC-SHA256 Credential={credential}"}
    urllib.request.urlopen(urllib.request.Request(url, data, who, method="PUT")).close()
