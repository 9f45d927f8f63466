"""tracking URI -> an MLflow client, or the news within two seconds that nobody is there."""

import logging
import os
import socket
import sqlite3
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pipeline.runtime.errors import PipelineError
from pipeline.runtime.file_lock import folder_lock
from pipeline.tracking.journal import redact

PATIENCE_SECONDS = 2.0
"""For the first answer of a server, and for any call in flight when a stage ends."""
SETUP_SECONDS = 120.0
"""For another process that creates the same sqlite store."""
ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_HTTP_RESPECT_RETRY_AFTER_HEADER": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
"""With mlflow's own values a call to a dead server takes minutes."""


class Unreachable(PipelineError):
    """The tracking store does not answer, or cannot take a run."""

    exit_code = 6


def open_client(uri: str) -> Any:
    """An MlflowClient that gives up soon; the first import of mlflow takes seconds."""
    quieten()
    from mlflow import MlflowClient

    prepare_store(uri)
    return MlflowClient(tracking_uri=uri)


def quieten() -> None:
    """Before mlflow is imported: short time-outs, no reports to elsewhere, no URI and no tracebacks in the output."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"
    for name in ("mlflow.store.db.utils", "urllib3.connectionpool"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    warnings.filterwarnings(
        "ignore", message="The ``noload`` loader strategy"
    )  # mlflow's own, at import


def prepare_store(uri: str) -> None:
    """Create or upgrade an sqlite store, one process after the other, and let readers work beside a writer.

    Observed: of six processes that open a new store at once, five fail.
    """
    database = database_of(uri)
    if database is None:
        return
    quieten()
    from mlflow import MlflowClient
    from mlflow.store.db import utils

    with folder_lock(database.parent, SETUP_SECONDS):
        engine = utils.create_sqlalchemy_engine_with_retry(uri)
        outdated = utils._get_schema_version(engine) not in (
            None,
            utils._get_latest_schema_revision(),
        )
        if outdated:
            utils._upgrade_db(engine)
        engine.dispose()
        MlflowClient(tracking_uri=uri).get_experiment("0")
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")


def database_of(uri: str) -> Path | None:
    """The file of an sqlite URI."""
    return Path(uri.removeprefix("sqlite:///")) if uri.startswith("sqlite:///") else None


def artifacts_of(uri: str, checkout: Path) -> Path | None:
    """Where files of runs lie: beside an sqlite store, in the checkout for another database; a server knows itself."""
    if is_server(uri):
        return None
    database = database_of(uri)
    return checkout / ".mlflow" / "artifacts" if database is None else database.parent / "artifacts"


def is_server(uri: str) -> bool:
    """Whether a call may hang on somebody else's machine."""
    return urlsplit(uri).scheme in ("http", "https")


def reason_of(error: Exception, uri: str) -> str:
    """One line about a failure, without the URI's password."""
    text = " ".join(str(error).split()) or type(error).__name__
    password = urlsplit(uri).password or ""
    for secret in {password, unquote(password)} - {""}:
        text = text.replace(secret, "***")
    text = redact(text)
    return text if len(text) <= 200 else f"{text[:60]} ... {text[-135:]}"


def knock(uri: str) -> None:
    """Ask a server whether it is there, before mlflow is imported and hangs on it.

    Raises:
        Unreachable: it refuses, is silent for PATIENCE_SECONDS or fails.
    """
    address = urlsplit(uri)
    if is_server(uri):
        _ask_health(redact(uri).rstrip("/"))
    elif address.hostname and address.port:
        try:
            socket.create_connection((address.hostname, address.port), PATIENCE_SECONDS).close()
        except OSError as error:
            raise Unreachable(f"nobody answers there: {error}") from None


def _ask_health(uri: str) -> None:
    import requests

    try:
        status = requests.get(f"{uri}/health", timeout=PATIENCE_SECONDS).status_code
    except requests.exceptions.SSLError:
        return  # somebody is there; MLFLOW_TRACKING_INSECURE_TLS and its like decide on the rest
    except requests.exceptions.Timeout:
        raise Unreachable(f"no answer within {PATIENCE_SECONDS:.0f} s") from None
    except requests.exceptions.ConnectionError:
        raise Unreachable("nobody answers there") from None
    if status >= 500:
        raise Unreachable(f"it answers with HTTP status {status}")
