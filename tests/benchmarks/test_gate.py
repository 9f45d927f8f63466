"""Ratios are held against what they were, with wide tolerance; seconds never are."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import gate
from benchmarks.harness import Measured, Row
from tests.benchmarks.small_results import ALL, PART, PEERS, SAMPLE, STEP, keep, measured
from tests.conftest import ROOT

FOLDER = Path(".bench", "gate")
STEP_KEY, SAMPLE_KEY = "step: before/ours", "sample: before/ours"


def slower(row: Row, by: float) -> Row:
    """Ours takes longer; the others do not."""
    return row._replace(ours=Measured(np.multiply(row.ours.values, by)))


def scored(*arguments: str, allo: tuple[Row, ...] = (), **machine: str) -> int:
    if allo:
        keep(FOLDER, {"allo": list(allo)}, **machine)
    return gate.main(["--results", str(FOLDER), *arguments])


def stored() -> dict[str, Any]:
    return json.loads(gate.BASELINES.read_text())


@pytest.fixture(autouse=True)
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the folder where `gate.main` runs; the ratios of allo are the baselines."""
    monkeypatch.chdir(tmp_path)
    assert scored("--promote", allo=(STEP, PART, SAMPLE)) == 0


def test_promoting_stores_main_rows_where_they_come_from_and_no_seconds():
    entry = stored()["benchmarks"]["allo"]
    ratios = {STEP_KEY: 6, SAMPLE_KEY: 9, "sample: seed's/ours": 3}
    assert entry["ratios"] == ratios
    machine = {"cpu": "some CPU", "device": "cpu", "backend": "cpu", "threads": "2"}
    assert (entry["machine"], entry["commit"]) == (machine, "none")
    assert (stored()["schema"], stored()["share"]) == (3, 0.6)
    gate.FORM.validate_json((ROOT / gate.BASELINES).read_bytes())


@pytest.mark.parametrize(
    ("rows", "line", "code"),
    [
        ((slower(STEP, 0.5), SAMPLE), f"{STEP_KEY} | 12x | 6x | 3.6x | better", 0),
        ((slower(STEP, 1.6), SAMPLE), f"{STEP_KEY} | 3.75x | 6x | 3.6x | ok", 0),
        ((slower(STEP, 1.7), SAMPLE), f"{STEP_KEY} | 3.53x | 6x | 3.6x | broken", 4),
        (
            (STEP._replace(name="other"), STEP),
            "other: before/ours | 6x | - | - | new: no baseline yet",
            0,
        ),
        ((STEP,), f"{SAMPLE_KEY} | - | 9x | 5.4x | gone: not measured", 0),
    ],
)
def test_a_ratio_may_fall_to_a_share_of_its_baseline(rows, line: str, code: int, capsys):
    assert scored(allo=rows) == code
    assert f"| allo | {line} |" in capsys.readouterr().out


def test_a_broken_row_is_one_line_with_ratio_baseline_and_what_to_do(capsys):
    slow = SAMPLE._replace(seed_way=measured(1.5e-6))
    assert scored(allo=(slower(STEP, 2), slow), cpu="another CPU") == 4
    lines = capsys.readouterr()
    first, second = lines.err.splitlines()
    assert f"gate: allo: {STEP_KEY} is 3x, below 3.6x (baseline 6x): measure again" in first
    assert "(`make bench BENCH=allo`)" in first
    assert first.endswith("`make bench-gate ARGS=--promote BENCH=allo` [exit 4]")
    assert second.startswith("gate: allo: sample: seed's/ours is 1.5x, below 1.8x")
    machine = "allo: cpu is another CPU, the baseline's some CPU: ratios may differ for that alone"
    assert machine in lines.out.splitlines()


def test_promoting_or_judging_some_benchmarks_leaves_the_others(capsys):
    keep(FOLDER, ALL)
    assert scored("peers", allo=(slower(STEP, 9),)) == 4
    assert "gate: no ratio has a baseline, so nothing is judged" in capsys.readouterr().err
    assert (scored("--promote", "peers"), scored("peers"), scored()) == (0, 0, 4)
    assert stored()["benchmarks"]["allo"]["ratios"][STEP_KEY] == 6
    assert len(stored()["benchmarks"]["peers"]["ratios"]) == len(PEERS)


def test_what_was_not_measured_or_has_another_form_ends_with_3_an_unknown_name_with_2(capsys):
    assert scored("iqn") == scored("allo", "iqn") == gate.main(["--results", "nowhere"]) == 3
    error = "gate: .bench/gate/iqn.json: is missing; `make bench BENCH=iqn` measures it [exit 3]\n"
    assert capsys.readouterr().err.startswith(error)
    gate.BASELINES.write_text('{"schema": 2, "share": 0.6, "benchmarks": {}}')
    assert scored() == 3
    error = "benchmarks/baselines.json: schema: Input should be 3; `git checkout benchmarks/"
    assert capsys.readouterr().err.startswith(f"gate: {error}")
    with pytest.raises(SystemExit, match="2"):
        scored("alo")
    assert "alo: there is no such benchmark" in capsys.readouterr().err
