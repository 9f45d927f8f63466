"""Tests that importance tells keys with an effect from keys without one."""

from pathlib import Path
from typing import Any

import numpy as np

from pipeline.scaling import page
from pipeline.scaling.importance import Importance, importance, obstacle
from pipeline.scaling.result import Dimension
from tests.pipeline.scaling.sweep_trials import HIDDEN, KIND, RATE, drawn, sweep, trial

NULL = {
    RATE: Dimension(1e-4, 1e-2, True, None),
    HIDDEN: Dimension(16, 512, True, None),
    KIND: Dimension(None, None, False, ("a", "b", "c")),
    "train.null": Dimension(0.0, 1.0, False, None),
}


def importance_of(count: int, seed: int, score: Any) -> Importance:
    """Returns importances for scores that are a function of values and a random generator."""
    rng = np.random.default_rng(seed)
    values = drawn(count + 1, NULL, seed)
    trials = [trial(i, float(score(each, rng)), values=each) for i, each in enumerate(values)]
    return importance(sweep(trials, NULL))


def test_a_key_that_decides_the_score_gets_the_importance_and_others_nearly_none():
    result = importance_of(64, 1, lambda values, _: -abs(np.log10(values[RATE]) + 3))
    assert result.clear == [RATE]
    assert result.shares[RATE] > 0.5
    assert max(result.shares[key] for key in (HIDDEN, KIND, "train.null")) < 0.1


def test_a_choice_that_decides_who_is_among_the_best_gets_nearly_all():
    result = importance_of(64, 2, lambda values, rng: (values[KIND] == "b") + 0.01 * rng.normal())
    assert next(iter(result.shares)) == KIND
    assert KIND in result.clear
    others = [share for key, share in result.shares.items() if key != KIND]
    assert result.shares[KIND] > 4 * max(others)


def test_random_scores_give_no_key_an_importance_more_often_than_chance():
    studies = [importance_of(40, seed, lambda _, rng: rng.normal()) for seed in range(6)]
    # 24 keys without effect, of which one in a hundred passes its mark by chance.
    assert sum(len(each.clear) for each in studies) <= 2
    assert np.mean([share for each in studies for share in each.shares.values()]) < 0.06


def test_importance_says_why_it_is_missing(tmp_path: Path):
    few = [trial(number, 0.1 * number) for number in range(10)]
    assert obstacle(sweep(few)) == ("importance needs 10 finished trials of the search, here are 9")
    page.write(tmp_path, sweep(few))
    assert "No picture of importance: importance needs 10" in (tmp_path / "sweep.md").read_text()
    equal = [trial(number, 0.5) for number in range(20)]
    assert "too many here have equal ones" in obstacle(sweep(equal))
    assert obstacle(sweep([trial(number, 0.1 * number) for number in range(11)])) == ""
    assert set(page.figures(sweep(equal))) == {"parallel_coordinates", "slices", "history"}
