"""the tracking store -> MLflow's own server of its UI, on this machine only."""

import os
import socket
import sys
from pathlib import Path

from pipeline.runtime.errors import StoreUnavailable
from pipeline.runtime.redaction import shown
from pipeline.tracking.runs_page import runs_page
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
SERVER = (
    *(sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"),
    *("--workers", "1", "--uvicorn-opts", "--log-level warning"),
)


def start(root: Path, port: int) -> None:
    """Prints the page of the runs, then replaces this process by the server; prints the page alone
    where a tracking server has a UI.

    Raises:
        ConfigError: the port is in use or no port.
        StoreUnavailable: the store cannot be opened.
    """
    uri = resolve_uri(root)
    if is_server(uri):
        print(f"runs are kept by a server; open it in a browser: {runs_page(root)}")
        return
    check_port(port)
    check_store(uri)
    options = (
        *("--port", str(port)),
        *("--allowed-hosts", f"127.0.0.1:{port},localhost:{port}"),
        *("--default-artifact-root", str(artifacts_of(uri, root))),
    )
    print(f"MLflow UI: {runs_page(root, port)} (Ctrl-C ends it)", flush=True)
    # Every user of the machine can read arguments, and none of them the environment.
    environment = os.environ | SETTINGS | {"MLFLOW_BACKEND_STORE_URI": uri}
    os.execve(sys.executable, [*SERVER, *options], environment)


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


def check_store(uri: str) -> None:
    """Opens the store, and creates it if it is a file that is not there.

    Raises:
        StoreUnavailable: it cannot be opened.
    """
    try:
        check_reachable(uri)
        prepare_store(uri)
    except Unreachable as error:
        reason = reason_of(error, uri)
        raise StoreUnavailable(f"the store {shown(uri)} cannot be opened: {reason}") from None
