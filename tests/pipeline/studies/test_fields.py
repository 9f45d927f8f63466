"""The comparison of fields: a result is stored field by field, and the table shows the scores."""

import json
from typing import Any

import numpy as np
import pytest

from pipeline.cli import main
from pipeline.reporting.result_files import format_score
from pipeline.studies import fields
from tests.conftest import ROOT, shapes_unchecked

SCORES = {
    "affine_field": 0.43,
    "projection_floor": 0.0035,
    "teleport_reference": 0.078,
    "field_nrmse.active": 0.25,
    "field_nrmse.random": 0.5,
    "field_nrmse.prbs": 0.7,
    "coverage_90.active": 0.84,
    "transition_ratio.random": 7.25,
    "transition_ratio.random_low": 5.0,
    "transition_ratio.random_high": 9.5,
    "transition_ratio.prbs": 0.5,
}


def result(**scores: float | None) -> dict[str, Any]:
    """Returns errors that halve whenever transitions double."""
    steps = [100, 200, 800]
    nrmse = {"active": [[100 / step] * 3 for step in steps]}
    return {"scores": SCORES | scores, "transitions": steps, "field_nrmse": nrmse, "seconds": 12.3}


def test_the_table_shows_scores_and_intervals_and_the_verdict_counts_fields():
    line = fields.table({"duffing": result()}).splitlines()[-1]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[:5] == ["duffing", "0.43", "0.0035", "0.078", "0.5"]
    assert cells[-3:] == ["7.25 [5 9.5]", "0.5", "12"]
    worse = {"transition_ratio.random": 4.9, "transition_ratio.prbs": 1.0}
    assert fields.verdicts({"duffing": result(), "snowman": result(**worse)}) == [
        "transition_ratio.random is at least 5 on 1 of 2 fields (goal: 5)",
        "transition_ratio.prbs is at least 1 on 1 of 2 fields",
    ]


@pytest.mark.usefixtures("project")
def test_what_is_done_is_not_done_again(monkeypatch, capsys):
    done = []

    def run_field(params, field):
        done.append((field, params.active_dynamics.train.transitions))
        if field == "snowman" and len(done) == 2:
            raise KeyboardInterrupt
        return result()

    monkeypatch.setattr(fields, "run_field", run_field)
    arguments = ["--fields", "duffing", "snowman", "--replicates", "2", "--transitions"]
    assert [main(["fields", *arguments, count]) for count in ("40", "40", "41")] == [130, 0, 0]
    assert done[:3] == [("duffing", 40), ("snowman", 40), ("snowman", 40)]
    assert done[3:] == [("duffing", 41), ("snowman", 41)]
    assert capsys.readouterr().out.count("transition_ratio.random is at least") == 2


def test_no_replicates_are_refused(project, capsys):
    assert main(["fields", "--replicates", "0"]) == 2
    assert "--replicates 0: give at least 1" in capsys.readouterr().err
    assert not (project / fields.RESULTS).exists()


def test_a_field_is_learned_by_all_arms(project):
    options = ["--fields", "van_der_pol", "--replicates", "2", "--transitions", "40"]
    with shapes_unchecked():
        assert main(["fields", *options]) == 0
    stored = json.loads((project / fields.RESULTS).read_text())["fields"]["van_der_pol"]
    assert set(stored["field_nrmse"]) == {"active", "random", "prbs"}
    assert np.shape(stored["field_nrmse"]["active"]) == (len(stored["transitions"]), 2)
    assert stored["scores"]["projection_floor"] == pytest.approx(0.0008, abs=2e-4)


def test_an_arm_without_a_ratio_is_shown_as_none_and_reaches_no_goal():
    scores = {"transition_ratio.random": None}
    diverged = result(**scores)
    for end in ("_low", "_high"):
        del diverged["scores"][f"transition_ratio.random{end}"]
    assert fields.table({"duffing": diverged}).splitlines()[-1].split("|")[-4].strip() == "none"
    assert "on 0 of 1 fields" in fields.verdicts({"duffing": diverged})[0]


def test_an_interval_without_an_end_is_left_out():
    """A bound that is not finite is stored as null."""
    unbounded = result(**{"transition_ratio.random_high": None})["scores"]
    assert format_score(unbounded, "transition_ratio.random") == "7.25"


def test_settings_are_chosen_first_if_asked_and_stored_under_another_name(project, monkeypatch):
    """Too much noise was assumed; the pilot run shows it."""
    finer = (("bayes_filter", ({"noise_sd": 0.1}, {"noise_sd": 0.3})),)
    monkeypatch.setattr("quatrain.models.active_dynamics.selection.CANDIDATES", finer)
    monkeypatch.setattr("pipeline.studies.verbs.PILOT", 60)
    (project / "params.yaml").unlink()
    committed = (ROOT / "params.yaml").read_text()
    assumed = "process_noise: 0.01\n      noise_sd: "
    assert committed.count(f"{assumed}0.1\n") == 1
    wrong = committed.replace(f"{assumed}0.1\n", f"{assumed}0.3\n")
    (project / "params.yaml").write_text(wrong)
    options = ["--fields", "duffing", "--replicates", "2", "--transitions", "40", "--choose"]
    with shapes_unchecked():
        assert main(["fields", *options]) == 0
    stored = json.loads((project / fields.RESULTS).read_text())["fields"]
    (name,) = stored
    assert name == "duffing, chosen by 60 more transitions"
    assert stored[name]["settings"] == {"bayes_filter": {"noise_sd": 0.1}}
    assert stored[name]["pilot_transitions"] == 60
