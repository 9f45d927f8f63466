"""The film of the vectors shows what was learned by then, on maps, whose truth is known."""

from functools import cache

import numpy as np
import pytest

from quatrain.animation import BAR
from quatrain.models.allo import train as allo
from quatrain.models.allo.collect import Dataset, collect
from quatrain.models.allo.film import LINE, film_vectors
from quatrain.models.allo.train import State, from_arrays, init_state, tables, to_arrays, train
from quatrain.models.allo.truth import true_spectrum, true_table
from tests.conftest import FORMS, shapes_unchecked, small

# Twelve records, of which 9, 11 and the last one keep no table.
CONFIG = small("allo", train={"steps": 240, "record_every": 20})
KEPT = [*range(9), 10]


@cache
def dataset() -> Dataset:
    return collect(CONFIG, 11)


@cache
def states() -> list[State]:
    with shapes_unchecked():
        return [progress.state for progress in train(CONFIG, dataset(), 5)]


def table_of(state: State) -> np.ndarray:
    return tables(CONFIG, state, dataset())[0]


def test_snapshots_are_the_tables_of_their_records_also_after_a_resume():
    end = states()[-1]
    for slot, record in enumerate(KEPT[1:], start=1):
        np.testing.assert_array_equal(end.snapshots[slot], table_of(states()[record - 1]))
    assert end.snapshots[: len(KEPT)].any((1, 2)).all()
    assert not end.snapshots[len(KEPT) :].any()
    resumed = from_arrays(CONFIG, dataset(), to_arrays(states()[4]))
    with shapes_unchecked():
        *_, last = train(CONFIG, dataset(), 6, resumed)
    np.testing.assert_equal(to_arrays(last.state), to_arrays(end))


def test_the_film_ends_with_the_final_table_below_the_truth():
    end, truth = states()[-1], true_spectrum(CONFIG, dataset()).spectrum
    learned, true = (
        film_vectors(CONFIG, end, dataset(), truth, table).frames
        for table in (table_of(end), true_table(truth, CONFIG.network.d))
    )
    assert len(learned) == len(KEPT) + 1
    np.testing.assert_array_equal(learned[:-1], true[:-1])
    above, below = np.split(true[-1, :-BAR], 2)
    np.testing.assert_array_equal(above[LINE:], below[LINE:])
    _, below = np.split(learned[-1, :-BAR], 2)
    assert (above[LINE:] != below[LINE:]).any()


def test_large_maps_and_environments_of_users_keep_no_snapshots(monkeypatch: pytest.MonkeyPatch):
    name, changes = FORMS["allo-user_env"]
    user_env = small(name, **changes)
    assert init_state(user_env, collect(user_env, 11), 5).snapshots is None
    assert init_state(CONFIG, dataset(), 5).snapshots is not None
    monkeypatch.setattr(allo, "LARGEST_SNAPSHOT", 104 * CONFIG.network.d - 1)
    assert init_state(CONFIG, dataset(), 5).snapshots is None
