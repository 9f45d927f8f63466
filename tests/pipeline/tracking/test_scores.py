"""Tests what a run has of its evaluation."""

import json
import math

import pytest

from quatrain.registry import load
from tests.pipeline.fixture_types import Patch
from tests.pipeline.small_project import Project


def test_a_run_has_the_judged_scores_whatever_the_baseline_is_and_a_trial_no_more(
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
    files = {record.name: record.data for record in outbox.records("artifact")}
    stored = json.loads(files["evaluation/scores.json"] or b"")
    assert stored == {"cosine_mean": 0.5, "cosine_min": None, "gap": 1.0}
    card, note = outbox.record("card"), outbox.record("tag")
    assert card is not None
    assert note is not None
    assert card.body.startswith("## What it is")
    assert "\n\n## Scores (preset default)\n\n| metric | score |" in card.body
    assert f"{table}\n\n## Limits" in card.body
    assert f"{table}\n\n`make gate` compares" in note.body
    assert "The params cannot be compared with a commit" in note.body
    monkeypatch.setenv("QUATRAIN_TRIAL", "1")
    outbox.path.unlink()
    assert evaluated.call("evaluate") == 0
    note = outbox.record("tag")
    assert note is not None
    assert f"{table}\n\nThe params cannot" in note.body, "no gate judges a trial"
    assert not outbox.has("card")
