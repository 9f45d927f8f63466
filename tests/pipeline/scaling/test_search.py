"""What is searched next depends on the sweep, the ordinal and what is known, on nothing else."""

from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState

from pipeline.scaling.records import Point, Trial
from pipeline.scaling.search import Search
from pipeline.scaling.space import Space, json_text
from tests.pipeline.small_sweep import HIDDEN, RATE, RATES, space_of, trial

TARGETS = [{"kind": "hard", "copy_every": 50}, {"kind": "polyak", "rate": 0.5}]


def asked(space: Space, earlier: list[Trial], number: int) -> dict[str, Any]:
    search = Search(space)
    search.tell_all(earlier)
    return search.values(number, [])


def states(search: Search) -> list[TrialState]:
    return [each.state for each in search._study.trials]


def scored(count: int) -> list[Trial]:
    """The best of them has the lowest rate."""
    return [trial(number, 1 - number / count) for number in range(count)]


def test_values_of_a_number_do_not_depend_on_what_is_known(tmp_path: Path):
    keys = {RATE: RATES, HIDDEN: {"of": [32, 64, 128]}}
    space = space_of(tmp_path, space=keys)
    together = Search(space)
    one_after_another = [together.values(number, []) for number in range(6)]
    alone = [asked(space, scored(9), number) for number in range(6)]
    assert alone == one_after_another
    assert len({values[RATE] for values in alone}) == 6


def test_a_grid_goes_on_with_the_first_point_that_was_not_tried(tmp_path: Path):
    keys = {RATE: RATES | {"points": 2}, HIDDEN: {"of": [32, 64, 128]}}
    space = space_of(tmp_path, search="grid", space=keys)
    search, tried = Search(space), list[dict[str, Any]]()
    for number in range(6):
        tried.append(search.values(number, tried))
    assert len({tuple(values.items()) for values in tried}) == 6
    lost = tried.pop(2)
    assert search.values(9, tried) == lost


def test_choices_that_are_equal_in_python_are_points_of_their_own(tmp_path: Path):
    keys = {"train.b_init": {"of": [1, 1.0, 0.5]}}
    space = space_of(tmp_path, search="grid", space=keys, trials=3)
    search, tried = Search(space), list[dict[str, Any]]()
    for number in range(3):
        tried.append(search.values(number, tried))
    assert [json_text(values) for values in tried] == [json_text(each) for each in space.grid()]


def test_another_seed_gives_other_values(tmp_path: Path):
    values = [asked(space_of(tmp_path, seed=seed), [], 0)[RATE] for seed in (0, 1, 0)]
    assert values[0] == values[2] != values[1]


def test_random_values_lie_in_the_space(tmp_path: Path):
    keys = {RATE: RATES, HIDDEN: {"between": [16, 18]}}
    space = space_of(tmp_path, space=keys, trials=40)
    search = Search(space)
    values = [search.values(number, []) for number in range(40)]
    assert {each[HIDDEN] for each in values} == {16, 17, 18}
    assert all(1e-4 <= each[RATE] <= 1e-2 for each in values)
    below = sum(each[RATE] < 1e-3 for each in values)
    assert 10 <= below <= 30, "the scale is not logarithmic"


def test_tpe_repeats_with_the_same_knowledge_and_uses_it(tmp_path: Path):
    space = space_of(tmp_path, search="tpe", space={RATE: RATES})
    earlier = [trial(n, -n, values={RATE: 1e-4 * 1.3**n}) for n in range(15)]
    first, again = (asked(space, earlier, 15) for _ in range(2))
    assert first == again
    reversed_scores = [each.model_copy(update={"score": -(each.score or 0)}) for each in earlier]
    low = [asked(space, earlier, number)[RATE] for number in range(20, 28)]
    high = [asked(space, reversed_scores, number)[RATE] for number in range(20, 28)]
    assert sorted(low)[4] < sorted(high)[4], "it does not look where the scores are better"


def test_a_later_driver_searches_on_as_if_there_had_been_one(tmp_path: Path):
    space = space_of(tmp_path, search="tpe")
    search, ended = Search(space), []
    for number in range(14):
        values = search.values(number, [])
        last = Point(step=500, value=values[RATE])
        changes = {"state": "stopped", "last": last} if number % 3 == 0 else {}
        ended.append(trial(number, None if changes else 1 - values[RATE], values=values, **changes))
        search.tell(ended[-1])
    assert asked(space, ended, 14) == search.values(14, []) != asked(space, ended[:9], 14)


def test_tpe_looks_for_low_scores_where_they_are_better(tmp_path: Path):
    spaces = [
        space_of(tmp_path, search="tpe", space={RATE: RATES}, judge=judge)
        for judge in ("cosine_mean", "orthogonality")
    ]
    earlier = [trial(n, n, values={RATE: 1e-4 * 1.3**n}) for n in range(15)]
    high, low = ([asked(space, earlier, n)[RATE] for n in range(8)] for space in spaces)
    assert sorted(low)[4] < sorted(high)[4]


LAST = Point(step=500, value=0.25)


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"state": "finished", "score": 0.5}, TrialState.COMPLETE),
        ({"state": "stopped", "last": LAST}, TrialState.PRUNED),
        ({"state": "stopped"}, TrialState.FAIL),
        ({"state": "diverged"}, TrialState.FAIL),
        ({"state": "refused"}, TrialState.FAIL),
        ({"state": "failed", "last": LAST}, TrialState.FAIL),
    ],
)
@pytest.mark.parametrize("was_asked", [False, True], ids=["of an earlier driver", "of this one"])
def test_only_a_finished_trial_counts_as_complete(
    changes: dict[str, Any], state: TrialState, was_asked: bool, tmp_path: Path
):
    search = Search(space_of(tmp_path))
    values = search.values(7, []) if was_asked else {RATE: 0.002, HIDDEN: 64}
    search.tell(trial(7, values=values, **changes))
    (recorded,) = search._study.trials
    assert recorded.state == state
    assert recorded.params[RATE] == values[RATE]
    is_pruned = state == TrialState.PRUNED
    assert recorded.intermediate_values == ({500: 0.25} if is_pruned else {})
    assert is_pruned or recorded.value == (0.5 if state == TrialState.COMPLETE else None)


@pytest.mark.parametrize(
    "values",
    [{RATE: 1.0, HIDDEN: 64}, {RATE: 1e-3, HIDDEN: 256}, {RATE: None, HIDDEN: 64}, {HIDDEN: 64}],
)
def test_a_start_outside_the_space_is_not_told(values: dict[str, Any], tmp_path: Path):
    search = Search(space_of(tmp_path))
    search.tell(trial(0, 0.5, role="start", values=values))
    assert states(search) == []
    search.tell(trial(0, 0.5, role="start", values={RATE: 1e-3, HIDDEN: 64}))
    assert states(search) == [TrialState.COMPLETE]


def test_neither_running_trials_nor_confirmations_are_told(tmp_path: Path):
    search = Search(space_of(tmp_path))
    search.tell_all([trial(0), trial(1, 0.5, role="confirm", repeats=0), trial(2, 0.5)])
    assert states(search) == [TrialState.COMPLETE]


def test_choices_that_are_mappings_come_back_equal(tmp_path: Path):
    changes = {"model": "iqn", "judge": "score", "schedule": {"kind": "none"}, "search": "tpe"}
    space = space_of(tmp_path, **changes, space={"train.target": {"of": TARGETS}})
    search = Search(space)
    values = [search.values(number, [])["train.target"] for number in range(12)]
    assert all(value in TARGETS for value in values)
    assert all(target in values for target in TARGETS)
    search.tell(trial(50, 0.5, values={"train.target": TARGETS[0]}))
    assert states(search).count(TrialState.COMPLETE) == 1
