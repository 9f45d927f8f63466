"""The comparison of fields: a result is kept field by field, and the table says what was found."""

import json
from typing import Any

import numpy as np
import pytest

from benchmarks.active_dynamics import fields
from tests.conftest import ROOT

SCORES = {
    "affine_field": 0.43,
    "projection_floor": 0.0035,
    "coverage_90.active": 0.84,
    "transition_ratio.random": 7.25,
    "transition_ratio.random_low": 5.0,
    "transition_ratio.random_high": 9.5,
    "transition_ratio.prbs": 0.5,
}


def result(**scores: float) -> dict[str, Any]:
    """Errors that halve whenever transitions double; those of other arms are twice as large."""
    steps = [50, 100, 200, 400]
    active = [[100 / step + replicate / 1000 for replicate in range(7)] for step in steps]
    twice = (2 * np.array(active)).tolist()
    return {
        "scores": SCORES | scores,
        "transitions": steps,
        "field_nrmse": {"active": active, "random": twice, "prbs": twice},
        "seconds": 12.3,
    }


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Returns a folder with the committed params, for results."""
    for name in ("params.yaml", "presets"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_errors_between_checkpoints_lie_on_a_power_law():
    errors = np.array([[8.0, 4.0], [2.0, 1.0]])
    np.testing.assert_allclose(fields.at([100, 400], errors, 200), [4, 2])
    np.testing.assert_allclose(fields.at([100, 400], errors, 400), [2, 1])
    assert not len(fields.at([100, 400], errors, 401))
    assert not len(fields.at([100, 400], errors, 99))


def test_few_replicates_have_no_interval():
    assert fields.spread(np.array([0.1, 0.3, 0.2])) == "0.200"
    assert fields.spread(np.arange(10) / 10) == "0.450 [0.100 0.800]"
    assert fields.spread(np.array([])) == "-"


def test_table_says_errors_floors_and_ratios():
    head, _, line = fields.table({"duffing": result()}).splitlines()
    assert head.split("  ")[0] == "field"
    for cell in (
        "duffing",
        "0.430",
        "0.004",
        "1.003",
        "0.503",
        "0.253",
        "0.84",
        "7.2 [5.0 9.5]",
        "0.5",
        "12",
    ):
        assert cell in line
    assert line.count("-") == 1  # 800 transitions are not met


def test_verdict_counts_fields():
    results = {
        "duffing": result(),
        "snowman": result(**{"transition_ratio.random": 4.9, "transition_ratio.prbs": 1.0}),
    }
    said = fields.verdicts(results)
    assert said[0] == "transition_ratio.random is at least 5 on 1 of 2 fields (goal: 5)"
    assert said[1] == "transition_ratio.prbs is at least 1 on 1 of 2 fields"


def test_what_is_done_is_not_done_again(project, monkeypatch, capsys):
    done = []

    def run_field(params, field):
        done.append((field, params.active_dynamics.train.transitions))
        if field == "snowman" and len(done) == 2:
            raise KeyboardInterrupt
        return result()

    monkeypatch.setattr(fields, "run_field", run_field)
    arguments = ["--fields", "duffing", "snowman", "--replicates", "2", "--transitions"]
    assert fields.main([*arguments, "40"]) == 130
    assert fields.main([*arguments, "40"]) == 0
    assert done == [("duffing", 40), ("snowman", 40), ("snowman", 40)]
    assert fields.main([*arguments, "41"]) == 0
    assert done[3:] == [("duffing", 41), ("snowman", 41)]
    assert set(json.loads((project / fields.RESULTS).read_text())["fields"]) == {
        "duffing",
        "snowman",
    }
    assert capsys.readouterr().out.count("transition_ratio.random is at least") == 2


def test_no_replicates_are_refused(project, capsys):
    assert fields.main(["--replicates", "0"]) == 2
    assert "--replicates 0: give at least 1" in capsys.readouterr().err
    assert not (project / fields.RESULTS).exists()


def test_a_field_is_learned_by_all_arms(project, capsys):
    assert fields.main(["--fields", "van_der_pol", "--replicates", "2", "--transitions", "40"]) == 0
    stored = json.loads((project / fields.RESULTS).read_text())["fields"]["van_der_pol"]
    assert set(stored["field_nrmse"]) == {"active", "random", "prbs"}
    assert np.shape(stored["field_nrmse"]["active"]) == (len(stored["transitions"]), 2)
    assert stored["transitions"][-1] == 40
    assert stored["scores"]["projection_floor"] == pytest.approx(0.0008, abs=2e-4)
    assert "van_der_pol" in capsys.readouterr().out
