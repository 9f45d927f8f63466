"""The table of learners on CartPole: returns with their interval, and when each seed was solved."""

import pytest

from benchmarks.cartpole import measure


def test_a_row_has_the_mean_over_seeds_its_interval_and_each_seed():
    runs = [
        {"return_mean": 500.0, "solved_seconds": 12.34, "seconds": 20.0, "transitions": 40_000},
        {"return_mean": 400.0, "solved_seconds": None, "seconds": 40.0, "transitions": 40_000},
    ]
    name, returns, solved, seconds, speed = measure.row("iqn", 2 * runs)
    assert name == "iqn"
    assert returns == "450.0 ± 91.9 (500.0, 400.0, 500.0, 400.0)"
    assert (solved, seconds, speed) == ("12.3, never, 12.3, never", "30.0", "1,500")


def test_an_unknown_learner_is_refused(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        measure.main(["sarsa"])
    assert "invalid choice: 'sarsa'" in capsys.readouterr().err
