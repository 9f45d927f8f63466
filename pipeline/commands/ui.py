"""the tracking store -> the MLflow UI on this machine only."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from pipeline.tracking.journal import redact
from pipeline.tracking.store import artifacts_of, is_server, prepare_store, resolve_uri


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pipeline.commands.ui", description=__doc__)
    parser.add_argument("--port", type=int, default=5000)
    port = parser.parse_args(argv).port
    uri = resolve_uri(Path.cwd())
    if is_server(uri):
        print(f"runs are kept by a server; open it in a browser: {redact(uri)}")
        return 0
    prepare_store(uri)
    environment = (
        os.environ
        | {
            "MLFLOW_BACKEND_STORE_URI": uri,  # not as an argument: it may hold a password, and everybody sees those
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
            "MLFLOW_DISABLE_TELEMETRY": "true",
        }
    )
    print(f"MLflow UI: http://127.0.0.1:{port} (Ctrl-C ends it)", flush=True)
    server = [sys.executable, "-m", "mlflow", "server", "--workers", "1"]
    artifacts = ["--default-artifact-root", str(artifacts_of(uri, Path.cwd()))]
    local = [
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--allowed-hosts",
        f"127.0.0.1:{port},localhost:{port}",
    ]
    try:
        return subprocess.run(
            [*server, *artifacts, *local], env=environment, check=False
        ).returncode
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
