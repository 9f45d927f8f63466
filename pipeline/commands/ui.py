"""the tracking store -> the MLflow UI on this machine only, until SIGTERM or Ctrl-C."""

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TextIO

from pipeline.runtime import signals
from pipeline.runtime.command import Command, Options, Parser
from pipeline.runtime.errors import CommandFailed, StoreUnavailable
from pipeline.runtime.redaction import redact, shown
from pipeline.tracking.runs_page import PORT, runs_page
from pipeline.tracking.store import (
    Unreachable,
    artifacts_of,
    check_reachable,
    is_server,
    prepare_store,
    reason_of,
    resolve_uri,
)
from quatrain.errors import ConfigError

SETTINGS = {
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
SERVER = (sys.executable, "-m", "mlflow", "server", "--workers", "1", "--host", "127.0.0.1")
# What the server says.
LOG = Path(".state", "ui.log")
POLL_SECONDS = 0.2
# How long the server may take to end before it is killed.
PATIENCE_SECONDS = 5.0


def add_options(parser: Parser) -> None:
    parser.add_argument("--port", type=int, default=PORT, help="port of the UI on 127.0.0.1")


def run(args: Options) -> int:
    """Starts the UI, prints its page when it answers, and waits for a signal.

    Raises:
        ConfigError: the port is in use or no port.
        CommandFailed: the server ended by itself.
    """
    root = Path.cwd()
    uri = resolve_uri(root)
    if is_server(uri):
        print(f"runs are kept by a server; open it in a browser: {runs_page(root)}")
        return 0
    check_port(args.port)
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        check_reachable(uri)
        prepare_store(uri)
    except (MlflowException, SQLAlchemyError, sqlite3.Error, Unreachable) as error:
        remedy = "" if isinstance(error, Unreachable) else "; move it elsewhere"
        raise StoreUnavailable(
            f"the store {shown(uri)} cannot be opened: {reason_of(error, uri)}{remedy}"
        ) from None
    port = str(args.port)
    command = [
        *SERVER,
        *("--port", port),
        *("--allowed-hosts", f"127.0.0.1:{port},localhost:{port}"),
        *("--default-artifact-root", str(artifacts_of(uri, root))),
    ]
    serve(command, os.environ | SETTINGS | {"MLFLOW_BACKEND_STORE_URI": uri}, root, args.port)
    return 0


def check_port(port: int) -> None:
    """Raises ConfigError unless the port of 127.0.0.1 is free."""
    if not 0 < port < 2**16:
        raise ConfigError(f"port {port}: use a number from 1 to 65535, such as `make ui PORT=5001`")
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError as error:
            raise ConfigError(
                f"port {port} cannot be used ({error.strerror}); end what uses it, perhaps another "
                f"`make ui`, or choose another port: `make ui PORT={port % 65535 + 1}`"
            ) from None


class Ended(Exception):
    """Says that a signal asks for the end."""


def serve(command: Sequence[str], environment: Mapping[str, str], root: Path, port: int) -> None:
    """Runs a server in a process group of its own until a signal ends all of it."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise Ended

    log = root / LOG
    log.parent.mkdir(exist_ok=True)
    log.unlink(missing_ok=True)  # or a link to a file elsewhere
    with signals.handle(end), log.open("w") as output:
        server = subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=signals.parent_death_signal(),  # safe: there is no other thread
        )
        logging = threading.Thread(target=write_log, args=(server.stdout, output), daemon=True)
        logging.start()
        try:
            wait_until_it_answers(server, port)
            print(f"MLflow UI: {runs_page(root, port)} (Ctrl-C ends it)", flush=True)
            server.wait()
            raise CommandFailed(f"the server ended by itself; {LOG} says why")
        except Ended:
            pass
        finally:
            end_group(server)
            logging.join(PATIENCE_SECONDS)


def write_log(lines: Iterable[str], log: TextIO) -> None:
    """Writes what a server says, without the password of its store."""
    for line in lines:
        log.write(redact(line))
        log.flush()


def wait_until_it_answers(server: subprocess.Popen, port: int) -> None:
    while server.poll() is None:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health"):
            return
        time.sleep(POLL_SECONDS)


def end_group(server: subprocess.Popen) -> None:
    """Ends a server and all that it started; kills what does not end by itself."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(server.pid, number)
        with suppress(subprocess.TimeoutExpired):
            server.wait(PATIENCE_SECONDS)


main = Command(
    name="ui",
    summary="Starts the MLflow UI for the tracking store, on this machine only.",
    work=run,
    add_options=add_options,
)

if __name__ == "__main__":
    sys.exit(main())
