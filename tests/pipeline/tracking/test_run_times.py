"""Tests that a run lasts as long as the work did, whenever its parts were done."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.tracking.journal import Journal, Parent
from pipeline.tracking.run_times import part_of, worked_seconds
from tests.pipeline.fixture_types import Patch
from tests.pipeline.recorded_runs import client_of, deliver, header, runs_of

PIPELINE = Parent("p1", "default 2026-01-01 12:00")
HOUR = 3_600_000


class Clock:
    """The journal's clock, in milliseconds, which stands still unless it is moved."""

    def __init__(self, patch: Patch) -> None:
        self.time = HOUR
        patch.setattr("pipeline.tracking.journal.now", lambda: self.time)

    def work(self, journal: Journal, seconds: float, metric: str | None = "train/loss") -> None:
        """An attempt that takes so long and records a metric, or nothing."""
        journal.begin(header("k1", parent=PIPELINE))
        self.time += round(1000 * seconds)
        if metric is not None:
            journal.metrics([(metric, self.time, 0.5)])
        journal.end("FINISHED")


@pytest.fixture
def clock(monkeypatch: Patch) -> Clock:
    return Clock(monkeypatch)


def stage(tmp_path: Path, verb: str) -> Journal:
    return Journal(tmp_path / "journal" / f"{verb}@allo-0123")


def seconds_of(uri: str, run_key: str = "k1") -> float:
    (run,) = runs_of(client_of(uri), run_key)
    assert run.info.status == "FINISHED"
    return (run.info.end_time - run.info.start_time) / 1000


def lines(journal: Journal) -> list[dict[str, Any]]:
    return [line for _, line in journal.lines()]


def test_pauses_and_attempts_that_recorded_nothing_are_no_work(clock: Clock, tmp_path: Path):
    journal = stage(tmp_path, "train")
    clock.work(journal, 5)
    clock.time += HOUR
    clock.work(journal, 2)
    clock.time += HOUR
    clock.work(journal, 3, metric=None)
    assert worked_seconds(lines(journal)) == 7


def test_a_killed_attempt_ends_with_its_last_line(clock: Clock, tmp_path: Path):
    journal = stage(tmp_path, "train")
    journal.begin(header("k1"))
    clock.time += 4000
    journal.metrics([("train/loss", 1, 0.5)])
    clock.time += HOUR
    clock.work(journal, 2)
    assert worked_seconds(lines(journal)) == 6
    killed = stage(tmp_path, "evaluate")
    killed.begin(header("k1"), started=clock.time - 9000)
    killed.metrics([("eval/score", 1, 0.5)])
    killed.end("KILLED", killed.last_time)
    clock.time += HOUR
    assert worked_seconds(lines(killed)) == 9


def test_a_later_evaluation_adds_its_work_and_no_pause(clock: Clock, uri: str, tmp_path: Path):
    training, evaluation = (stage(tmp_path, verb) for verb in ("train", "evaluate"))
    clock.work(training, 5)
    deliver(training, uri)
    clock.time += HOUR
    clock.work(evaluation, 2, "eval/score")
    deliver(evaluation, uri)
    assert seconds_of(uri) == 7
    assert seconds_of(uri, "p1") == 7

    clock.time += HOUR
    clock.work(evaluation, 3, metric=None)
    deliver(evaluation, uri)
    assert (seconds_of(uri), seconds_of(uri, "p1")) == (7, 7)
    for journal in (training, evaluation):
        (journal.folder / "cursor.json").unlink()
        deliver(Journal(journal.folder), uri)
    assert (seconds_of(uri), seconds_of(uri, "p1")) == (7, 7)


def test_a_pipeline_ends_after_its_children_and_the_report(clock: Clock, uri: str, tmp_path: Path):
    training = stage(tmp_path, "train")
    clock.work(training, 5)
    deliver(training, uri)
    report = Journal(tmp_path / "journal" / "report-4567")
    clock.time += HOUR
    report.begin(header("p1"))
    clock.time += 1000
    report.metrics([("allo/cosine_mean", 0, 0.5)])
    report.end("FINISHED")
    deliver(report, uri)
    assert seconds_of(uri, "p1") == 6


def test_a_part_has_the_name_of_its_verb():
    assert [part_of(name) for name in ("train@allo-01", "report-2", "sweep")] == [
        "train",
        "report",
        "sweep",
    ]
