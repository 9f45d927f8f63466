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
    image = (np.arange(6, dtype=np.uint8).reshape(3, 2) + number) % 251
    return Step(
        image.astype(np.uint8), np.int8(number % 5), np.float32(number), np.bool_(number % 3 == 0)
    )


def batch(*numbers: int) -> Step:
    return Step(*map(np.array, zip(*map(step, numbers), strict=True)))


def as_dicts(drawn: Step) -> list[dict]:
    rows = zip(*drawn, strict=True)
    return [
        {name: value.tolist() for name, value in zip(Step._fields, row, strict=True)}
        for row in rows
    ]


def contents(ring: HostRing) -> list[dict]:
    """Returns all transitions that can be drawn, by number."""
    drawn = as_dicts(ring.sample(np.random.default_rng(0), 60 * len(ring)))
    return [
        dict(single)
        for single in sorted(
            {tuple(row.items()) for row in map(hashable, drawn)}, key=lambda single: single[2]
        )
    ]


def hashable(row: dict) -> dict:
    return row | {"image": str(row["image"])}


def expected(plain: list[Step]) -> list[dict]:
    newest = sorted(plain[-CAPACITY:], key=lambda single: float(single.number))
    return [
        hashable({name: np.asarray(value).tolist() for name, value in single._asdict().items()})
        for single in newest
    ]


def test_after_three_laps_the_ring_equals_a_list_of_the_newest():
    ring, plain = HostRing(CAPACITY, step(0)), []
    sizes = [1, 0, 3, 1, 5, 7, 2, 1, 6, 4]
    for size in sizes:
        numbers = range(len(plain), len(plain) + size)
        plain += map(step, numbers)
        if size == 1:
            ring.add(step(numbers[0]))
        elif size:
            ring.extend(batch(*numbers))
        else:
            ring.extend(Step(*(column[:0] for column in batch(1))))
        assert len(ring) == min(len(plain), CAPACITY)
        assert contents(ring) == expected(plain)
    assert len(plain) > 3 * CAPACITY


def test_add_and_extend_are_equivalent():
    one_by_one, at_once = HostRing(CAPACITY, step(0)), HostRing(CAPACITY, step(0))
    for number in range(10):
        one_by_one.add(step(number))
    at_once.extend(batch(0, 1, 2, 3))
    at_once.extend(batch(4, 5, 6, 7, 8, 9))
    drawn = [ring.sample(np.random.default_rng(3), 40) for ring in (one_by_one, at_once)]
    for single, other in zip(*drawn, strict=True):
        np.testing.assert_array_equal(single, other)


def test_draws_are_uniform_over_the_stored_transitions():
    ring = HostRing(50, step(0))
    ring.extend(batch(*range(40)))
    for filled in (40, 50):
        numbers = ring.sample(np.random.default_rng(1), 40_000).number.astype(int)
        counts = np.bincount(numbers - numbers.min(), minlength=filled)
        assert len(counts) == filled
        assert chisquare(counts).pvalue > 1e-4
        ring.extend(batch(*range(40, 65)))


def test_batches_are_new_contiguous_arrays_of_the_examples_dtypes():
    ring = HostRing(CAPACITY, step(0))
    ring.extend(batch(0, 1, 2))
    drawn = ring.sample(np.random.default_rng(0), 4)
    assert isinstance(drawn, Step)
    for column, like in zip(drawn, batch(0, 1, 2, 3), strict=True):
        assert column.flags.c_contiguous
        assert (column.shape, column.dtype) == (like.shape, like.dtype)
        column[:] = 0
    again = as_dicts(ring.sample(np.random.default_rng(0), 4))
    assert {row["image"][2][1] for row in again} <= {5, 6, 7}


def test_added_arrays_are_copied():
    ring, image = HostRing(2, step(0)), np.full((3, 2), 9, np.uint8)
    ring.add(step(0)._replace(image=image))
    image[:] = 1
    assert (ring.sample(np.random.default_rng(0), 3).image == 9).all()


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
    result = sorted(
        zip(
            *(column.tolist() for column in ring.sample(np.random.default_rng(0), 50)[1:]),
            strict=True,
        )
    )
    assert sorted(set(result)) == [(-128, 2.0, True), (1, 0.25, False), (127, 0.5, False)]


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        (
            "image",
            np.zeros((2, 3), np.uint8),
            r"Column image has shape \(2, 3\), not \(3, 2\); a ring keeps that of",
        ),
        ("image", np.uint8(3), r"Column image has shape \(\), not \(3, 2\)"),
        (
            "image",
            np.full((3, 2), 256),
            r"image is kept as uint8, which int64 values \(\[256\] first\) do not fit; cast",
        ),
        ("action", 128, "action is kept as int8, which int64"),
        (
            "action",
            np.array(2.5),
            r"action is kept as int8, which float64 values \(\[2.5\] first\)",
        ),
        ("number", np.zeros(1, np.float32), r"Column number has shape \(1,\), not \(\)"),
        ("number", "3", "number is kept as float32, which <U1"),
        ("done", 1, "done is kept as bool, which int64"),
    ],
)
def test_values_that_do_not_fit_raise_and_leave_the_ring_unchanged(column, value, said):
    ring = HostRing(CAPACITY, step(0))
    ring.extend(batch(*range(CAPACITY)))
    before = contents(ring)
    with pytest.raises(ReplayError, match=said):
        ring.add(step(9)._replace(**{column: value}))
    many = np.stack([value, value]) if not isinstance(value, str) else np.array([value, value])
    with pytest.raises(ReplayError, match=f"Column {column}"):
        ring.extend(batch(8, 9)._replace(**{column: many}))
    assert contents(ring) == before


def test_other_columns_raise():
    ring = HostRing(CAPACITY, step(0))
    said = (
        "A dict with image, action, number, done does not fit a ring of Step with image, "
        "action, number, done"
    )
    with pytest.raises(ReplayError, match=said):
        ring.add(step(0)._asdict())
    named = HostRing(CAPACITY, {"a": 1, "b": 2.0})
    with pytest.raises(
        ReplayError,
        match="A dict with a, c does not fit a ring of dict with a, b; give it what its exam",
    ):
        named.add({"a": 1, "c": 2.0})
    with pytest.raises(ReplayError, match="A tuple with no names"):
        named.extend((1, 2))


def test_uneven_or_too_long_batches_raise():
    ring = HostRing(CAPACITY, step(0))
    with pytest.raises(
        ReplayError,
        match="equally many rows, not image 2, action 2, number 3, done 2; `add` takes one",
    ):
        ring.extend(batch(0, 1)._replace(number=np.zeros(3, np.float32)))
    with pytest.raises(ReplayError, match="not image 3, action None"):
        ring.extend(step(0))
    with pytest.raises(
        ReplayError,
        match="A batch of 8 transitions does not fit into a ring of 7; raise its capacity",
    ):
        ring.extend(batch(*range(8)))
    assert len(ring) == 0


def test_sampling_an_empty_ring_raises():
    with pytest.raises(ReplayError, match="Cannot sample 32 transitions: the ring holds none"):
        HostRing(CAPACITY, step(0)).sample(np.random.default_rng(0), 32)


def test_rings_without_capacity_or_numeric_columns_raise():
    with pytest.raises(ReplayError, match="A ring of 0 transitions holds nothing"):
        HostRing(0, step(0))
    with pytest.raises(
        ReplayError, match="A float names no column; begin a ring with a NamedTuple or a dictionary"
    ):
        HostRing(3, 1.0)
    with pytest.raises(ReplayError, match="A dict names no column"):
        HostRing(3, {})
    with pytest.raises(
        ReplayError, match="Column info of the example has dtype object; give it numbers"
    ):
        HostRing(3, {"info": None})
