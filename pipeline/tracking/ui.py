"""the tracking store -> MLflow's own server of its UI, on this machine only."""

import os
import socket
import sys
from pathlib import Path

from pipeline.runtime.console import shown
from pipeline.runtime.errors import StoreUnavailable
from pipeline.tracking.runs_page import runs_page
from pipeline.tracking.store import (
    Unreachable,
    artifacts_of,
    check_reachable,
    is_server,
    prepare_store,
    resolve_uri,
)
from quatrain.errors import ConfigError

SETTINGS = {
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PYTHONWARNINGS": "ignore",  # of mlflow's libraries about one another
}
# Ctrl-C reaches mlflow and uvicorn, which mlflow sends it once more: uvicorn calls that an error.
SERVER = (
    *(sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"),
    *("--workers", "1", "--uvicorn-opts", "--log-level critical"),
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
    try:
        check_reachable(uri)
        prepare_store(uri)
    except Unreachable as error:
        raise StoreUnavailable(f"the store {shown(uri)} cannot be opened: {error}") from None
    options = (
        *("--port", str(port), "--allowed-hosts", f"127.0.0.1:{port},localhost:{port}"),
        *("--backend-store-uri", uri, "--default-artifact-root", str(artifacts_of(uri, root))),
    )
    page = runs_page(root, port)
    print(f"MLflow UI: {page} (it answers in some seconds; Ctrl-C ends it)", flush=True)
    os.execve(sys.executable, [*SERVER, *options], os.environ | SETTINGS)


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
