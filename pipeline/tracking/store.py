"""tracking URI -> an MLflow client, or an error within two seconds if no server answers."""

import logging
import os
import re
import socket
import sqlite3
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pipeline.runtime.errors import described
from pipeline.runtime.file_lock import folder_lock
from pipeline.runtime.redaction import is_readable, redact, shown
from pipeline.tracking.deadline import BoundedClient, Late, Unreachable, limit_answers, within
from pipeline.tracking.tracking_uri import check_uri, is_server, server_of
from quatrain.storage.atomic_write import PARTIAL, crash_point, sync_folder
from quatrain.storage.disk_errors import escaped

# Timeout for the first answer of a server, and for a call in progress when a stage ends.
PATIENCE_SECONDS = 2.0
# Deadline of that first answer as a whole: its timeout, which closes the socket, ends before.
HEALTH_SECONDS = 2.5
# Timeout for another process that creates the same sqlite store.
SETUP_SECONDS = 120.0
# Settings of mlflow: with its defaults a call to a dead server takes minutes.
ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_HTTP_RESPECT_RETRY_AFTER_HEADER": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}


# Folder of the runs' files, beside an sqlite store.
ARTIFACTS = "artifacts"
# Where a store names it.
LOCATIONS = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)

# Codes of sqlite for a file that it cannot read, or whose tables are not as expected; the bits that
# hold them.
DAMAGED = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
PRIMARY = 0xFF
ANEW = "move it elsewhere, and `make sync` sends all runs to a new one"

# What mlflow raises of an answer or a row that it did not expect.
MEANINGLESS = (TypeError, AttributeError, LookupError, UnicodeError, RecursionError)


def resolve_uri(root: Path) -> str:
    """Returns MLFLOW_TRACKING_URI, or else the sqlite store of the checkout.

    The checkout is DVC_ROOT if DVC started this process, else `root`: `dvc exp run --temp` removes
    its working folder afterwards. A relative sqlite path is relative to the checkout.

    Raises:
        ConfigError: it names no store, or MLFLOW_REGISTRY_URI, which mlflow reads, names none.
    """
    checkout = Path(os.environ.get("DVC_ROOT") or root)
    named = os.environ.get("MLFLOW_TRACKING_URI", "").strip()
    uri = named or "sqlite:///.mlflow/mlflow.db"
    check_uri("MLFLOW_TRACKING_URI", uri)
    registry = os.environ.get("MLFLOW_REGISTRY_URI", "").strip()
    if registry:
        check_uri("MLFLOW_REGISTRY_URI", registry)
    database = database_of(uri)
    if database is None:
        return uri
    absolute = f"sqlite:///{encoded((checkout / database).absolute())}"
    if named:
        check_uri("MLFLOW_TRACKING_URI", absolute)
    else:
        remedy = "rename a folder above it, or set MLFLOW_TRACKING_URI"
        check_uri(f"{database_of(absolute)}, where runs are recorded", absolute, remedy)
    return absolute


def open_client(uri: str) -> BoundedClient:
    """Returns a client whose calls end at a deadline; the first import of mlflow takes seconds.

    Raises:
        Unreachable: a database does not answer within SETUP_SECONDS.
        Exception: any error of mlflow and its libraries.
    """
    quieten()
    from mlflow import MlflowClient
    from mlflow.tracking._tracking_service.utils import _artifact_repos_cache

    def connect() -> Any:
        prepare_store(uri)
        return MlflowClient(tracking_uri=uri)

    limit_answers()
    _artifact_repos_cache.clear()  # places of files that a broken server may have told
    try:
        return BoundedClient(within(SETUP_SECONDS, "opening the store", connect))
    except Late as error:
        raise Unreachable(str(error)) from None


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
    """Creates or upgrades an sqlite store, and lets readers work beside a writer.

    A lock admits one process at a time: of six that open a new store at once, five fail.

    Raises:
        Unreachable: the store is damaged, in use while it must be upgraded, or of a newer mlflow.
    """
    database = database_of(uri)
    if database is None:
        return
    if database.exists() and not database.is_file():
        raise Unreachable(f"{database} is no file; move it elsewhere")
    quieten()
    from mlflow import MlflowClient
    from mlflow.store.db import utils

    # mlflow would make folders of the address as it is written, with what is percent-encoded.
    utils._make_parent_dirs_if_sqlite = lambda db_uri: None  # noqa: ARG005
    with _remedies(database), folder_lock(database.parent, SETUP_SECONDS):
        engine = utils.create_sqlalchemy_engine_with_retry(uri)
        version, is_complete = utils._get_schema_version(engine), utils._all_tables_exist(engine)
        engine.dispose()
        if version != utils._get_latest_schema_revision():
            _replace(database, uri, utils._upgrade_db if version else utils._initialize_tables)
        elif not is_complete:
            raise Unreachable(f"{database} lacks tables; {ANEW}")
        MlflowClient(tracking_uri=uri).get_experiment("0")
        with closing(sqlite3.connect(database)) as connection, connection:
            connection.execute("PRAGMA journal_mode=WAL")
            _follow_artifacts(connection, Path(encoded(database.parent / ARTIFACTS)))


def _replace(database: Path, uri: str, migrate: Callable[[Any], None]) -> None:
    """Migrates a copy of a store and renames it: what a stop leaves of a migration, no other can
    continue.
    """
    from mlflow.store.db import utils

    copy = Path(f"{database}{PARTIAL}")
    for left in (copy, Path(f"{copy}-journal")):
        left.unlink(missing_ok=True)
    with closing(sqlite3.connect(database)) as old, closing(sqlite3.connect(copy)) as new:
        old.execute("PRAGMA journal_mode=DELETE")  # only where nobody else has it open
        old.backup(new)
    engine = utils.create_sqlalchemy_engine_with_retry(f"{uri}{PARTIAL}")
    try:
        migrate(engine)
    finally:
        engine.dispose()
    crash_point(os.replace, copy, database)
    sync_folder(database.parent)


@contextmanager
def _remedies(database: Path) -> Iterator[None]:
    """Raises Unreachable, with a remedy, of what is wrong with a store."""
    from alembic.util import CommandError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except OSError as error:
        elsewhere = "name a file elsewhere in MLFLOW_TRACKING_URI"
        reason = f"cannot be written ({error.strerror}); {elsewhere}"
    except CommandError as error:
        reason = f"is of another mlflow ({error}); use that one, or move it elsewhere"
    except (SQLAlchemyError, sqlite3.Error) as error:
        cause = getattr(error, "orig", None) or error
        code = getattr(cause, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & PRIMARY
        if code == sqlite3.SQLITE_BUSY:
            reason = "is in use by another program; end that"
        elif code in DAMAGED:
            reason = f"is damaged ({described(cause)}); {ANEW}"
        else:
            raise
    else:
        return
    raise Unreachable(f"{database} {reason}")


def _follow_artifacts(connection: sqlite3.Connection, folder: Path) -> None:
    """Names the folder of the runs' files anew in a store that was copied or moved.

    MLflow stores absolute paths: runs of a copied checkout would write into the original.
    """
    ending = "/" + "/".join(folder.parts[-2:])
    query = "SELECT artifact_location FROM experiments WHERE artifact_location IS NOT NULL"
    locations = [location for (location,) in connection.execute(query)]
    # An experiment's own folder may lie below.
    roots = {
        head + ending for head, end, _ in (each.partition(ending) for each in locations) if end
    }
    for old in roots:
        path = old.removeprefix("file://")
        if Path(path).resolve() == folder.resolve():
            continue
        for table, column in LOCATIONS:
            connection.execute(
                f"UPDATE {table} SET {column} = ? || substr({column}, ?) "
                f"WHERE {column} = ? OR substr({column}, 1, ?) = ? || '/'",
                (old.replace(path, str(folder)), len(old) + 1, old, len(old) + 1, old),
            )


def database_of(uri: str) -> Path | None:
    """Returns the file of an sqlite store, with what is percent-encoded as SQLAlchemy reads it."""
    path = uri.removeprefix("sqlite:///")
    return None if path == uri else Path(unquote(path))


def artifacts_of(uri: str, checkout: Path) -> Path | None:
    """Returns the folder of the runs' files as mlflow reads it, percent-encoded: beside an sqlite
    store, else in the checkout.

    None for a server, which has a folder of its own.
    """
    if is_server(uri):
        return None
    database = database_of(uri)
    folder = checkout / ".mlflow" if database is None else database.parent
    return Path(encoded(folder / ARTIFACTS))


def encoded(path: Path) -> str:
    """Returns a path as SQLAlchemy and mlflow decode it, for which ? and # would end it."""
    return re.sub("[%?#]", lambda match: f"%{ord(match[0]):X}", str(path))


def reason_of(error: Exception, uri: str) -> str:
    """Describes a failure in one line of at most 200 characters, without the URI's secrets and
    without what a server may have sent to control a terminal.
    """
    words = redact(" ".join(redact(_words_of(error), uri).split()), uri)
    text = escaped(words) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:60]} ... {text[-135:]}"


def _words_of(error: Exception) -> str:
    """Returns what a user can mend, of an error of mlflow or of what is below it."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(driver := getattr(cause, "orig", None), Exception):
            return f"the database: {driver}"
        cause = cause.__cause__
    if isinstance(error, MEANINGLESS):
        return f"what it holds or answers cannot be read ({type(error).__name__}: {error})"
    return described(error)


def check_reachable(uri: str) -> None:
    """Asks a server for its health, before mlflow is imported and waits for it.

    Raises:
        Unreachable: it refuses, does not answer within PATIENCE_SECONDS, or fails; or the URI can
            be read in several ways.
    """
    if not is_readable(uri):
        raise Unreachable(
            "the tracking URI can be read in several ways; percent-encode / ? # @ : and spaces in "
            "its user and password, and close the brackets of an IPv6 address"
        )
    try:
        if is_server(uri):
            import requests  # noqa: F401  the thread's time is for the server alone

            ask = partial(_check_health, re.split(r"[?#]", shown(uri))[0].rstrip("/"))
            within(HEALTH_SECONDS, "health", ask)
        elif (address := server_of(uri)).host:
            within(HEALTH_SECONDS, "connection", partial(_connect, *address))
    except Late:
        raise Unreachable(f"no complete answer within {HEALTH_SECONDS:g} s") from None
    except (OSError, UnicodeError, ValueError) as error:
        raise Unreachable(f"no server answers: {error}") from None


def _connect(host: str, port: int | None) -> None:
    """Connects to a database, or looks up its host: its driver knows the port that is left out."""
    if port is None:
        socket.getaddrinfo(host, None)
    else:
        socket.create_connection((host, port), PATIENCE_SECONDS).close()


def _check_health(uri: str) -> None:
    import requests

    try:
        with requests.get(f"{uri}/health", timeout=PATIENCE_SECONDS, stream=True) as answer:
            status = answer.status_code
    except requests.exceptions.SSLError:
        return  # There is a server; mlflow's own TLS settings decide about the rest.
    except requests.exceptions.Timeout:
        raise Unreachable(f"no answer within {PATIENCE_SECONDS:.0f} s") from None
    except requests.exceptions.ConnectionError:
        raise Unreachable("no server answers") from None
    except requests.exceptions.RequestException as error:
        raise Unreachable(f"it does not answer as a server does: {type(error).__name__}") from None
    if status >= 500:
        raise Unreachable(f"it answers with HTTP status {status}")
