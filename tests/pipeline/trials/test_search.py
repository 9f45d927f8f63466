"""A search continues from its journal, and what it tries depends on nothing but what is known."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest

from pipeline.trials.search import Row, Search, rank
from pipeline.trials.space import Values
from pipeline.trials.trial import Outcome, Point, Trial
from quatrain.errors import DataError
from tests.pipeline.fixture_types import Patch
from tests.pipeline.trials.small_sweep import HIDDEN, IQN, RATE, RATES, space_of

TARGETS = [{"kind": "hard", "copy_every": 50}, {"kind": "polyak", "rate": 0.5}]
# Each value is good alone, the last two together are not.
SAMPLES = {"train.record_every": {"of": [100, 500]}, "train.batch_size": {"of": [256, 300_000]}}


def search_of(folder: Path, **changes: Any) -> Search:
    """The search in a folder: another one with the same folder is a later driver's."""
    folder.mkdir(exist_ok=True)
    return Search(space_of(folder, **changes), folder / "journal.log", lambda *_: None)


def finished(score: float | None) -> Outcome:
    return Outcome("finished", {"cosine_mean": score, "orthogonality": score, "score": score})


def by_rate(row: Row) -> float:
    return 1 - abs(row.values[RATE] - 3e-3)


def begun(search: Search, count: int = 2) -> list[Trial]:
    """So many trials that run at a time."""
    return [trial for trial in [search.next() for _ in range(count)] if trial is not None]


def go_on(search: Search, count: int = 100, score: Callable[[Row], float] = by_rate) -> list[Row]:
    """Run so many trials one after another; all rows."""
    for _ in range(count):
        trial = search.next()
        if trial is None:
            break
        number = max(row.number for row in search.rows())
        search.ended(trial, finished(score(search.rows()[number])))
    return search.rows()


def values_of(rows: list[Row]) -> list[Values]:
    return [row.values for row in rows]


@pytest.mark.parametrize("kind", ["random", "tpe"])
def test_a_search_has_the_same_points_wherever_it_was_interrupted(kind: str, tmp_path: Path):
    widths = {"between": [8, 64], "scale": "log"}
    changes = {"search": kind, "trials": 14, "space": {RATE: RATES, HIDDEN: widths}}
    whole = go_on(search_of(tmp_path / "whole", **changes))
    for count in (1, 3, 0, 7, 100):
        search = search_of(tmp_path / "cut", **changes)
        cut = go_on(search, count)
        search.next()  # it is killed while this one runs
    assert values_of(cut) == values_of(whole)
    assert [row.state for row in whole] == ["finished"] * 15
    assert len({row.values[RATE] for row in whole}) == 15
    assert all(1e-4 <= row.values[RATE] <= 1e-2 for row in whole)
    assert all(type(row.values[HIDDEN]) is int for row in whole)


def test_another_seed_and_tpe_after_its_first_trials_try_other_points(tmp_path: Path):
    rows = {
        name: values_of(go_on(search_of(tmp_path / name, trials=16, **changes)))
        for name, changes in {
            "random": {"search": "random"},
            "tpe": {"search": "tpe"},
            "seed": {"search": "random", "seed": 1},
        }.items()
    }
    assert rows["seed"] != rows["random"]
    assert rows["tpe"][12:] != rows["random"][12:]


def test_a_trial_that_was_running_begins_again_and_the_start_is_the_first(tmp_path: Path):
    running = begun(search_of(tmp_path))
    again = search_of(tmp_path)
    assert begun(again) == running
    assert [row.state for row in again.rows()] == ["running"] * 2
    assert again.rows()[0].values == {RATE: 1e-3, HIDDEN: 64}
    assert running[0].params.allo.train.learning_rate == 1e-3


def test_a_driver_that_was_killed_while_it_chose_values_goes_on_with_them(tmp_path: Path):
    whole = go_on(search_of(tmp_path / "whole"), 2)
    go_on(search_of(tmp_path / "cut"), 2)
    journal = tmp_path / "cut" / "journal.log"
    lines = journal.read_bytes().splitlines(keepends=True)
    # Each operation of Optuna is a line: 5 is a new parameter of a trial.
    last = max(place for place, line in enumerate(lines) if json.loads(line)["op_code"] == 5)
    journal.write_bytes(b"".join(lines[:last]) + lines[last][:20])
    (tmp_path / "cut" / "journal.log.lock").symlink_to("of the killed driver")
    assert values_of(go_on(search_of(tmp_path / "cut"), 1)) == values_of(whole)


def test_a_damaged_journal_is_refused_in_one_line(tmp_path: Path):
    go_on(search_of(tmp_path), 1)
    journal = tmp_path / "journal.log"
    journal.write_bytes(b"{\n" + journal.read_bytes())
    with pytest.raises(DataError, match=r"journal.log: is damaged .*; remove it: trials that have"):
        search_of(tmp_path)


def test_more_trials_continue_the_search_and_fewer_end_it(tmp_path: Path):
    counts = [len(go_on(search_of(tmp_path, trials=trials))) for trials in (2, 4, 3)]
    assert counts == [3, 5, 5]


def test_a_grid_is_tried_in_order_and_choices_that_are_equal_in_python_are_two(tmp_path: Path):
    keys = {"train.b_init": {"of": [1, 1.0, 0.5]}, RATE: {"of": [1e-4, 1e-2]}}
    grid = {"search": "grid", "trials": 6, "space": keys}
    go_on(search_of(tmp_path, **grid), 3)
    rows = go_on(search_of(tmp_path, **grid))
    points = [(json.dumps(row.values["train.b_init"]), row.values[RATE]) for row in rows[1:]]
    assert points == [(b, rate) for b in ("1", "1.0", "0.5") for rate in (1e-4, 1e-2)]


def test_the_best_come_first_and_of_equal_ones_the_older():
    rows = [
        Row(number, {}, "finished", score, None, "")
        for number, score in enumerate([0.1, 0.3, None, 0.3])
    ]
    assert [row.number for row in rank(rows, is_higher_better=True)] == [1, 3, 0]
    assert [row.number for row in rank(rows, is_higher_better=False)] == [0, 1, 3]


def test_choices_that_are_mappings_come_back_equal(tmp_path: Path):
    space = {"train.target": {"of": TARGETS}}
    rows = go_on(search_of(tmp_path, **IQN, space=space, trials=8), score=lambda _: 0.5)
    targets = [row.values["train.target"] for row in rows[1:]]
    assert all(target in targets for target in TARGETS)
    assert all(target in TARGETS for target in targets)
    # The start lies outside of the space.
    assert rows[0].values == {"train.target": {"kind": "polyak", "rate": 0.01}}


def test_what_params_refuse_is_a_row_with_its_reason(tmp_path: Path):
    search = search_of(tmp_path, search="grid", trials=4, space=SAMPLES)
    rows = go_on(search, score=lambda _: 0.5)
    assert [row.state for row in rows] == ["finished"] * 4 + ["refused"]
    assert "record_every * batch_size * seeds = " in rows[4].reason


OUTCOMES = [
    (finished(0.5), "finished", 0.5, ""),
    (finished(None), "failed", None, "cosine_mean is not a finite number"),
    (Outcome("diverged", {}, reason="loss is nan"), "diverged", None, "loss is nan"),
    (Outcome("failed", {}, reason="lost"), "failed", None, "lost"),
]


@pytest.mark.parametrize(
    ("outcome", "state", "score", "reason"), OUTCOMES, ids=["score", "none", "diverged", "failed"]
)
def test_an_outcome_is_kept_and_only_a_finished_one_has_a_score(
    outcome: Outcome, state: str, score: float | None, reason: str, tmp_path: Path
):
    search = search_of(tmp_path)
    search.ended(*begun(search, 1), outcome)
    (row,) = search_of(tmp_path).rows()
    assert (row.state, row.score, row.reason) == (state, score, reason)


# The schedule: {kind: asha, first: 500, factor: 3}, 2,000 steps.


def compare(search: Search, values: list[float], step: int = 500) -> list[bool]:
    """Begin a trial for each value, which is its row at a step; which are hopeless."""
    trials = begun(search, len(values))
    points = [Point(step, value) for value in values]
    return [search.saw(*pair) for pair in zip(trials, points, strict=True)]


def test_the_worse_are_stopped_where_the_schedule_compares(tmp_path: Path):
    search = search_of(tmp_path)
    assert compare(search, [0.5, 0.4, 0.6, 0.7, 0.1]) == [False, True, False, False, True]
    lower = search_of(tmp_path / "lower", judge="orthogonality")
    assert compare(lower, [0.5, 0.4, 0.6]) == [False, False, True]


def test_the_start_is_compared_and_never_stopped(tmp_path: Path):
    search = search_of(tmp_path)
    start, *others = begun(search, 3)
    points = zip([*others, start], (0.9, 0.3, 0.1), strict=True)
    assert [search.saw(each, Point(500, value)) for each, value in points] == [False, True, False]
    assert search.rows()[0].last == Point(500, 0.1)


@pytest.mark.parametrize("step", [499, 2000], ids=["before the first rung", "at the last step"])
def test_no_trial_is_stopped_elsewhere(step: int, tmp_path: Path):
    assert compare(search_of(tmp_path), [0.5, 0.4], step) == [False, False]


def test_rows_of_a_continued_trial_come_again_and_one_that_was_to_stop_stays_so(tmp_path: Path):
    search = search_of(tmp_path)
    start, other = begun(search)
    for each, value in ((start, 0.5), (other, 0.4)):
        search.saw(each, Point(500, value))
    assert not search.saw(other, Point(600, 0.9))
    search.ended(other, finished(0.9))
    again = search_of(tmp_path)
    assert begun(again, 1) == [start]
    assert [again.saw(start, Point(step, 0.6)) for step in (400, 500, 700)] == [False] * 3
    first, stopped = again.rows()
    assert (first.last, stopped.last) == (Point(700, 0.6), Point(500, 0.4))
    assert (stopped.state, stopped.score) == ("stopped", None)


def test_a_row_that_was_not_compared_before_a_kill_is_compared_later(
    tmp_path: Path, monkeypatch: Patch
):
    search = search_of(tmp_path)
    compare(search, [0.9])
    with monkeypatch.context() as patch:
        patch.setattr(optuna.trial.Trial, "should_prune", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            compare(search, [0.1])
    assert compare(search_of(tmp_path), [0.9, 0.1]) == [False, True]


def test_equal_trainings_share_their_outcome_and_one_equal_to_the_start_goes_on(tmp_path: Path):
    keys = {RATE: {"of": [2e-3, 1e-3]}}
    search = search_of(tmp_path, search="grid", trials=2, space=keys)
    start, other, same = begun(search, 3)
    assert start.key == same.key
    points = ((other, 0.5), (start, 0.4), (same, 0.4))
    assert [search.saw(each, Point(500, value)) for each, value in points] == [False] * 3
    search.ended(start, finished(0.5))
    assert [row.score for row in search.rows()] == [0.5, None, 0.5]
