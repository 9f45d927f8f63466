"""Tests that a store is created once and used by many processes."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pipeline.tracking.store import open_client, prepare_store
from tests.conftest import ROOT
from tests.pipeline.fixture_types import Patch
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


def test_a_store_of_an_older_mlflow_is_upgraded(tmp_path: Path, monkeypatch: Patch):
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

    client = open_client(uri)

    assert client.get_experiment("0").name == "Default"
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as database:
        (revision,) = database.execute("SELECT version_num FROM alembic_version").fetchone()
    assert revision == newest.revision
    client._tracking_client.store.engine.dispose()
