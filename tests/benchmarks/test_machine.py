"""Rows of the machine's table, and the profile of a training."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from ruamel.yaml import YAML

from benchmarks import profile
from benchmarks.machine import rates, startup
from benchmarks.machine.rates import rate_rows, small_rows
from benchmarks.machine.startup import check_row, import_rows, start_row
from benchmarks.profile import Spent, operations, self_times
from benchmarks.table import NotTheSame, render
from pipeline.storage.params_file import overlaid, parse
from tests.conftest import ROOT, SMALL


def test_rates_are_of_what_a_turn_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "COPIED", 2**20)
    monkeypatch.setattr(rates, "LINES", 64)
    monkeypatch.setattr(rates, "SIDE", 32)
    rows, (note,) = rate_rows(2)
    assert [row.name for row in rows][-1] == "sgemm 32, XLA"
    copied = next(row for row in rows if row.name.startswith("copy"))
    assert f"{2 * 2**20 / 1e9 / copied.ours.median:.3g} GB/s" in note
    assert note.count("GFLOP/s") == 3
    assert "sgemm 32, XLA" in render(rows)


def test_small_calls_are_counted_singly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "CALLS", 3)
    assert all(0 < row.ours.median < 0.1 for row in small_rows(2))


def test_an_import_is_less_an_empty_process(monkeypatch: pytest.MonkeyPatch) -> None:
    used = {"pass": 0.25, "import numpy": 1.0, "import jax": 3.0}
    monkeypatch.setattr(startup, "IMPORTS", {"numpy": "numpy", "jax": "jax"})
    monkeypatch.setattr(startup, "seconds_of", lambda _, code: used[code])
    numpy_row, jax_row = import_rows(2)
    assert (numpy_row.name, jax_row.name) == ("import numpy", "import jax")
    np.testing.assert_array_equal(numpy_row.ours.values, [0.75, 0.75])
    np.testing.assert_array_equal(jax_row.ours.values, [2.75, 2.75])


def test_a_wrong_params_yaml_is_refused_in_the_row() -> None:
    row = check_row(ROOT, 1)
    assert row.goal is not None
    assert row.ours.median > 0


def test_a_row_stops_where_a_process_does_not_end_well() -> None:
    with pytest.raises(NotTheSame, match="exit 3"):
        startup.seconds_of("-c", "raise SystemExit(3)")


def test_a_start_is_measured_with_an_empty_and_with_a_full_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(startup.SHORT, "allo", SMALL["allo"])
    row = start_row(ROOT, "allo", 1)
    assert row.before is not None
    assert len(row.before.values) == len(row.ours.values) == 1
    assert not list(tmp_path.iterdir())


# Profile.


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose models are small."""
    shutil.copytree(ROOT / "inputs", tmp_path / "inputs")
    with (tmp_path / "params.yaml").open("w") as file:
        YAML().dump(overlaid(parse(ROOT / "params.yaml"), {"device": "cpu", **SMALL}), file)
    monkeypatch.chdir(tmp_path)
    for variable in (
        "NPROC",
        "OMP_NUM_THREADS",
        "JAX_PLATFORMS",
        "XLA_FLAGS",
        "CUBLAS_WORKSPACE_CONFIG",
    ):
        monkeypatch.setenv(variable, "")
    monkeypatch.setattr(profile, "prepare_process", lambda _: None)
    monkeypatch.setattr(profile, "WARM", 1)
    return tmp_path


@pytest.mark.parametrize(
    ("model", "operation"), [("allo", "fusion"), ("active_dynamics", "aten::")]
)
def test_a_profile_names_the_operations_and_keeps_the_trace(
    project: Path, model: str, operation: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert profile.main([model, "--seconds", "0"]) == 0
    out = capsys.readouterr().out
    assert operation in out
    (file,) = [
        path
        for path in (project / ".bench" / "profile" / model).rglob("*trace.json*")
        if path.is_file()
    ]
    assert "1 yields in " in out
    assert str(file.relative_to(project)) in out
    assert operations(file)


def test_time_within_another_operation_is_counted_once() -> None:
    def event(name: str, begin: float, duration: float, thread: int = 0) -> dict[str, object]:
        return {"name": name, "ts": begin, "dur": duration, "pid": 1, "tid": thread}

    events = [
        event("inner", 2e3, 3e3),
        event("outer", 0, 10e3),
        event("inner", 6e3, 1e3),
        event("other", 0, 7e3, 2),
    ]
    assert self_times(events) == [
        Spent("other", 1, 7.0),
        Spent("outer", 1, 6.0),
        Spent("inner", 2, 4.0),
    ]


def test_waits_and_ends_are_no_operations(tmp_path: Path) -> None:
    def event(name: str, **further: object) -> dict[str, object]:
        return {"name": name, "ph": "X", "ts": 0, "dur": 1, "pid": 1, "tid": 1, **further}

    events = [
        event("dot.1", args={"hlo_op": "dot.1"}),
        event("end: dot.1", args={"hlo_op": "dot.1"}),
        event("aten::mm", cat="cpu_op"),
        event("Iteration", cat="user_annotation"),
        event("PjitFunction(f)"),
    ]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    assert [item["name"] for item in operations(tmp_path / "trace.json")] == ["dot.1", "aten::mm"]


@pytest.mark.usefixtures("project")
def test_an_unknown_model_or_a_wrong_params_yaml_is_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert profile.main(["alo"]) == 2
    assert capsys.readouterr().err.startswith(
        "profile: alo: there is no such model; there are allo, "
    )
    Path("params.yaml").write_text("seed: -1\n")
    assert profile.main(["allo"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("profile: params.yaml: ")
