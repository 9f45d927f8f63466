"""A line for each trial that ends."""

from pipeline.trials.progress import Progress
from tests.pipeline.fixture_types import Capture, Patch


def test_the_time_left_is_told_by_those_that_ended_in_this_run(capsys: Capture, monkeypatch: Patch):
    moments = iter([0.0, 10.0, 20.0])
    monkeypatch.setattr("time.monotonic", lambda: next(moments))
    progress = Progress(5, done=2)
    progress.ended("trial 2", "finished, 0.5", best="best 0.5 (trial 2)")
    progress.ended("trial 3", "diverged", "loss is nan")
    assert capsys.readouterr().err.splitlines() == [
        "[3/5] trial 2: finished, 0.5; best 0.5 (trial 2); about 0:00:20 left",
        "[4/5] trial 3: diverged: loss is nan; about 0:00:10 left",
    ]
