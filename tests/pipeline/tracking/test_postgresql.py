"""Tests that a server with PostgreSQL and S3 gets each run and model once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.pipeline import loopback
from tests.pipeline.fixture_types import Patch
from tests.pipeline.loopback import BUCKET, KEYS, PASSWORD
from tests.pipeline.recorded_runs import client_of, deliver, recorded_model, runs_of


@pytest.mark.full
def test_a_server_keeps_runs_in_postgresql_and_files_in_s3(tmp_path: Path, monkeypatch: Patch):
    outbox = recorded_model(tmp_path / ".state" / "outbox" / "train@allo.sqlite", "k1")
    outbox.put("artifact", "plots/curve.png", data=b"picture")
    (tmp_path / "server").mkdir()

    with loopback.postgresql() as database, loopback.s3(tmp_path / "moto.log") as url:
        runs = database.create("served")
        settings = KEYS | {"AWS_ENDPOINT_URL": url}
        for _ in range(2):  # as compose.yaml does, each time it starts
            subprocess.run(
                [sys.executable, ROOT / "docker/bucket.py", BUCKET],
                env=os.environ | settings,
                check=True,
            )
        with loopback.mlflow_server(
            tmp_path / "server", runs, f"s3://{BUCKET}/mlflow", **settings
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
