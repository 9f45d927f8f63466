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
from pipeline.tracking.store import reason_of
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
from tests.pipeline.small_checkout import start

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
    return store.open_client(uri)._tracking_client.store.engine


def test_a_database_that_fails_meanwhile_gets_every_line_once(
    postgresql: Postgresql, database: Callable[[str], str], tmp_path: Path, monkeypatch: Patch
):
    uri = database("failing")
    monkeypatch.chdir(tmp_path)
    outbox = recorded(tmp_path / "train@allo.sqlite", "k1")
    for _ in range(3):
        delivery = Delivery(outbox, uri)
        assert delivery.step()
        postgresql.stop()
        with pytest.raises(Exception, match=r"127\.0\.0\.1") as caught:
            delivery.step()
        assert PASSWORD not in reason_of(caught.value, uri)
        delivery.close()
        postgresql.start()
    deliver(outbox, uri)
    deliver(outbox, uri, from_start=True)

    (run,) = runs_of(client_of(uri), "k1")
    assert arrived(client_of(uri), "k1") == expected(outbox)
    assert (run.info.status, len(run.data.params)) == ("FINISHED", 131)
    assert PASSWORD.encode() not in outbox.path.read_bytes()


@pytest.mark.slow
def test_processes_that_use_a_new_database_at_once_lose_nothing(
    postgresql: Postgresql, tmp_path: Path
):
    uri = postgresql.create("fresh")
    places = [tmp_path / str(number) for number in range(3)]
    outboxes = [
        recorded(place / ".state" / "outbox" / "train@allo.sqlite", f"k{place.name}")
        for place in places
    ]
    command = ("python", "-m", "pipeline", "sync", "--wait", "120")
    variables = {"MLFLOW_TRACKING_URI": uri, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    running = [start(place, *command, **variables) for place in places]
    outputs = [process.communicate()[0] for process in running]

    assert [process.returncode for process in running] == [0, 0, 0], "\n".join(outputs)
    for number, outbox in enumerate(outboxes):
        assert arrived(client_of(uri), f"k{number}") == expected(outbox)


def test_a_server_keeps_runs_in_postgresql_and_files_in_s3(
    database: Callable[[str], str], tmp_path: Path, monkeypatch: Patch
):
    outbox = recorded_model(tmp_path / "train@allo.sqlite", "k1")
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
            picture = client.download_artifacts(run.info.run_id, "plots/picture.png", str(tmp_path))
            alias = client.get_model_version_by_alias("quatrain-allo", "candidate")

    assert Path(picture).read_bytes() == b"picture"
    assert (version.run_id, alias.version) == (run.info.run_id, version.version)
    assert [path.name for path in (tmp_path / "server").iterdir()] == ["mlflow.log"]
    assert PASSWORD not in (tmp_path / "server" / "mlflow.log").read_text()
