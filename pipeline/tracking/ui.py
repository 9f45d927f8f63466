"""the tracking store -> the page of its runs, and MLflow's own server on this machine only."""

import os
import socket
import sqlite3
import sys
from contextlib import closing, suppress
from pathlib import Path

from pipeline.tracking.records import EXPERIMENT, VIEW_KEY, VIEW_TAG
from pipeline.tracking.store import (
    Unreachable,
    artifacts_of,
    check_reachable,
    database_of,
    is_server,
    prepare_store,
    resolve_uri,
)
from quatrain.errors import ConfigError

PORT = 5000
# Without it the UI opens with the traces of language models.
VIEW = "workflowType=machine_learning"
# The list of experiments of `make ui`, which a report without a store links to.
EXPERIMENTS_PAGE = f"http://127.0.0.1:{PORT}/#/experiments?{VIEW}"
QUERY = (
    "SELECT experiment_id, (SELECT 1 FROM experiment_tags AS tags WHERE tags.key = ?"
    " AND tags.experiment_id = experiments.experiment_id)"
    " FROM experiments WHERE name = ? AND lifecycle_stage = 'active'"
)
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
        Unreachable: the store cannot be opened.
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
        raise Unreachable(f"the store {uri} cannot be opened: {error}") from None
    options = (
        *("--port", str(port), "--allowed-hosts", f"127.0.0.1:{port},localhost:{port}"),
        *("--backend-store-uri", uri, "--default-artifact-root", str(artifacts_of(uri, root))),
    )
    page = runs_page(root, port)
    print(f"MLflow UI: {page} (it answers in some seconds; Ctrl-C ends it)", flush=True)
    os.execve(sys.executable, [*SERVER, *options], os.environ | SETTINGS)


def check_port(port: int) -> None:
    """Raises ConfigError unless the port of 127.0.0.1 is free."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError as error:
            raise ConfigError(
                f"port {port} cannot be used ({error.strerror}); end what uses "
                "it, perhaps another `make ui`, or choose another: `make ui PORT=5001`"
            ) from None


def runs_page(root: Path, port: int = PORT) -> str:
    """Returns the address of the runs in `make ui` on this machine, or of a tracking server's UI.

    It is the list of experiments at a server, or if the store has no run yet.
    """
    uri = resolve_uri(root)
    if is_server(uri):
        return f"{uri.rstrip('/')}/#/experiments?{VIEW}"
    runs, view = "", VIEW
    if file := database_of(uri):
        # Read without mlflow, which takes seconds to import. There may be no store, or no run.
        place = f"{file.as_uri()}?mode=ro"
        with suppress(sqlite3.Error, TypeError), closing(sqlite3.connect(place, uri=True)) as store:
            experiment, has_view = store.execute(QUERY, (VIEW_TAG, EXPERIMENT)).fetchone()
            runs = f"/{experiment}/runs"
            view += f"&viewStateShareKey={VIEW_KEY}" if has_view else ""
    return f"http://127.0.0.1:{port}/#/experiments{runs}?{view}"
