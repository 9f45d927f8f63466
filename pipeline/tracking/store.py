"""MLFLOW_TRACKING_URI -> an MLflow client whose every call ends, or one line that says why not."""

import logging
import os
import re
import socket
import sqlite3
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import closing
from functools import partial
from http.client import HTTPException
from pathlib import Path
from ssl import SSLError
from typing import Any, NamedTuple, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit
from urllib.request import urlopen

from pipeline.runtime.console import redact
from pipeline.runtime.errors import described
from pipeline.runtime.processes import folder_lock
from pipeline.storage.params_file import checkout_of, dvc_root
from quatrain.errors import ConfigError, QuatrainError
from quatrain.storage.atomic_write import PARTIAL, crash_point, sync_folder
from quatrain.storage.disk_errors import escaped

# How long a server may take to say that it is there.
PATIENCE_SECONDS = 2.0
# Longest duration of one call, from the connection to the last byte of the answer.
CALL_SECONDS = 30.0
# Bytes per second that a call with a file may take in addition.
UPLOAD_RATE = 1e6
# Timeout for another process that creates the same sqlite store.
SETUP_SECONDS = 120.0
# Settings of mlflow: by its defaults it tries seven times, and waits longer each time. Its timeout
# of a request is longer than CALL_SECONDS: a slow server is a server.
ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_RESPECT_RETRY_AFTER_HEADER": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}

# What addresses may be; in a user or password, / ? # are percent-encoded.
SERVER = re.compile(r"(https?://)(?:([^\s/?#:@]+):([^/?#]+)@)?([^\s/?#@]+(?:/[^?#@]*)?)")
DATABASE = re.compile(
    r"(?:postgresql|mysql)(?:\+\w+)?://(?:[^/?#:@]*@)?[^/?#@]*(?:/[^?#@]*)?(?:\?[^#@]*)?"
)
PASSWORD = re.compile(r"(?i)[?&]\w*passw(or)?d=")
FORMS = (
    "write http(s)://HOST:PORT or http(s)://USER:PASSWORD@HOST:PORT with / ? # percent-encoded "
    "(a token goes into MLFLOW_TRACKING_TOKEN), sqlite:///FILE, postgresql://USER@HOST/DATABASE "
    "(its password is read from PGPASSWORD, ~/.pgpass or ?service=NAME) or "
    "mysql://USER@HOST/DATABASE (its password is read from ?read_default_file=FILE)"
)
PORTS = {"postgresql": 5432, "mysql": 3306}
# What `sqlite://` may name without naming a file.
NO_FILE = (None, Path(), Path(":memory:"))
DEFAULT_STORE = "sqlite:///.mlflow/mlflow.db"
# Folder of the runs' files, beside an sqlite store.
ARTIFACTS = "artifacts"

Answer = TypeVar("Answer")


class Unreachable(QuatrainError):
    """Says why the tracking store does not answer, or cannot take a run."""

    exit_code = 6


class Late(Unreachable):
    """Says which call took too long."""


def resolve_uri(root: Path) -> str:
    """Returns MLFLOW_TRACKING_URI without user and password, or else the checkout's sqlite store.

    A server's user and password become MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD of
    this process and its children. A path is relative to the checkout, whatever preset or experiment
    `root` is the working folder of.

    Raises:
        ConfigError: it names no store that is known, or a database with its password; or
            MLFLOW_REGISTRY_URI, which mlflow reads, does.
    """
    checkout = checkout_of(dvc_root(root))
    _admitted("MLFLOW_REGISTRY_URI")
    uri = _admitted("MLFLOW_TRACKING_URI") or DEFAULT_STORE
    database = database_of(uri)
    if database is None:
        return uri
    path = (checkout / database).absolute()
    if set("%?#") & set(str(path)):
        raise ConfigError(
            f"{path}: sqlite takes no path with % ? or #; name another file in MLFLOW_TRACKING_URI"
        )
    return f"sqlite:///{path}"


def _admitted(variable: str) -> str:
    """Returns the URI in a variable, from which user and password are taken away."""
    uri = os.environ.get(variable, "").strip()
    if not uri or database_of(uri) not in NO_FILE:
        return uri
    server = SERVER.fullmatch(uri)
    if server is None:
        if not DATABASE.fullmatch(uri) or PASSWORD.search(uri):
            raise ConfigError(
                f"{variable}: is no address of a store, or has a password at a wrong place; {FORMS}"
            )
        return uri
    scheme, user, password, place = server.groups()
    if user is not None:
        os.environ["MLFLOW_TRACKING_USERNAME"] = unquote(user)
        os.environ["MLFLOW_TRACKING_PASSWORD"] = unquote(password)
        uri = os.environ[variable] = scheme + place
    return uri


def is_server(uri: str) -> bool:
    return uri.startswith(("http://", "https://"))


def database_of(uri: str) -> Path | None:
    """Returns the file of an sqlite store."""
    path = uri.removeprefix("sqlite:///")
    return None if path == uri else Path(path)


def artifacts_of(uri: str, checkout: Path) -> Path | None:
    """Returns the folder of the runs' files: beside an sqlite store, else in the checkout.

    None for a server, which has a folder of its own.
    """
    if is_server(uri):
        return None
    database = database_of(uri)
    return (checkout / ".mlflow" if database is None else database.parent) / ARTIFACTS


def check_reachable(uri: str) -> None:
    """Asks a server for its health, before mlflow is imported and waits for it.

    Raises:
        Unreachable: it refuses, fails, is no MLflow server, or does not answer within
            PATIENCE_SECONDS.
    """
    parts = urlsplit(uri)
    try:
        if is_server(uri):
            within(PATIENCE_SECONDS, "health", partial(_check_health, uri.rstrip("/")))
        elif parts.hostname:
            place = parts.hostname, parts.port or PORTS[parts.scheme.partition("+")[0]]
            within(PATIENCE_SECONDS, "connection", lambda: socket.create_connection(place).close())
    except (OSError, ValueError, HTTPException) as error:
        raise Unreachable(f"no server answers: {getattr(error, 'reason', error)}") from None


def _check_health(uri: str) -> None:
    try:
        with urlopen(f"{uri}/health", timeout=2 * PATIENCE_SECONDS) as answer:
            if answer.read(3) != b"OK":
                raise Unreachable("that is no MLflow server")
    except HTTPError as error:
        if error.code >= 500:
            raise Unreachable(f"it answers with HTTP status {error.code}") from None
    except URLError as error:
        if not isinstance(error.reason, SSLError):  # about which mlflow's own settings decide
            raise


def reason_of(error: Exception) -> str:
    """Describes a failure in one line without secrets; that of a library in 200 characters."""
    words = described(error)
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(driver := getattr(cause, "orig", None), Exception):
            words = f"the database: {driver}"
        cause = cause.__cause__
    text = escaped(redact(" ".join(words.split()))) or type(error).__name__
    is_whole = len(text) <= 200 or isinstance(error, QuatrainError)
    return text if is_whole else f"{text[:60]} ... {text[-135:]}"


def within(seconds: float, what: str, work: Callable[[], Answer]) -> Answer:
    """Returns what `work` returns, or raises what it raises.

    Raises:
        Late: it took longer than `seconds`; its thread is left to itself.
    """
    future: Future[Answer] = Future()
    threading.Thread(target=_settle, args=(future, work), name=what, daemon=True).start()
    wait([future], seconds)
    if not future.done():
        raise Late(f"{what}: no complete answer within {seconds:g} s")
    return future.result()


def _settle(future: Future[Any], work: Callable[[], Any]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)


class BoundedClient(NamedTuple):
    """Calls the methods of an MlflowClient, each of which ends within CALL_SECONDS."""

    client: Any

    def call(self, method: str, *arguments: Any, size: float = 0, **named: Any) -> Any:
        """Calls a method; size: bytes of the file that it sends.

        Raises:
            Late: it took longer than CALL_SECONDS and the time for its file.
            Exception: any error of mlflow and its libraries.
        """
        work = partial(getattr(self.client, method), *arguments, **named)
        return within(CALL_SECONDS + size / UPLOAD_RATE, method, work)


def open_client(uri: str) -> BoundedClient:
    """Returns a client whose calls end; the first import of mlflow takes seconds.

    Raises:
        Unreachable: the store cannot be used, or does not answer within PATIENCE_SECONDS, or a
            database within SETUP_SECONDS.
        Exception: any error of mlflow and its libraries.
    """
    check_reachable(uri)
    quieten()
    from mlflow import MlflowClient

    def connect() -> Any:
        prepare_store(uri)
        return MlflowClient(tracking_uri=uri)

    return BoundedClient(within(SETUP_SECONDS, "opening the store", connect))


def quieten() -> None:
    """Sets short timeouts and turns off telemetry and tracebacks; call before importing mlflow."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"
    for name in ("mlflow.store.db.utils", "mlflow.exceptions", "urllib3.connectionpool"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # A warning about mlflow's own code when it is imported.
    warnings.filterwarnings("ignore", message="The ``noload`` loader strategy")


def prepare_store(uri: str) -> None:
    """Makes an sqlite store that is not there yet, and checks that this mlflow can use it.

    Raises:
        Unreachable: the store is damaged, cannot be made, or is of another mlflow.
    """
    database = database_of(uri)
    if database is None:
        return
    quieten()
    from alembic.util import CommandError
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        # Of six processes that open a new store at once, five would fail.
        with folder_lock(database.parent, SETUP_SECONDS):
            if not database.exists():
                _make(database)
            MlflowClient(tracking_uri=uri).get_experiment("0")
    except (OSError, CommandError, MlflowException, SQLAlchemyError, sqlite3.Error) as error:
        reason = " ".join(str(getattr(error, "orig", error)).split())
        raise Unreachable(
            f"{database} cannot be used ({reason}); end what else uses it, use the mlflow that "
            "made it, or name a new file in MLFLOW_TRACKING_URI: `make sync` sends all runs to it"
        ) from None


def _make(database: Path) -> None:
    """Makes a store under another name, then renames it: a kill leaves no half-made one. Its
    journal is a WAL, so that readers do not wait for a writer.
    """
    from mlflow.store.db import utils

    draft = Path(f"{database}{PARTIAL}")
    for left in database.parent.glob(f"{draft.name}*"):
        left.unlink()
    engine = utils.create_sqlalchemy_engine_with_retry(f"sqlite:///{draft}")
    try:
        utils._initialize_tables(engine)
    finally:
        engine.dispose()
    with closing(sqlite3.connect(draft)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    crash_point(os.replace, draft, database)
    sync_folder(database.parent)
