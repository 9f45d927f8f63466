"""Tests the table of all scores, and the judged ones that alone become metrics."""

import math

import pytest

from pipeline.tracking.scores import score_table
from quatrain.registry import load
from tests.pipeline.fixture_types import Patch
from tests.pipeline.small_project import Project

SCORES = {
    "cosine/10": 0.5,
    "cosine/9": 0.25,
    "cosine_mean": 0.375,
    "cosine_mean_low": 0.25,
    "cosine_mean_high": 1 / 3,
    "gap": None,
    "seeds": 4.0,
}


def test_judged_scores_come_first_then_names_in_the_order_of_their_indices():
    assert score_table(SCORES, ["cosine_mean"]).splitlines() == [
        "score,value,low,high,judged",
        "cosine_mean,0.375,0.25,0.333333,yes",
        "cosine/09,0.25,,,no",
        "cosine/10,0.5,,,no",
        "gap,,,,no",
        "seeds,4,,,no",
    ]
    few = score_table(SCORES | {"seeds": 3.0}, ["cosine_mean"]).splitlines()
    assert few[1] == "cosine_mean,0.375,,,yes"


def test_a_run_has_the_judged_scores_and_says_so_whatever_the_baseline_is(
    evaluated: Project, monkeypatch: Patch
):
    """A score that is not finite is NaN; a damaged baseline is of no concern."""
    (evaluated.root / "baselines" / "allo.json").write_text("{")
    scores = {"cosine_mean": 0.5, "cosine_min": math.nan, "gap": 1.0}
    monkeypatch.setattr(load("allo").evaluate, "evaluate", lambda *_: scores)
    for outbox in evaluated.outboxes("evaluate"):
        outbox.path.unlink()
    assert evaluated.call("evaluate") == 0
    (outbox,) = evaluated.outboxes("evaluate")
    recorded = outbox.history("eval/")
    assert {name: rows[-1][1] for name, rows in recorded.items()} == pytest.approx(
        {"cosine_mean": 0.5, "cosine_min": math.nan, "orthogonality": math.nan}, nan_ok=True
    )
    table = "| cosine_mean | 0.5000 |\n| cosine_min | - |\n| orthogonality | - |"
    card, note = outbox.record("card"), outbox.record("tag")
    assert card is not None
    assert note is not None
    assert card.body.startswith("## What it is")
    assert "\n\n## Scores (preset default)\n\n| metric | score |" in card.body
    assert f"{table}\n\n## Limits" in card.body
    assert f"{table}\n\n`make gate` compares" in note.body
    assert "Params changed" in note.body or "no commit" in note.body
