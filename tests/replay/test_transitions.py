"""The ring of transitions on the host holds what a list of the newest would, and draws from it
evenly.
"""

from typing import NamedTuple

import numpy as np
import pytest
from scipy.stats import chisquare

from quatrain.replay.transitions import HostRing, ReplayError

CAPACITY = 7


class Step(NamedTuple):
    """Holds columns of different shapes and dtypes; `number` identifies the transition."""

    image: np.ndarray
    action: np.ndarray
    number: np.ndarray
    done: np.ndarray


def step(number: int) -> Step:
    image = (np.arange(6).reshape(3, 2) + number) % 251
    done = np.bool_(number % 3 == 0)
    return Step(image.astype(np.uint8), np.int8(number % 5), np.float32(number), done)


def batch(*numbers: int) -> Step:
    return Step(*map(np.array, zip(*map(step, numbers), strict=True)))


def ring_of(*numbers: int, capacity: int = CAPACITY) -> HostRing:
    ring = HostRing(capacity, step(0))
    ring.extend(batch(*numbers))
    return ring


def rows(columns: Step) -> list[tuple]:
    """Returns the distinct transitions, by number."""
    distinct = {tuple(map(str, row)) for row in zip(*(column.tolist() for column in columns))}  # noqa: B905
    return sorted(distinct, key=lambda row: float(row[2]))


def contents(ring: HostRing) -> list[tuple]:
    """Returns all transitions that can be drawn."""
    return rows(ring.sample(np.random.default_rng(0), 60 * len(ring)))


def test_after_three_laps_the_ring_equals_a_list_of_the_newest():
    ring, count = HostRing(CAPACITY, step(0)), 0
    for size in (1, 0, 3, 1, 5, 7, 2, 1, 6, 4):
        numbers = range(count, count + size)
        count += size
        if size == 1:
            ring.add(step(numbers[0]))
        elif size:
            ring.extend(batch(*numbers))
        else:
            ring.extend(Step(*(column[:0] for column in batch(1))))
        stored = range(max(0, count - CAPACITY), count)
        assert len(ring) == len(stored)
        assert contents(ring) == rows(batch(*stored))
    assert count > 3 * CAPACITY


def test_draws_are_uniform_over_the_stored_transitions():
    ring = ring_of(*range(40), capacity=50)
    for filled in (40, 50):
        numbers = ring.sample(np.random.default_rng(1), 40_000).number.astype(int)
        counts = np.bincount(numbers - numbers.min(), minlength=filled)
        assert len(counts) == filled
        assert chisquare(counts).pvalue > 1e-4
        ring.extend(batch(*range(40, 65)))


def test_batches_are_new_contiguous_arrays_of_the_examples_dtypes_and_added_arrays_are_copied():
    ring, added = HostRing(CAPACITY, step(0)), batch(0, 1, 2)
    ring.extend(added)
    added.image[:] = 1
    drawn = ring.sample(np.random.default_rng(0), 4)
    assert isinstance(drawn, Step)
    for column, like in zip(drawn, batch(0, 1, 2, 3), strict=True):
        assert column.flags.c_contiguous
        assert (column.shape, column.dtype) == (like.shape, like.dtype)
        column[:] = 0
    assert contents(ring) == rows(batch(0, 1, 2))


def test_dictionaries_of_any_order_give_batches_as_dictionaries():
    ring = HostRing(3, {"state": np.zeros(2), "reward": 0.0})
    ring.add({"reward": 1.5, "state": np.array([1.0, 2.0])})
    drawn = ring.sample(np.random.default_rng(0), 2)
    assert list(drawn) == ["state", "reward"]
    assert drawn["state"].tolist() == [[1, 2], [1, 2]]
    assert drawn["reward"].tolist() == [1.5, 1.5]


def test_scalars_of_python_and_numpy_are_accepted_if_they_fit():
    ring = HostRing(3, step(0))
    for action, number, done in (
        (-128, 2, True),
        (np.int64(127), np.float64(0.5), np.bool_(False)),
        (True, 0.25, False),
    ):
        ring.add(step(0)._replace(action=action, number=number, done=done))
    _, *columns = ring.sample(np.random.default_rng(0), 50)
    distinct = set(zip(*(column.tolist() for column in columns), strict=True))
    assert distinct == {(-128, 2.0, True), (1, 0.25, False), (127, 0.5, False)}


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        (
            "image",
            np.zeros((2, 3), np.uint8),
            r"Column image has shape \(2, 3\), not \(3, 2\); a ring keeps that of",
        ),
        (
            "image",
            np.full((3, 2), 256),
            r"image is kept as uint8, which int64 values \(\[256\] first\) do not fit; cast",
        ),
        ("action", 128, "action is kept as int8, which int64"),
        ("action", np.array(2.5), "action is kept as int8, which float64"),
        ("number", np.zeros(1, np.float32), r"Column number has shape \(1,\), not \(\)"),
        ("number", "3", "number is kept as float32, which <U1"),
        ("done", 1, "done is kept as bool, which int64"),
    ],
)
def test_values_that_do_not_fit_raise_and_leave_the_ring_unchanged(column, value, message):
    ring = ring_of(*range(CAPACITY))
    with pytest.raises(ReplayError, match=message):
        ring.add(step(9)._replace(**{column: value}))
    with pytest.raises(ReplayError, match=f"Column {column}"):
        ring.extend(batch(8, 9)._replace(**{column: np.array([value, value])}))
    assert contents(ring) == rows(batch(*range(CAPACITY)))


def test_other_columns_raise():
    named = HostRing(CAPACITY, {"a": 1, "b": 2.0})
    for ring, columns, message in (
        (ring_of(0), step(0)._asdict(), "A dict with image, .* a ring of Step with image, action,"),
        (named, {"a": 1, "c": 2.0}, "A dict with a, c does not fit a ring of dict with a, b; give"),
        (named, (1, 2), "A tuple with no names"),
    ):
        for put in (ring.add, ring.extend):
            with pytest.raises(ReplayError, match=message):
                put(columns)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            batch(0, 1)._replace(number=np.zeros(3, np.float32)),
            "equally many rows, not image 2, action 2, number 3, done 2; `add` takes one",
        ),
        (step(0), "not image 3, action None"),
        (
            batch(*range(8)),
            "A batch of 8 transitions does not fit into a ring of 7; raise its capacity",
        ),
    ],
)
def test_uneven_or_too_long_batches_raise(columns, message):
    ring = HostRing(CAPACITY, step(0))
    with pytest.raises(ReplayError, match=message):
        ring.extend(columns)
    assert len(ring) == 0
    with pytest.raises(ReplayError, match="Cannot sample 32 transitions: the ring holds none"):
        ring.sample(np.random.default_rng(0), 32)


@pytest.mark.parametrize(
    ("capacity", "example", "message"),
    [
        (0, step(0), "A ring of 0 transitions holds nothing"),
        (3, 1.0, "A float names no column; begin a ring with a NamedTuple or a dictionary"),
        (3, {}, "A dict names no column"),
        (3, {"info": None}, "Column info of the example has dtype object; give it numbers"),
    ],
)
def test_rings_without_capacity_or_numeric_columns_raise(capacity, example, message):
    with pytest.raises(ReplayError, match=message):
        HostRing(capacity, example)
