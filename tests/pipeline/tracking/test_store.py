"""Tests that a store is created once and used by many processes."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pipeline.tracking.delivery import Delivery
from pipeline.tracking.experiment import EXPERIMENT
from pipeline.tracking.runs_page import experiment_id
from pipeline.tracking.store import (
    artifacts_of,
    database_of,
    open_client,
    prepare_store,
    resolve_uri,
)
from quatrain.errors import ConfigError
from tests.conftest import ROOT
from tests.pipeline.fixture_types import Patch
from tests.pipeline.recorded_runs import recorded_model
from tests.pipeline.small_checkout import call

pytestmark = pytest.mark.full


def test_processes_that_open_a_new_store_at_once_all_succeed(tmp_path: Path):
    uri = f"sqlite:///{tmp_path}/new/mlflow.db"
    code = """
import os, sys
import mlflow.store.tracking.sqlalchemy_store
from pipeline.tracking.store import open_client
for _ in range(5):
    if os.fork() == 0:
        print(open_client(sys.argv[1]).get_experiment("0").name, flush=True)
        os._exit(0)
sys.exit(sum(os.wait()[1] != 0 for _ in range(5)))
"""
    command = ("python", "-W", "ignore::DeprecationWarning", "-c", code, uri)
    assert call(ROOT, *command) == "Default\n" * 5
    with closing(sqlite3.connect(tmp_path / "new" / "mlflow.db")) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert database.execute("SELECT count(*) FROM experiments").fetchone() == (1,)


STOPPED = """
import os, signal, sys
from sqlalchemy import event
from sqlalchemy.engine import Engine
from pipeline.tracking import store
uri = sys.argv[1]
store.quieten()
import mlflow.store.tracking.sqlalchemy_store

def stop_at(statement):
    if os.fork():
        return os.WTERMSIG(os.wait()[1])
    ran = []
    @event.listens_for(Engine, "before_cursor_execute")
    def count(*_):
        ran.append(1)
        if len(ran) == statement:
            os.kill(os.getpid(), signal.SIGKILL)
    store.prepare_store(uri)
    os._exit(0)

for statement in map(int, sys.argv[2:]):
    print(stop_at(statement), flush=True)
os.environ["QUATRAIN_CRASH_AT"] = "1"
print(stop_at(0), flush=True)
del os.environ["QUATRAIN_CRASH_AT"]
print(store.open_client(uri).get_experiment("0").name)
"""


def test_a_store_whose_making_was_stopped_is_made_again(tmp_path: Path):
    """At its first statements, within migrations, and before it is whole."""
    command = ("python", "-W", "ignore::DeprecationWarning", "-c", STOPPED)
    stops = ("5", "60", "300", "900")
    said = call(ROOT, *command, f"sqlite:///{tmp_path}/mlflow.db", *stops)
    assert said.split() == ["9"] * (len(stops) + 1) + ["Default"]
    assert {path.name for path in tmp_path.iterdir()} >= {"lock", "mlflow.db"}
    assert not list(tmp_path.glob("*.partial*"))


def revision_of(database: Path) -> Any:
    with closing(sqlite3.connect(database)) as connection:
        (revision,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return revision


def test_a_store_of_an_older_mlflow_is_upgraded_on_a_copy(tmp_path: Path, monkeypatch: Patch):
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    prepare_store(f"sqlite:///{tmp_path}/other.db")  # imports mlflow without its own warnings
    from alembic import command
    from alembic.script import ScriptDirectory
    from mlflow.store.db import utils

    config = utils._get_alembic_config(uri)
    script = ScriptDirectory.from_config(config)
    newest = script.get_revision("head")
    assert newest is not None
    engine = utils.create_sqlalchemy_engine(uri)
    with engine.begin() as connection:
        utils.InitialBase.metadata.create_all(connection)
        config.attributes["connection"] = connection
        command.upgrade(config, str(newest.down_revision))
    engine.dispose()
    # mlflow upgrades a store that lacks a table, and refuses to open one that lacks a column.
    monkeypatch.setattr(utils, "_all_tables_exist", lambda _: True)

    def stopped(engine: Any) -> None:
        upgrade(engine)
        raise KeyboardInterrupt

    upgrade = utils._upgrade_db
    with monkeypatch.context() as patch:
        patch.setattr(utils, "_upgrade_db", stopped)
        with pytest.raises(KeyboardInterrupt):
            prepare_store(uri)
    assert revision_of(tmp_path / "mlflow.db") == newest.down_revision

    client = open_client(uri)

    assert client.get_experiment("0").name == "Default"
    assert revision_of(tmp_path / "mlflow.db") == newest.revision
    client._tracking_client.store.engine.dispose()


def deliver_to(checkout: Path, run_key: str) -> Any:
    """Delivers a run with files to the checkout's store, and returns the client."""
    uri = f"sqlite:///{checkout}/.mlflow/mlflow.db"
    journal = recorded_model(checkout / ".state" / "journal" / run_key, run_key)
    delivery = Delivery(journal, uri)
    while delivery.step():
        pass
    delivery.close()
    return open_client(uri)


def runs_of(client: Any) -> dict[str, str]:
    """Returns the folder of each run's files, by the run's name."""
    runs = client.search_runs([client.get_experiment_by_name("quatrain").experiment_id])
    return {run.info.run_name: run.info.artifact_uri for run in runs}


def test_a_copied_checkout_writes_into_itself_and_reads_its_own_copies(tmp_path: Path):
    first, copied = tmp_path / "first", tmp_path / "copy"
    client = deliver_to(first, "before")
    before = {path.relative_to(first) for path in first.glob(".mlflow/artifacts/**/*")}
    assert before
    client._tracking_client.store.engine.dispose()
    shutil.copytree(first, copied)

    client = deliver_to(copied, "after")

    assert {path.relative_to(first) for path in first.glob(".mlflow/artifacts/**/*")} == before
    runs = runs_of(client)
    assert set(runs) == {"allo-before", "allo-after"}
    for folder in runs.values():
        assert Path(folder).is_relative_to(copied)
        assert (Path(folder) / "plots" / "picture.png").read_bytes() == b"picture"
    for version in client.search_model_versions("name = 'quatrain-allo'"):
        assert str(first) not in client.get_model_version_download_uri(
            "quatrain-allo", version.version
        )
    assert first.exists()
    assert runs_of(open_client(f"sqlite:///{first}/.mlflow/mlflow.db")).keys() == {"allo-before"}


@pytest.mark.parametrize("name", ["a#b", "a%20b", "a?b", "a#b%20c?d&e=%3F"])
def test_a_store_below_a_name_with_signs_of_addresses_is_there_and_nothing_is_beside(
    name: str, tmp_path: Path, monkeypatch: Patch
):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    checkout = tmp_path / name
    checkout.mkdir()
    monkeypatch.chdir(checkout)
    uri = resolve_uri(checkout)
    assert database_of(uri) == checkout / ".mlflow" / "mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)  # as the processes of dvc get it
    assert resolve_uri(checkout) == uri
    assert experiment_id(uri) is None
    client = open_client(uri)
    folder = artifacts_of(uri, checkout)
    number = client.create_experiment(EXPERIMENT, artifact_location=str(folder))
    assert experiment_id(uri) == number
    run = client.create_run(number).info.run_id
    client.log_text(run, "text", "words.txt")
    (words,) = checkout.rglob("words.txt")
    assert (words.read_text(), words.is_relative_to(checkout / ".mlflow")) == ("text", True)
    assert list(tmp_path.iterdir()) == [checkout]
    client._tracking_client.store.engine.dispose()


def test_a_folder_that_can_hold_no_store_is_named_and_no_variable(
    tmp_path: Path, monkeypatch: Patch
):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    why = r"a:b@c/.mlflow/mlflow.db, where runs are recorded: it names a user .*; rename a folder"
    with pytest.raises(ConfigError, match=why):
        resolve_uri(tmp_path / "a:b@c")
