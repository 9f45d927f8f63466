"""`make bench`: what it refuses, which benchmarks it starts, what it keeps."""

import json
from pathlib import Path

import pytest

from benchmarks import publish, run
from benchmarks.result_files import COMMANDS
from benchmarks.table import Report
from quatrain.registry import MODELS
from tests.benchmarks.small_results import PART, STEP


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["allo", "--rounds", "4"], "--rounds 4: medians of fewer than 5 rounds say nothing"),
        (["allo", "--rounds", "many"], "invalid int value: 'many'"),
        (["alo"], "alo: there is no such benchmark; there are allo, iqn"),
        (["allo", "b", "a"], "a, b: there is no such benchmark"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_runs(
    arguments: list[str],
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setattr(run, "measured", lambda *_: pytest.fail("a benchmark ran"))
    with pytest.raises(SystemExit) as ended:
        run.main(arguments)
    assert ended.value.code == 2
    assert why in capsys.readouterr().err


def test_the_json_has_machine_rows_and_notes():
    text = run.as_text(
        Report([STEP, PART], ["a note"], "cpu"), {"cpu": "some CPU", "backend": "cpu"}, 5
    )
    kept = json.loads(text)
    assert [row["row"] for row in kept["rows"]] == ["step", "  in a scan"]
    assert (kept["cpu"], kept["rounds"], kept["notes"]) == ("some CPU", 5, ["a note"])


def test_all_benchmarks_are_measured_in_turn_and_one_that_fails_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    codes, started = {"iqn": 3, "machine": 1}, []

    def measured(name: str, rounds: int, results: Path) -> int:
        started.append((name, rounds, results))
        return codes.get(name, 0)

    monkeypatch.setattr(run, "measured", measured)
    monkeypatch.setattr(publish, "publish", lambda *_, **__: None)
    assert run.main([]) == 3
    assert [name for name, *_ in started] == [*MODELS, "machine"]
    assert {tuple(rest) for _, *rest in started} == {(5, Path("benchmarks/results"))}


def test_what_is_measured_is_known_to_what_reads_it():
    assert set(run.BENCHMARKS) <= set(COMMANDS)


def test_params_that_cannot_be_read_end_it_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "params.yaml").write_text("device: toaster\n")
    monkeypatch.chdir(tmp_path)
    assert run.main(["allo", "--here", "--results", str(tmp_path)]) == 2
    assert "[exit 2]" in capsys.readouterr().err
    assert not (tmp_path / "allo.json").exists()
