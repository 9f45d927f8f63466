"""Rows of the machine's table, and the profile of a training."""

import json
import shutil
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from benchmarks import profile
from benchmarks.harness import NotTheSame
from benchmarks.machine import measure
from benchmarks.profile import Spent, operations, self_times
from pipeline.storage.params_file import overlaid, parse
from tests.conftest import ROOT, SMALL


@pytest.mark.full
def test_a_start_is_measured_with_an_empty_and_with_a_full_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(measure.NEARER, "allo", SMALL["allo"])
    row = measure.start_row(ROOT, "allo")
    assert row.before is not None
    assert row.before.median > 0
    assert row.ours.median > 0


def test_a_row_stops_where_a_process_ends_with_another_code(tmp_path: Path) -> None:
    assert measure.check_row(ROOT, 1).goal_reached is not None
    with pytest.raises(NotTheSame, match="exit 3 in place of 2"):
        measure.seconds_of(ROOT, str(tmp_path), "-c", "raise SystemExit(3)", code=2)


# Profile.


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose models are small."""
    shutil.copytree(ROOT / "inputs", tmp_path / "inputs")
    with (tmp_path / "params.yaml").open("w") as file:
        YAML().dump(overlaid(parse(ROOT / "params.yaml"), {"device": "cpu", **SMALL}), file)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(profile, "prepare_process", lambda _: None)
    monkeypatch.setattr(profile, "WARM", 1)
    return tmp_path


@pytest.mark.full
@pytest.mark.parametrize(
    ("model", "operation"), [("allo", "fusion"), ("active_dynamics", "aten::")]
)
def test_a_profile_names_the_operations_and_keeps_the_trace(
    project: Path, model: str, operation: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert profile.main([model, "--seconds", "0"]) == 0
    out = capsys.readouterr().out
    assert operation in out
    folder = project / ".bench" / "profile" / model
    (file,) = [path for path in folder.rglob("*trace.json*") if path.is_file()]
    assert "1 yields in " in out
    assert str(file.relative_to(project)) in out
    assert operations(file)


def test_time_within_another_operation_is_counted_once() -> None:
    names = ("name", "ts", "dur", "pid", "tid")
    rows = [
        ("inner", 2e3, 3e3, 1, 0),
        ("outer", 0.0, 10e3, 1, 0),
        ("inner", 6e3, 1e3, 1, 0),
        ("other", 0.0, 7e3, 1, 2),
    ]
    spent = self_times([dict(zip(names, row, strict=True)) for row in rows])
    assert spent == [Spent("other", 1, 7.0), Spent("outer", 1, 6.0), Spent("inner", 2, 4.0)]


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
    message = "profile: alo: there is no such model; there are allo, "
    assert capsys.readouterr().err.startswith(message)
    Path("params.yaml").write_text("seed: -1\n")
    assert profile.main(["allo"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("profile: params.yaml: ")
