"""Rows of a benchmark: their ratios and goals, their file, and what the report shows of them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import claims, speed
from benchmarks.speed import Goal, Machine, Measured, Ratio, Results, Row, Without
from pipeline.reporting import sections
from pipeline.reporting.result_files import as_json
from quatrain.errors import DataError


def measured(*values: float) -> Measured:
    return Measured(np.array(values), 0.25)


PATH = Path("benchmarks", "results", "allo.json")
STEP = Row("step", "ms/step", measured(1, 2, 4), measured(6, 10, 24000), goal=Goal(5, "before"))
SAMPLE = Row("sample", "us/call", measured(2), measured(6), measured(3), goal=Goal(2, "seed's way"))
LIMIT = Row("matmuls", "ms", measured(4), limit=measured(1), goal=Goal(0.3, "limit"))
ROWS = [
    STEP,
    STEP._replace(name="in a scan", part_of="step"),
    SAMPLE,
    Row("refusal", "s", measured(0.25), goal=Goal(2, "value")),
    Row("without a goal", "s", measured(1), measured(0.5)),
    Row("without a comparison", "s", measured(1)),
    LIMIT,
    Row("a library", "ms", measured(1), measured(0.1), against="some library"),
    Row("rollout", "MB", measured(2e6), measured(2e8), goal=Goal(1e6, "value")),
    Row("alone", "s", measured(1), goal=Goal(2, "before")),
]
RESULTS = Results(Machine("cpu", "cpu", "some CPU", "2", {"jax": "0.10"}), 3, ROWS, ["a note"])


def stored(root: Path, **changed: Any) -> Results:
    speed.write_results(root / PATH, RESULTS._replace(**changed))
    return claims.read(root / PATH.parent)["allo"]


def test_ratios_are_medians_of_rounds_and_goals_are_reached_by_them():
    assert STEP.ratios == {"before/ours": Ratio(6, 5, 6000)}
    row = SAMPLE._replace(limit=measured(1), without=Without("a table", measured(8)))
    medians = {"before/ours": 3, "seed's/ours": 1.5, "before/seed's": 2}
    medians |= {"limit/ours": 0.5, "without/ours": 4}
    assert {name: ratio.median for name, ratio in row.ratios.items()} == medians
    for against, number in {"before": 3, "seed's way": 1.5, "limit": 0.5}.items():
        assert row._replace(goal=Goal(number, against)).goal_reached is True
        assert row._replace(goal=Goal(number * 1.01, against)).goal_reached is False


def test_main_rows_are_told_with_their_goals(tmp_path: Path):
    results = stored(tmp_path)
    rows = speed.main_rows(results)
    assert [(r.name, speed.asked(r), speed.reached(r), r.goal_share) for r in rows] == [
        ("step", "at least 5x", "6x", 1.2),
        ("sample", "at least 2x a proposed variant", "1.5x", 0.75),
        ("refusal", "at most 2 s", "0.25 s", 8),
        ("without a goal", "-", "not measured", None),
        ("matmuls", "at least 30 % of what the machine can do", "25 %", 0.25 / 0.3),
        ("a library", "-", "not measured", None),
        ("rollout", "at most 1 MB", "2 MB", 0.5),
        ("alone", "at least 2x", "not measured", 0),
    ]
    assert speed.summary(results._replace(rows=[LIMIT])).startswith("no ratio to that of plain")
    assert sections.read_speed(tmp_path, "allo") == (
        "Speed: 0.5x to 6x that of plain references, 2 of 6 goals reached, "
        "by `make bench BENCH=allo` on some CPU; docs/benchmarks.md has all."
    )


def test_a_file_has_a_line_per_row_few_digits_and_no_defaults(tmp_path: Path):
    odd = SAMPLE._replace(ours=measured(1 / 3), claims=("a-1",))
    results = stored(tmp_path, rows=[odd, LIMIT])
    assert [as_json(row) for row in results.rows] == [*map(as_json, (odd, LIMIT))]
    lines = (tmp_path / PATH).read_text().splitlines()
    begin = '  {"name": "sample", "unit": "us/call", "ours": {"values": [0.33333], "compile_seconds'
    assert lines[lines.index(' "rows": [') + 1].startswith(begin)
    assert lines[-7:][:2] == [f"  {json.dumps(as_json(LIMIT))}", " ],"]
    assert "part_of" not in lines[-7]


def test_results_of_another_form_are_refused_in_one_line(tmp_path: Path):
    row = as_json(STEP) | {"unit": "weeks"}
    content = as_json(RESULTS) | {"rows": [row]}
    (tmp_path / PATH).parent.mkdir(parents=True)
    (tmp_path / PATH).write_text(json.dumps(content))
    with pytest.raises(DataError) as caught:
        claims.read(tmp_path / PATH.parent)
    why = "rows.0.unit: Input should be 'ms/step', 'us/call'"
    assert f"benchmarks/results/allo.json: {why}" in str(caught.value)
    assert str(caught.value).endswith("; `make bench BENCH=allo` writes it anew")
    assert "\n" not in str(caught.value)
    remedy = "benchmarks/results/allo.json: has no summary; `make bench BENCH=allo`"
    with pytest.raises(DataError, match=remedy):
        sections.read_speed(tmp_path, "allo")
