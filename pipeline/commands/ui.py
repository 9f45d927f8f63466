"""the tracking store -> the MLflow UI on this machine only."""

import os
import subprocess
import sys
from pathlib import Path

from pipeline.runtime.command import Command, Options, Parser
from pipeline.tracking.journal import redact
from pipeline.tracking.store import artifacts_of, is_server, prepare_store, resolve_uri

SETTINGS = {
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
SERVER = (sys.executable, "-m", "mlflow", "server", "--workers", "1", "--host", "127.0.0.1")


def add_options(parser: Parser) -> None:
    parser.add_argument("--port", type=int, default=5000, help="port of the UI on 127.0.0.1")


def run(args: Options) -> int:
    uri = resolve_uri(Path.cwd())
    if is_server(uri):
        print(f"runs are kept by a server; open it in a browser: {redact(uri)}")
        return 0
    prepare_store(uri)
    # The URI may hold a password, and every user of the machine can read arguments.
    environment = os.environ | SETTINGS | {"MLFLOW_BACKEND_STORE_URI": uri}
    port = str(args.port)
    command = [
        *SERVER,
        *("--port", port),
        *("--allowed-hosts", f"127.0.0.1:{port},localhost:{port}"),
        *("--default-artifact-root", str(artifacts_of(uri, Path.cwd()))),
    ]
    print(f"MLflow UI: http://127.0.0.1:{port} (Ctrl-C ends it)", flush=True)
    try:
        return subprocess.run(command, env=environment, check=False).returncode
    except KeyboardInterrupt:
        return 0


main = Command(
    name="ui",
    summary="Starts the MLflow UI for the tracking store, on this machine only.",
    work=run,
    add_options=add_options,
)

if __name__ == "__main__":
    sys.exit(main())
