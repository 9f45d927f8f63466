"""A sweep's ledger: whatever was interrupted, no trial is lost and none runs twice."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.scaling.plan import ConfirmPlan, Ledger, SearchPlan
from pipeline.scaling.records import Point, Trial, read_trials
from pipeline.scaling.space import Space
from quatrain.errors import DataError
from tests.pipeline.fixture_types import Patch
from tests.pipeline.small_sweep import HIDDEN, RATE, read_params_once, space_of, trial

STATES = ("running", "finished", "stopped", "diverged", "refused", "failed")


@pytest.fixture(autouse=True, scope="module")
def params_are_read_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        read_params_once(patch)
        yield


class Driver:
    """What is left of a sweep in a folder."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.space: Space = space_of(folder, **changes)
        self.ledger = Ledger(folder / "trials", self.space.is_higher_better)
        self.refused: list[Trial] = []

    def search(self, count: int = 100, score: float | None = 0.5) -> list[int]:
        """Run so many trials, which end if they get a score; their numbers."""
        plan = SearchPlan(self.space, self.ledger, self.refused.append)
        numbers = []
        while len(numbers) < count and (trial := plan.next()) is not None:
            numbers.append(trial.number)
            if score is not None:
                plan.ended(self.end(trial.number, score))
        return numbers

    def confirm(self) -> list[tuple[int, int | None]]:
        """Run what is to be confirmed; numbers, and which trials they repeat."""
        plan = ConfirmPlan(self.space, self.ledger)
        pairs = []
        while (trial := plan.next()) is not None:
            pairs.append((trial.number, trial.repeats))
            self.end(trial.number, 0.5)
        return pairs

    def end(self, number: int, score: float) -> Trial:
        return self.ledger.update(number, state="finished", score=score)

    def points(self) -> list[dict[str, Any]]:
        return [trial.values for trial in self.ledger.of_role("search")]


@pytest.mark.parametrize("search", ["random", "tpe"])
def test_an_interrupted_search_ends_its_trials_first_and_none_twice(search: str, tmp_path: Path):
    changes = {"search": search}
    assert Driver(tmp_path, **changes).search(3) == [0, 1, 2]
    assert Driver(tmp_path, **changes).search(2, score=None) == [3, 4]
    resumed = Driver(tmp_path, **changes)
    assert resumed.search() == [3, 4, 5, 6]
    assert Driver(tmp_path, **changes).search() == []
    roles = [trial.role for trial in resumed.ledger.trials.values()]
    assert roles == ["start", *["search"] * 6]
    assert resumed.ledger.trials[0].values == resumed.space.start()
    assert len({str(values) for values in resumed.points()}) == 6


def test_a_random_search_has_the_same_points_wherever_it_was_interrupted(tmp_path: Path):
    for name in ("whole", "cut"):
        (tmp_path / name).mkdir()
    whole = Driver(tmp_path / "whole")
    whole.search()
    for _ in range(7):
        Driver(tmp_path / "cut").search(1)
    assert Driver(tmp_path / "cut").points() == whole.points()


def test_more_trials_continue_the_search_and_fewer_end_it(tmp_path: Path):
    assert Driver(tmp_path, trials=2).search() == [0, 1, 2]
    assert Driver(tmp_path, trials=4).search() == [3, 4]
    assert Driver(tmp_path, trials=3).search() == []


BARRIER = {"train.b_min": {"of": [0.0, 0.9]}, "train.b_init": {"of": [1.0, 0.5]}}
"""Each value is good alone, the last two together are not."""


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_point_that_params_refuse_is_recorded_and_counts(is_killed: bool, tmp_path: Path):
    changes = {"search": "grid", "trials": 4, "space": BARRIER}
    driver = Driver(tmp_path, **changes)
    if is_killed:
        # Between the note that a trial begins and its check.
        assert driver.search(4) == [0, 1, 2, 3]
        values = {"train.b_min": 0.9, "train.b_init": 0.5}
        driver.ledger.put(trial(4, values=values))
        driver = Driver(tmp_path, **changes)
        assert driver.search() == []
    else:
        assert driver.search() == [0, 1, 2, 3]
    (refused,) = driver.refused
    assert (refused.number, refused.state, refused.values["train.b_init"]) == (4, "refused", 0.5)
    assert "b_min 0.9 <= b_init 0.5" in refused.reason
    assert refused == Ledger(tmp_path / "trials", True).trials[4]
    assert Driver(tmp_path, **changes).search() == []


def test_the_best_is_the_lowest_where_lower_is_better(tmp_path: Path):
    order = {}
    for judge in ("cosine_mean", "orthogonality"):
        ledger = Ledger(tmp_path / judge, space_of(tmp_path, judge=judge).is_higher_better)
        for number, score in enumerate([0.0, 0.3, -0.2, 0.3]):
            ledger.put(trial(number, score))
        ledger.put(trial(4, state="stopped", last=Point(step=500, value=9.0)))
        ledger.put(trial(5, 5.0, role="confirm", repeats=1))
        order[judge] = [each.number for each in ledger.ranked("start", "search")]
    assert order == {"cosine_mean": [1, 3, 0, 2], "orthogonality": [2, 0, 1, 3]}


def test_the_start_and_the_best_are_confirmed_once(tmp_path: Path):
    driver = Driver(tmp_path, trials=3)
    driver.search()
    for number, score in ((1, 0.1), (2, 0.9), (3, 0.8)):
        driver.end(number, score)
    assert driver.confirm() == [(4, 0), (5, 2), (6, 3)]
    assert Driver(tmp_path, trials=3).confirm() == []
    assert [(each.values, each.seed, each.seeds) for each in driver.ledger.of_role("confirm")] == [
        (driver.ledger.trials[number].values, 1, 5) for number in (0, 2, 3)
    ]


def test_another_confirmation_is_planned_anew_and_an_interrupted_one_continues(tmp_path: Path):
    Driver(tmp_path, trials=1).search()
    planned = ConfirmPlan((driver := Driver(tmp_path, trials=1)).space, driver.ledger)
    assert planned.next() is not None
    assert Driver(tmp_path, trials=1).confirm() == [(2, 0), (3, 1)]
    other = {"top": 2, "seed": 2, "seeds": 5}
    assert Driver(tmp_path, trials=1, confirm=other).confirm() == [(4, 0), (5, 1)]
    assert Driver(tmp_path, trials=1).confirm() == []
    assert Driver(tmp_path, trials=1, confirm=None).confirm() == []


# Records.


@pytest.mark.parametrize("state", STATES)
def test_a_trial_comes_back_as_it_was_written(state: str, tmp_path: Path):
    written = trial(
        3,
        values={RATE: 1e-3, HIDDEN: None, "train.target": {"kind": "hard", "steps": [1, 2.5]}},
        state=state,
        low=-0.5,
        last=Point(step=500, value=1e-300),
        seconds=1.5,
        reason="line\nwith “quotes”",
    )
    Ledger(tmp_path, True).put(written)
    assert read_trials(tmp_path) == [written]


def test_what_was_seen_of_a_trial_is_written_with_its_end(tmp_path: Path):
    ledger = Ledger(tmp_path, True)
    ledger.put(trial(0))
    ledger.saw(0, Point(step=500, value=0.25), 3.0)
    assert Ledger(tmp_path, True).trials[0].last is None
    ledger.update(0, state="stopped")
    kept = Ledger(tmp_path, True).trials[0]
    assert (kept.state, kept.last, kept.seconds) == ("stopped", Point(step=500, value=0.25), 3.0)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"number": 1', "cannot be read"),
        ('{"number": 1, "role": "search"}', "Field required"),
        (
            '{"number": 1, "role": "boss", "values": {}}',
            "Input should be 'start', 'search' or",
        ),
        ('{"number": 1, "role": "start", "values": {}, "score": NaN}', "the number NaN"),
        (
            '{"number": 1, "role": "start", "values": {}, "colour": 2}',
            "Extra inputs are not",
        ),
    ],
)
def test_a_damaged_record_is_refused_in_one_line_with_its_file(
    text: str, reason: str, tmp_path: Path
):
    Ledger(tmp_path, True).put(trial(0))
    (tmp_path / "0001.json").write_text(text)
    with pytest.raises(DataError, match=reason) as caught:
        Ledger(tmp_path, True)
    assert str(caught.value).startswith(f"{tmp_path / '0001.json'}: ")
    assert str(caught.value).endswith("; remove it, and another trial takes its place")
    assert "\n" not in str(caught.value)


def test_a_record_whose_writing_was_cut_off_is_no_record(tmp_path: Path, monkeypatch: Patch):
    ledger = Ledger(tmp_path, True)
    ledger.put(trial(0))

    def cut_off(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", cut_off)
    with pytest.raises(OSError, match="No space left"):
        ledger.update(0, state="failed")
    monkeypatch.undo()
    assert [each.state for each in read_trials(tmp_path)] == ["running"]
