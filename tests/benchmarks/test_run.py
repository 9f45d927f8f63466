"""`make bench`: what it refuses and starts, and what it stores."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks import run


def test_wrong_arguments_are_refused_before_anything_runs(monkeypatch, capsys):
    monkeypatch.setattr(run, "measured", lambda *_: pytest.fail("a benchmark ran"))
    for arguments, message in {
        ("allo", "--rounds", "4"): "--rounds 4: fewer than 5 have no quartiles",
        ("b", "a"): "a, b: there is no such benchmark; there are allo, iqn",
    }.items():
        with pytest.raises(SystemExit, match="2"):
            run.main([*arguments])
        assert message in capsys.readouterr().err


def test_all_models_are_measured_in_turn_and_one_that_fails_stops_no_other(monkeypatch):
    started, shown = [], []

    def measured(*arguments: Any) -> int:
        started.append(arguments)
        return 3 if arguments[0] == "iqn" else 0

    monkeypatch.setattr(run, "show", lambda _, *arguments: shown.append(arguments) or 0)
    monkeypatch.setattr(run, "measured", measured)
    assert run.main([]) == 3
    assert started == [(name, run.ROUNDS, run.RESULTS) for name in run.MODELS]
    assert shown == [(run.RESULTS, ["allo", "actor_critic", "active_dynamics"])]
    assert run.main(["iqn"]) == 3
    assert len(shown) == 1
    assert run.main(["allo", "--compare"]) == run.main(["--page"]) == 0
    assert shown[1:] == [(run.COMPARED, ["allo"]), (run.RESULTS, [])]


def test_a_benchmark_that_a_signal_ends_has_failed(tmp_path: Path, monkeypatch):
    killed = subprocess.CompletedProcess([], -9)
    monkeypatch.setattr(run.subprocess, "run", lambda *_, **__: killed)
    assert run.measured("allo", 5, tmp_path) == 1


def test_params_that_cannot_be_read_end_it_with_2(tmp_path: Path, monkeypatch, capsys):
    (tmp_path / "params.yaml").write_text("device: toaster\n")
    monkeypatch.chdir(tmp_path)
    assert run.main(["allo", "--here", str(tmp_path)]) == 2
    assert "[exit 2]" in capsys.readouterr().err
