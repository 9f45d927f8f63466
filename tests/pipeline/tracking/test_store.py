"""Which stores are known, whether one answers, that calls end, and that a store is made once."""

import os
import shutil
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.tracking import store
from pipeline.tracking.store import (
    BoundedClient,
    Late,
    Unreachable,
    artifacts_of,
    check_reachable,
    open_client,
    prepare_store,
    reason_of,
    resolve_uri,
    within,
)
from quatrain.errors import ConfigError
from tests.conftest import ROOT
from tests.pipeline.faulty_server import faulty
from tests.pipeline.fixture_types import Patch
from tests.pipeline.small_checkout import call

VARIABLES = ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI")
LOGIN = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: Patch) -> Iterator[None]:
    """Removes what a test, or the code that it calls, sets."""
    for name in (*VARIABLES, *LOGIN, "DVC_ROOT"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    yield
    for name in LOGIN:
        os.environ.pop(name, None)


# Which store.


@pytest.mark.parametrize("variable", VARIABLES)
@pytest.mark.parametrize(
    ("uri", "clean", "user", "password"),
    [
        ("http://me:word@host:5000", "http://host:5000", "me", "word"),
        ("https://me%40org:a%2Fb@[::1]:5000/sub/", "https://[::1]:5000/sub/", "me@org", "a/b"),
        ("http://me:p@ss word@host", "http://host", "me", "p@ss word"),
        (" http://host/sub ", "http://host/sub", None, None),
        ("postgresql+psycopg2://me@host/db", "postgresql+psycopg2://me@host/db", None, None),
        ("postgresql:///db?service=x", "postgresql:///db?service=x", None, None),
        ("mysql://host:3306/db", "mysql://host:3306/db", None, None),
        ("sqlite:////data/a@b:c/m.db", "sqlite:////data/a@b:c/m.db", None, None),
    ],
)
def test_a_password_never_enters(
    monkeypatch: Patch, variable: str, uri: str, clean: str, user: str | None, password: str | None
):
    monkeypatch.setenv(variable, uri)
    uri = resolve_uri(Path("/work"))
    if variable == "MLFLOW_TRACKING_URI":
        assert uri == clean
    assert os.environ[variable].strip() == clean
    assert tuple(map(os.environ.get, LOGIN)) == (user, password)


@pytest.mark.parametrize("variable", VARIABLES)
@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://me:word@host/db",
        "postgresql://host/db?sslmode=x&sslpassword=word",
        "mysql+pymysql://me:word@host/db",
        "mysql://me:word/word@host/db",
        "http://me:wo/word@host",
        "http://me:1/word@host",
        "http://word@[::1/",
        "http://word@host",
        "http://:word@host",
        "http://host/?access_token=word",
        "http:///word",
        "sqlite://",
        "sqlite:///:memory:",
        "mssql://me:word@host/db",
        "http+unix://word",
        "HTTP://word",
        "word",
    ],
)
def test_any_other_address_is_refused_in_a_line_without_it(
    monkeypatch: Patch, variable: str, uri: str
):
    monkeypatch.setenv(variable, uri)
    with pytest.raises(ConfigError, match=rf"^{variable}: is no address .* ~/\.pgpass") as caught:
        resolve_uri(Path("/work"))
    assert "word" not in str(caught.value).replace("password", "")


def test_a_path_is_relative_to_the_checkout(tmp_path: Path, monkeypatch: Patch):
    assert resolve_uri(tmp_path) == f"sqlite:///{tmp_path}/.mlflow/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///runs.db")
    monkeypatch.setenv("DVC_ROOT", "/data/checkout")
    assert resolve_uri(tmp_path) == "sqlite:////data/checkout/runs.db"
    monkeypatch.setenv("DVC_ROOT", "/data/100%")
    with pytest.raises(ConfigError, match=r"^/data/100%/runs\.db: sqlite takes no path with % "):
        resolve_uri(tmp_path)
    monkeypatch.setenv("DVC_ROOT", "/data/checkout/.presets/smoke")
    assert resolve_uri(tmp_path) == "sqlite:////data/checkout/runs.db"


def test_files_lie_beside_an_sqlite_store_else_in_the_checkout_or_at_the_server():
    checkout = Path("/work")
    assert artifacts_of("sqlite:////data/m.db", checkout) == Path("/data/artifacts")
    assert artifacts_of("postgresql://host/db", checkout) == Path("/work/.mlflow/artifacts")
    assert artifacts_of("http://host", checkout) is None


# Whether it answers.


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("", None),
        ("401", None),
        ("404", None),
        ("page", "that is no MLflow server"),
        ("503", "it answers with HTTP status 503"),
    ],
)
def test_a_server_is_asked_for_its_health(fault: str, reason: str | None):
    with faulty() as server:
        server.fault, server.is_ill = fault, True
        if reason is None:
            check_reachable(f"{server.uri}/")
        else:
            with pytest.raises(Unreachable, match=f"^{reason}$"):
                check_reachable(server.uri)


def test_a_server_that_is_slow_or_away_is_left(monkeypatch: Patch):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    for uri in (f"http://127.0.0.1:{port}", f"postgresql://me@127.0.0.1:{port}/db"):
        with pytest.raises(Unreachable, match=r"^no server answers"):
            check_reachable(uri)
    monkeypatch.setattr(store, "PATIENCE_SECONDS", 0.05)
    with faulty() as server:
        server.fault, server.is_ill = "hang", True
        with pytest.raises(Unreachable, match=r"^health: no complete answer within 0\.05 s$"):
            check_reachable(server.uri)


def test_user_and_password_go_to_the_server_alone(monkeypatch: Patch):
    with faulty() as server:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri.replace("//", "//me:hunter22@"))
        client = open_client(resolve_uri(Path("/work")))
        client.call("search_experiments")
    assert server.logins == {None, "Basic bWU6aHVudGVyMjI="}  # its health is asked by anybody


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("a\n  b http://u:p@h \x1b[2J"), r"a b http://***@h \x1b[2J"),
        (ValueError(""), "ValueError"),
        (ValueError("x" * 300), "x" * 60 + " ... " + "x" * 135),
        (Unreachable("x" * 300), "x" * 300),
    ],
)
def test_a_reason_is_one_short_line(error: Exception, reason: str):
    assert reason_of(error) == reason


# Calls that end.


def test_a_call_ends_in_time_and_keeps_its_answer_and_errors(monkeypatch: Patch):
    assert within(5.0, "sum", lambda: 1 + 1) == 2
    with pytest.raises(ZeroDivisionError):
        within(5.0, "division", lambda: 1 // 0)
    monkeypatch.setattr(store, "CALL_SECONDS", 0.05)
    client = BoundedClient(SimpleNamespace(slow=lambda seconds: time.sleep(seconds)))
    with pytest.raises(Late, match=r"^slow: no complete answer within 0\.05 s$"):
        client.call("slow", 0.5)
    client.call("slow", 0.1, size=1e7)


# The sqlite store.


@pytest.mark.full
def test_processes_that_open_a_new_store_at_once_all_succeed(tmp_path: Path):
    uri = f"sqlite:///{tmp_path}/new/mlflow.db"
    code = """
import os, sys
import mlflow.store.tracking.sqlalchemy_store
from pipeline.tracking.store import open_client
for _ in range(5):
    if os.fork() == 0:
        print(open_client(sys.argv[1]).call("get_experiment", "0").name, flush=True)
        os._exit(0)
sys.exit(sum(os.wait()[1] != 0 for _ in range(5)))
"""
    command = ("python", "-W", "ignore::DeprecationWarning", "-c", code, uri)
    assert call(ROOT, *command) == "Default\n" * 5
    with closing(sqlite3.connect(tmp_path / "new" / "mlflow.db")) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert database.execute("SELECT count(*) FROM experiments").fetchone() == (1,)


def test_a_store_whose_making_was_stopped_is_made_anew(tmp_path: Path, monkeypatch: Patch):
    database = tmp_path / "mlflow.db"
    uri = f"sqlite:///{database}"
    store.quieten()
    import mlflow.store.tracking.sqlalchemy_store  # noqa: F401  without its own warnings
    from mlflow.store.db import utils

    def stopped(engine: Any) -> None:
        utils.InitialBase.metadata.create_all(engine)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(utils, "_upgrade_db", stopped)
        with pytest.raises(KeyboardInterrupt):
            prepare_store(uri)
    assert not database.exists()
    client = open_client(uri).client
    assert client.get_experiment("0").name == "Default"
    assert not list(tmp_path.glob("*.partial*"))
    client._tracking_client.store.engine.dispose()


def of_another_mlflow(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = 'ffffffffffff'")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (of_another_mlflow, r"cannot be used \(Detected out-of-date .*mlflow db upgrade"),
        (lambda path: os.truncate(path, 50_000), r"cannot be used \(.*malformed\); end what else"),
    ],
    ids=["another mlflow", "truncated"],
)
def test_a_damaged_store_is_told_with_the_remedy(
    template: Path, tmp_path: Path, change: Callable[[Path], None], reason: str
):
    database = tmp_path / "mlflow.db"
    shutil.copy(template, database)
    change(database)
    with pytest.raises(Unreachable, match=rf"mlflow\.db {reason}"):
        prepare_store(f"sqlite:///{database}")
