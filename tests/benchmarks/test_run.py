"""`make bench`: what it refuses and starts, what it stores, and its run in MLflow."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks import run
from benchmarks.claims import COMMANDS, read
from quatrain.registry import MODELS
from tests.benchmarks.small_results import ALL, PART, STEP, keep, measured, rows_of
from tests.pipeline.recorded_runs import client_of
from tests.pipeline.small_project import NOBODY


def test_wrong_arguments_are_refused_before_anything_runs(monkeypatch, capsys):
    monkeypatch.setattr(run, "measured", lambda *_: pytest.fail("a benchmark ran"))
    for arguments, message in {
        ("--rounds", "4"): "--rounds 4: medians of fewer than 5 rounds say nothing",
        ("iqn_to_return", "--rounds", "1"): "--rounds 1: medians of fewer than 5",
        ("b", "a"): "a, b: there is no such benchmark; there are allo, iqn",
    }.items():
        with pytest.raises(SystemExit, match="2"):
            run.main(["allo", *arguments])
        assert message in capsys.readouterr().err


def test_all_benchmarks_are_measured_in_turn_and_one_that_fails_stops_no_other(monkeypatch):
    codes, started, published = {"iqn": 3, "machine": 1}, [], []

    def measured(*arguments: Any) -> int:
        started.append(arguments)
        return codes.get(arguments[0], 0)

    monkeypatch.setattr(run, "publish", lambda *arguments: published.append(arguments[2]))
    monkeypatch.setattr(run, "measured", measured)
    assert run.main([]) == 3
    assert started == [(name, 5, run.RESULTS) for name in (*MODELS, "machine")]
    assert published == [["allo", "actor_critic", "active_dynamics"]]
    assert run.main(["iqn"]) == 3
    assert len(published) == 1
    assert run.main(["iqn_to_return"]) == 0
    assert started[-1] == ("iqn_to_return", 1, run.RESULTS)
    assert {*run.BENCHMARKS, *run.SLOW, "peers"} == set(COMMANDS)


def test_a_benchmark_that_a_signal_ends_has_failed(tmp_path: Path, monkeypatch, capsys):
    killed = subprocess.CompletedProcess([], -9)
    monkeypatch.setattr(run.subprocess, "run", lambda *_, **__: killed)
    assert run.measured("allo", 5, tmp_path) == 1
    assert "signal 9" in capsys.readouterr().err


def test_params_that_cannot_be_read_end_it_with_2(tmp_path: Path, monkeypatch, capsys):
    (tmp_path / "params.yaml").write_text("device: toaster\n")
    monkeypatch.chdir(tmp_path)
    assert run.main(["allo", "--here", "--results", str(tmp_path)]) == 2
    assert "[exit 2]" in capsys.readouterr().err
    assert not (tmp_path / "allo.json").exists()


@pytest.mark.full
def test_the_store_has_one_run_with_machine_ratios_counts_and_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    for _ in range(2):
        run.publish(tmp_path, keep(tmp_path / "benchmarks" / "results", ALL))
    client = client_of(uri)
    (recorded,) = client.search_runs([client.get_experiment_by_name("benchmarks").experiment_id])
    data, run_id = recorded.data, recorded.info.run_id
    assert {"cpu": "some CPU", "jax": "0.10.2", "rounds": "3"}.items() <= data.params.items()
    metrics = {"allo/step": 6, "goals/met": 1, "peers/draw_before_torchrl_plain": 0.5}
    assert metrics.items() <= data.metrics.items()
    tags = {"quatrain.device": "cpu", "git.commit": "none", "mlflow.source.name": "make bench"}
    assert tags.items() <= data.tags.items()
    assert "* missed: step: at least 7x: 6x" in data.tags["mlflow.note.content"]
    files = {file.path for file in client.list_artifacts(run_id, "results")}
    assert files == {f"results/{name}.json" for name in ALL}
    assert "benchmarks" in {file.path for file in client.list_artifacts(run_id)}
    lines = capsys.readouterr().out.splitlines()[:2]
    named = f"run {recorded.info.run_name} of the experiment `benchmarks`: {uri} (`make ui`)"
    assert lines == ["page: docs/benchmarks.md; 3 pictures: docs/benchmarks", named]


def test_a_server_that_is_away_costs_one_line_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", NOBODY.replace("//", "//me:secret@"))
    results = keep(tmp_path / "benchmarks" / "results", {"allo": [STEP]})
    run.publish(tmp_path, results, ["machine"])
    assert not (tmp_path / ".state").exists()
    run.publish(tmp_path, results)
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert line.startswith("warning: tracking: 8 metrics and ")
    assert line.endswith("they are kept: `make sync` sends them")
    assert "secret" not in line + printed.out
    assert list((tmp_path / ".state" / "outbox").glob("benchmarks-*.sqlite"))


def test_a_page_that_cannot_be_written_is_one_line(tmp_path: Path, capsys):
    results = keep(tmp_path / "benchmarks" / "results", {"allo": [STEP]})
    (tmp_path / "docs").write_text("a file where the folder belongs")
    run.publish(tmp_path, results)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: publish: ")
    assert line.endswith(f"; the results are kept in {results}")


def test_metrics_are_ratios_of_main_rows_the_gain_of_parts_and_counts(tmp_path: Path):
    part = PART._replace(seed_way=measured(0.1))
    assert run.metrics(rows_of(tmp_path, [STEP, part])) == {
        "allo/step": 6,
        "allo.over_proposal/step": 3,
        "allo.proposal/step": 2,
        "allo.of_limit/step": 0.5,
        "allo.over_without/step": 4,
        "allo/step_in_a_scan": 4,
        "goals/met": 0,
        "goals/missed": 1,
        "claims/reproduced": 1,
        "claims/refuted": 1,
    }


def test_names_that_become_alike_and_devices_that_differ_stay_apart(tmp_path: Path):
    rows = [STEP._replace(name=name) for name in ("a (b)", "a [b]", "a: b " + "c" * 300)]
    names = [name for name in run.metrics(rows_of(tmp_path, rows)) if name.startswith("allo/")]
    assert (names[:2], len(names)) == (["allo/a_b", "allo/a_b_"], 3)
    assert max(map(len, names)) < 250
    other = read(keep(tmp_path / "gpu", {"iqn": [STEP]}, device="cuda"))
    header = run.header_of(tmp_path, "key", read(tmp_path) | other)
    assert header.tags["quatrain.device"] == header.params["device"] == "cpu (allo), cuda (iqn)"
