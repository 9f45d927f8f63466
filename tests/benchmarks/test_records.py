"""A benchmark is one MLflow run, whose loss fails no benchmark; publishing says where everything
is.
"""

from pathlib import Path
from typing import Any

import pytest

from benchmarks import publish, records, result_files
from benchmarks.table import Row
from tests.benchmarks.small_results import ALL, STEP, keep
from tests.pipeline.faulty_server import free_port
from tests.pipeline.recorded_runs import client_of


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    from pipeline.tracking.store import open_client

    uri = f"sqlite:///{tmp_path_factory.mktemp('store') / 'mlflow.db'}"
    open_client(uri)._tracking_client.store.engine.dispose()
    return uri


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str) -> Path:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    return tmp_path


def result(
    rows: dict[str, list[Row]], folder: Path, **machine: Any
) -> dict[str, result_files.Results]:
    read = result_files.read(keep(folder, rows, **machine))
    return {name: results for name, results in read.items() if results is not None}


def runs_named(uri: str, key: str) -> list[Any]:
    client = client_of(uri)
    experiment = client.get_experiment_by_name("benchmarks")
    return list(
        client.search_runs([experiment.experiment_id], f"tags.`quatrain.benchmarks` = '{key}'")
    )


def test_the_store_has_one_run_with_machine_ratios_counts_and_files(root: Path, store: str, capsys):
    results = keep(root / "benchmarks" / "results", ALL)
    publish.publish(root, results)
    publish.publish(root, results)
    (run,) = runs_named(store, "allo actor_critic machine peers")
    assert run.info.status == "FINISHED"
    assert {
        "cpu": "some CPU",
        "jax": "0.10.2",
        "rounds": "3",
        "device": "cpu",
    }.items() <= run.data.params.items()
    metrics = run.data.metrics
    assert (metrics["allo/step"], metrics["allo.proposal/step"], metrics["allo.of_limit/step"]) == (
        6,
        2,
        0.5,
    )
    assert metrics["allo.over_without/step"] == 4
    assert metrics["allo/step_in_a_scan"] == 4
    assert (metrics["goals/met"], metrics["goals/missed"], metrics["claims/reproduced"]) == (
        1,
        1,
        1,
    )
    assert run.data.tags["quatrain.device"] == "cpu"
    assert run.data.tags["git.commit"] == "none"
    assert "* missed: step: >= 7x before" in run.data.tags["mlflow.note.content"]
    client = client_of(store)
    assert [file.path for file in client.list_artifacts(run.info.run_id, "results")] == [
        f"results/{name}.json" for name in ("actor_critic", "allo", "machine", "peers")
    ]
    assert "benchmarks/claims_allo.png" in {
        file.path for file in client.list_artifacts(run.info.run_id, "benchmarks")
    }
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "page: docs/benchmarks.md; 4 pictures: docs/benchmarks"
    assert lines[1].startswith("run bench-all-")
    assert lines[1].endswith(f"of the experiment `benchmarks`: {store} (`make ui`)")


def test_only_what_this_call_measured_is_recorded(root: Path, store: str):
    results = keep(root / "mine", ALL)
    publish.publish(root, results, ["machine"])
    (run,) = runs_named(store, "machine")
    assert {name.partition("/")[0] for name in run.data.metrics} == {"machine", "goals"}
    assert run.info.run_name.startswith("bench-machine-")
    assert (results / "benchmarks.md").is_file()


def test_a_server_that_is_away_costs_one_line_and_loses_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:secret@127.0.0.1:{free_port()}")
    results = keep(root / "benchmarks" / "results", {"allo": [STEP]})
    publish.publish(root, results)
    lines = capsys.readouterr()
    (line,) = lines.err.splitlines()
    assert line.startswith("warning: tracking: 8 metrics and ")
    assert line.endswith("they are kept: `make sync` sends them")
    assert "secret" not in lines.err + lines.out
    assert (root / "docs" / "benchmarks.md").is_file()
    assert list((root / ".state" / "journal").glob("benchmarks-*/journal.jsonl"))


def test_where_nothing_was_measured_nothing_is_recorded(root: Path, capsys):
    publish.publish(root, keep(root / "mine", {"machine": ALL["machine"]}), ["allo"])
    assert "run bench" not in capsys.readouterr().out
    assert not (root / ".state").exists()


def test_a_page_that_cannot_be_written_is_one_line(root: Path, capsys):
    results = keep(root / "benchmarks" / "results", {"allo": [STEP]})
    (root / "docs").write_text("a file where the folder belongs")
    publish.publish(root, results)
    lines = capsys.readouterr().err
    assert lines.startswith("warning: publish: ")
    assert lines.endswith(f"; the results are kept in {results}\n")
    assert lines.count("\n") == 1


def test_names_that_become_alike_stay_apart(tmp_path: Path):
    rows = [STEP._replace(name=name) for name in ("a (b)", "a [b]", "a: b " + "c" * 300)]
    names = [
        name
        for name, *_ in records.metrics(result({"allo": rows}, tmp_path))
        if name.startswith("allo/")
    ]
    assert names[:2] == ["allo/a_b", "allo/a_b_2"]
    assert len(names) == len(set(names)) == 3
    assert max(map(len, names)) < 250


def test_benchmarks_on_two_devices_are_told_apart(tmp_path: Path):
    both = result({"allo": [STEP]}, tmp_path) | result(
        {"iqn": [STEP]}, tmp_path / "gpu", device="cuda"
    )
    header = records.header_of(tmp_path, "key", both)
    assert header.tags["quatrain.device"] == "cpu, cuda"
    assert (header.params["allo.device"], header.params["iqn.device"]) == ("cpu", "cuda")
