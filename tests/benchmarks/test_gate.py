"""Ratios are held against what they were, with wide tolerance; seconds never are."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gate
from benchmarks.table import Row
from tests.benchmarks.small_results import ALL, PART, PEERS, SAMPLE, STEP, keep, measured
from tests.conftest import ROOT

FOLDER = Path(".bench", "gate")


@pytest.fixture(autouse=True)
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where `gate.main` runs; allo was measured, and its ratios are the baselines."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "benchmarks").mkdir()
    again([STEP, PART, SAMPLE])
    assert gate.main(["--results", str(FOLDER), "--promote"]) == 0
    return tmp_path


def again(rows: list[Row], **machine: Any) -> None:
    """allo measured anew."""
    keep(FOLDER, {"allo": rows}, **machine)


def stored() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(gate.BASELINES.read_text())
    return content


def slower(row: Row, times: float) -> Row:
    """Ours takes longer; the others do not."""
    return row._replace(ours=row.ours._replace(values=row.ours.values * times))


def scored(*arguments: str) -> int:
    return gate.main(["--results", str(FOLDER), *arguments])


def test_promoting_stores_main_rows_where_they_come_from_and_no_seconds():
    entry = stored()["benchmarks"]["allo"]
    assert entry["rows"] == {
        "step": {"before/ours": {"ratio": 6.0}},
        "sample, T=100": {"before/ours": {"ratio": 9.0}, "seed's/ours": {"ratio": 3.0}},
    }
    assert entry["machine"] == {
        "cpu": "some CPU",
        "device": "cpu",
        "backend": "cpu",
        "threads": "2",
    }
    assert entry["commit"] == "none"
    assert (stored()["schema"], stored()["share"]) == (1, 0.6)


@pytest.mark.parametrize(
    ("times", "status", "code"), [(0.5, "better", 0), (1.6, "ok", 0), (1.7, "broken", 4)]
)
def test_a_ratio_may_fall_to_a_share_of_its_baseline(times: float, status: str, code: int, capsys):
    again([slower(STEP, times), SAMPLE])
    assert scored() == code
    lines = capsys.readouterr()
    assert f"| allo | step | before/ours | {6 / times:.3g}x | 6x | 3.6x | {status} |" in lines.out
    assert lines.err.count("[exit 4]") == (code == 4)


def test_a_broken_row_is_one_line_with_ratio_baseline_and_what_to_do(capsys):
    again([slower(STEP, 2), SAMPLE])
    assert scored() == 4
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line]
    assert line.startswith(
        "gate: allo: step: before/ours is 3x, below 3.6x (baseline 6x): measure again"
    )
    assert "`make bench BENCH=allo`" in line
    assert line.endswith("`make bench-gate ARGS=--promote BENCH=allo` [exit 4]")


def test_the_way_of_the_proposal_is_judged_where_it_is_the_goal(capsys):
    again([STEP, SAMPLE._replace(seed_way=measured(1.5e-6))])
    assert scored() == 4
    assert "allo: sample, T=100: seed's/ours is 1.5x, below 1.8x" in capsys.readouterr().err


def test_a_machine_twice_as_slow_breaks_nothing(capsys):
    both = [
        slower(row, 2)._replace(before=row.before._replace(values=row.before.values * 2))
        for row in (STEP,)
    ]
    again([*both, SAMPLE])
    assert scored() == 0
    assert "gate: passed" in capsys.readouterr().out


def test_a_row_may_have_a_share_of_its_own_which_promoting_keeps():
    content = stored()
    content["benchmarks"]["allo"]["rows"]["step"]["before/ours"]["share"] = 0.2
    gate.BASELINES.write_text(json.dumps(content))
    again([slower(STEP, 4), SAMPLE])
    assert scored() == 0
    assert scored("--promote") == 0
    assert stored()["benchmarks"]["allo"]["rows"]["step"] == {
        "before/ours": {"ratio": 1.5, "share": 0.2}
    }


def test_rows_that_are_new_or_gone_and_another_machine_are_said_and_break_nothing(capsys):
    again([STEP, STEP._replace(name="new work")], cpu="another CPU", backend="cuda")
    assert scored() == 0
    lines = capsys.readouterr().out
    assert "allo: new, without a baseline yet: new work\n" in lines
    assert "allo: gone, in the baseline, but not measured: sample, T=100\n" in lines
    assert (
        "allo: cpu is another CPU, the baseline's some CPU: ratios may differ for that alone"
        in lines
    )
    assert "allo: backend is cuda, the baseline's cpu" in lines
    assert "device is" not in lines


def test_of_many_new_rows_three_are_named(capsys):
    again([STEP, SAMPLE, *(STEP._replace(name=f"new {number}") for number in range(5))])
    assert scored() == 0
    assert "yet: new 0; new 1; new 2; and 2 more\n" in capsys.readouterr().out


def test_where_nothing_has_a_baseline_nothing_passes(capsys):
    keep(FOLDER, {"peers": PEERS})
    assert scored("peers") == 4
    assert "gate: no ratio has a baseline, so nothing is judged" in capsys.readouterr().err


def test_promoting_some_benchmarks_leaves_the_others():
    keep(FOLDER, ALL)
    assert scored("--promote", "peers") == 0
    again([slower(STEP, 2)])
    assert scored("--promote", "peers", "machine") == 0
    assert set(stored()["benchmarks"]) == {"allo", "peers", "machine"}
    assert stored()["benchmarks"]["allo"]["rows"]["step"]["before/ours"]["ratio"] == 6


def test_only_named_benchmarks_are_judged():
    again([slower(STEP, 9)])
    keep(FOLDER, {"peers": PEERS})
    assert scored("--promote", "peers") == 0
    assert scored("peers") == 0
    assert scored() == 4


def test_what_was_not_measured_ends_with_3(capsys):
    assert scored("iqn") == 3
    lines = capsys.readouterr().err
    assert (
        lines
        == "gate: .bench/gate/iqn.json: is missing; `make bench BENCH=iqn` measures it [exit 3]\n"
    )
    assert gate.main(["--results", "nowhere"]) == 3


def test_an_unknown_name_ends_with_2(capsys):
    with pytest.raises(SystemExit) as ended:
        scored("alo")
    assert ended.value.code == 2
    assert "alo: there is no such benchmark" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({"schema": 2, "share": 0.6, "benchmarks": {}}, "schema: Input should be 1"),
        (
            {"schema": 1, "share": 6, "benchmarks": {}},
            "share: Input should be less than or equal to 1",
        ),
        (
            {"schema": 1, "share": 0.6, "benchmarks": {}, "more": 1},
            "more: Extra inputs are not permitted",
        ),
    ],
)
def test_a_file_of_baselines_in_another_form_is_refused(content: dict[str, Any], why: str, capsys):
    gate.BASELINES.write_text(json.dumps(content))
    assert scored() == 3
    assert (
        f"gate: benchmarks/baselines.json: {why}; `git checkout benchmarks/baselines.json`"
        in capsys.readouterr().err
    )


def test_the_committed_baselines_can_be_read():
    gate.Baselines.model_validate(json.loads((ROOT / gate.BASELINES).read_text()))
