"""Tests the report of the results of a benchmark."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.harness import Measured
from benchmarks.table import Goal, Row, as_json
from pipeline.reporting import sections
from pipeline.reporting.speed import (
    Results,
    goal_of,
    main_rows,
    path_of,
    ratio_of,
    reach,
    read_results,
)
from pipeline.runtime.errors import ArtifactError
from quatrain.registry import MODELS
from tests.conftest import ROOT

MACHINE = {"cpu": "some CPU", "backend": "cpu", "threads": "2", "rounds": 3}


def measured(*values: float) -> Measured:
    return Measured(np.array(values))


ROWS = [
    Row("step", "ms/step", measured(1, 2, 4), measured(6, 10, 24000), goal=Goal(5, "before")),
    Row("  a part of it", "ms/step", measured(1, 1, 1), measured(90, 90, 90)),
    Row(
        "sample",
        "us/call",
        measured(2, 2, 2),
        measured(6, 6, 6),
        measured(3, 3, 3),
        goal=Goal(2, "seed's way"),
    ),
    Row("refusal", "s", measured(0.25, 0.25, 0.25), goal=Goal(2, "value")),
    Row("without a goal", "s", measured(1, 1, 1), measured(0.5, 0.5, 0.5)),
    Row("without a comparison", "s", measured(1, 1, 1)),
    Row("matmuls", "ms", measured(4, 4, 4), limit=measured(1, 1, 1), goal=Goal(0.3, "limit")),
    Row("a library", "ms", measured(1, 1, 1), measured(0.1, 0.1, 0.1), against="some library"),
    Row("rollout", "MB", measured(2e6, 2e6), measured(2e8, 2e8), goal=Goal(1e6, "value")),
]


def kept(root: Path, **changed: Any) -> None:
    """Writes the file that `make bench` writes."""
    path = root / path_of("allo")
    path.parent.mkdir(parents=True)
    path.write_text(
        json.dumps({**MACHINE, "rows": [as_json(row) for row in ROWS], "notes": [], **changed})
    )


def read(root: Path) -> Results:
    results = read_results(root, "allo")
    assert results is not None
    return results


def test_main_rows_are_shown_with_their_goals(tmp_path: Path):
    kept(tmp_path)
    rows = main_rows(read(tmp_path))
    assert [(row.row, ratio_of(row), goal_of(row), row.is_reached) for row in rows] == [
        ("step", "6x (5x to 6000x)", "at least 5x", True),
        ("sample", "3x (3x to 3x)", "at least 2x a proposed variant: 1.5x", False),
        ("refusal", "-", "at most 2 s: takes 0.25 s", True),
        ("without a goal", "0.5x (0.5x to 0.5x)", "-", None),
        ("matmuls", "-", "at least 30 % of what the machine can do: 25 %", False),
        ("a library", "0.1x (0.1x to 0.1x)", "-", None),
        ("rollout", "100x (100x to 100x) less memory", "at most 1 MB: takes 2 MB", False),
    ]
    assert reach(read(tmp_path)) == "0.5x to 6x"


def test_the_report_shows_ratios_goals_and_the_machine(tmp_path: Path):
    kept(tmp_path)
    text = sections.speed_section("allo", read(tmp_path))
    assert (
        "<summary>Speed: 0.5x to 6x that of plain references; 2 of 5 goals reached</summary>"
        in text
    )
    assert (
        "Medians (least to greatest) of 3 rounds by `make bench BENCH=allo` on some CPU, cpu, "
        "2 threads; "
        "all rows in `benchmarks/results/allo.json`."
    ) in text
    assert "| step | 6x (5x to 6000x) | at least 5x, reached |\n" in text
    assert "at least 2x a proposed variant: 1.5x, **missed** |\n" in text
    assert "| without a goal | 0.5x (0.5x to 0.5x) | - |" in text


def test_goals_without_a_reference_give_no_ratio(tmp_path: Path):
    kept(tmp_path, rows=[as_json(ROWS[3])])
    assert reach(read(tmp_path)) == "no ratio to"


def test_missing_results_are_none(tmp_path: Path):
    assert read_results(tmp_path, "iqn") is None


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"rows": [{"row": "step"}]}, "rows.0.against: Field required"),
        ({"rounds": 0}, "rounds: Input should be greater than 0"),
        (
            {"rows": [as_json(ROWS[0]) | {"goal": "fast"}]},
            "rows.0.goal: String should match pattern",
        ),
        ({"threads": None}, "threads: Input should be a valid string"),
    ],
)
def test_results_of_another_form_are_refused_in_one_line(
    tmp_path: Path, changed: dict[str, Any], why: str
):
    kept(tmp_path, **changed)
    with pytest.raises(ArtifactError) as caught:
        read_results(tmp_path, "allo")
    assert str(caught.value).startswith(f"benchmarks/results/allo.json: {why}")
    assert str(caught.value).endswith("; `make bench BENCH=allo` writes it anew")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("model", [model for model in MODELS if (ROOT / path_of(model)).exists()])
def test_committed_results_can_be_read(model: str):
    rows = main_rows(read_results(ROOT, model) or pytest.fail("there are none"))
    assert len(rows) > 3
    assert any(row.is_reached is not None for row in rows)
