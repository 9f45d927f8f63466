"""A profile names the operations of a training that take longest, and keeps the trace."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from pipeline.cli import main
from pipeline.commands import profile
from pipeline.commands.profile import Spent, operations, self_times
from quatrain.validation import overlaid
from tests.conftest import ROOT, SMALL, committed


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose models are small."""
    shutil.copytree(ROOT / "inputs", tmp_path / "inputs")
    with (tmp_path / "params.yaml").open("w") as file:
        YAML().dump(overlaid(committed(), {"device": "cpu", **SMALL}), file)
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
    assert main(["profile", model, "--seconds", "0"]) == 0
    out = capsys.readouterr().out
    folder = project / ".bench" / "profile" / model
    (file,) = [path for path in folder.rglob("*trace.json*") if path.is_file()]
    for text in (operation, "1 yields in ", str(file.relative_to(project))):
        assert text in out


def test_operations_are_kept_and_time_within_another_is_counted_once(tmp_path: Path) -> None:
    def event(name: str, begin: int, duration: int, tid: int = 1, **more: Any) -> dict[str, Any]:
        times = {"ts": 1000 * begin, "dur": 1000 * duration, "pid": 1, "tid": tid}
        return {"name": name, "ph": "X", **times, **more}

    operation = {"args": {"hlo_op": "dot.1"}}
    events = [
        event("inner", 2, 3, **operation),
        event("outer", 0, 10, cat="cpu_op"),
        event("inner", 6, 1, **operation),
        event("other", 0, 7, 2, **operation),
        event("end: inner", 0, 1, 3, **operation),
        event("Iteration", 0, 1, 3, cat="user_annotation"),
        event("PjitFunction(f)", 0, 1, 3),
    ]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    spent = self_times(operations(tmp_path / "trace.json"))
    assert spent == [Spent("other", 1, 7.0), Spent("outer", 1, 6.0), Spent("inner", 2, 4.0)]
