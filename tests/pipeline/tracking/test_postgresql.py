"""Tests that PostgreSQL gets each run and model once, even if it stops meanwhile."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.tracking import store
from pipeline.tracking.delivery import Delivery
from tests.conftest import ROOT
from tests.pipeline import loopback
from tests.pipeline.fixture_types import Patch
from tests.pipeline.loopback import BUCKET, KEYS, PASSWORD, Postgresql
from tests.pipeline.recorded_runs import (
    arrived,
    client_of,
    deliver,
    expected,
    recorded,
    recorded_model,
    runs_of,
)

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def postgresql() -> Iterator[Postgresql]:
    with loopback.postgresql() as server:
        yield server


@pytest.fixture(scope="module")
def database(postgresql: Postgresql) -> Callable[[str], str]:
    """Returns the URI of a database with mlflow's tables, created once and copied."""
    engine_of(postgresql.create("template")).dispose()
    return lambda name: postgresql.create(name, "template")


def engine_of(uri: str) -> Any:
    return store.open_client(uri).client._tracking_client.store.engine


def test_a_database_that_fails_meanwhile_gets_every_line_once(
    postgresql: Postgresql, database: Callable[[str], str], tmp_path: Path, monkeypatch: Patch
):
    uri = database("failing")
    monkeypatch.chdir(tmp_path)
    outbox = recorded(tmp_path / ".state" / "outbox" / "train@allo.sqlite", "k1")
    for _ in range(3):
        delivery = Delivery(outbox, uri)
        assert delivery.step()
        postgresql.stop()
        with pytest.raises(Exception, match=r"127\.0\.0\.1"):
            delivery.step()
        postgresql.start()
    deliver(outbox, uri)
    deliver(outbox, uri, from_start=True)

    (run,) = runs_of(client_of(uri), "k1")
    assert arrived(client_of(uri), "k1") == expected(outbox)
    assert (run.info.status, len(run.data.params)) == ("FINISHED", 131)


def test_a_server_keeps_runs_in_postgresql_and_files_in_s3(
    database: Callable[[str], str], tmp_path: Path, monkeypatch: Patch
):
    outbox = recorded_model(tmp_path / ".state" / "outbox" / "train@allo.sqlite", "k1")
    outbox.put("artifact", "plots/curve.png", data=b"picture")
    (tmp_path / "server").mkdir()

    with loopback.s3(tmp_path / "moto.log") as url:
        settings = KEYS | {"AWS_ENDPOINT_URL": url}
        for _ in range(2):  # as compose.yaml does, each time it starts
            subprocess.run(
                [sys.executable, ROOT / "docker/bucket.py", BUCKET],
                env=os.environ | settings,
                check=True,
            )
        with loopback.mlflow_server(
            tmp_path / "server", database("served"), f"s3://{BUCKET}/mlflow", **settings
        ) as uri:
            monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
            deliver(outbox, uri)
            deliver(outbox, uri, from_start=True)
            client = client_of(uri)
            (run,) = runs_of(client, "k1")
            (version,) = client.search_model_versions("name = 'quatrain-allo'")
            picture = client.download_artifacts(run.info.run_id, "plots/curve.png", str(tmp_path))
            alias = client.get_model_version_by_alias("quatrain-allo", "candidate")

    assert Path(picture).read_bytes() == b"picture"
    assert (version.run_id, alias.version) == (run.info.run_id, version.version)
    assert [path.name for path in (tmp_path / "server").iterdir()] == ["mlflow.log"]
    assert PASSWORD not in (tmp_path / "server" / "mlflow.log").read_text()
