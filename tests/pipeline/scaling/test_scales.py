"""Tests of the axes on which values of keys are drawn."""

from typing import Any

import numpy as np
import pytest

from pipeline.scaling.result import Dimension
from pipeline.scaling.scales import OUTSIDE, fences, scale_of


def labels(dimension: Dimension, values: tuple[Any, ...] = (), most: int = 10) -> list[str]:
    return [tick.label for tick in scale_of(dimension, values, most).ticks]


@pytest.mark.parametrize(
    ("dimension", "expected"),
    [
        (Dimension(1e-4, 1e-1, True, None), ["0.0001", "0.001", "0.01", "0.1"]),
        (Dimension(1e-7, 1e-5, True, None), ["1e-7", "1e-6", "1e-5"]),
        (Dimension(16, 512, True, None), ["16", "30", "100", "300", "512"]),
        (Dimension(1, 6, False, None), ["1", "2", "3", "4", "5", "6"]),
        (Dimension(3, 3, False, None), ["3"]),
        (Dimension(None, None, False, (True, None, "a", 1.5)), ["true", "null", "a", "1.5"]),
        (Dimension(None, None, False, ([64, 64],)), ["[64, 64]"]),
    ],
)
def test_ticks_are_the_ends_and_round_numbers_or_the_choices(
    dimension: Dimension, expected: list[str]
):
    assert labels(dimension) == expected


def test_positions_are_shares_of_the_range_or_of_its_logarithm():
    linear, log = (scale_of(Dimension(1e-4, 1e-2, is_log, None), ()) for is_log in (False, True))
    assert log.position(1e-3) == pytest.approx(0.5)
    assert linear.position(1e-3) == pytest.approx(1 / 11)
    for scale in (linear, log):
        np.testing.assert_allclose([scale.position(each) for each in (1e-4, 1e-2)], [0, 1])


def test_the_axis_reaches_values_beyond_the_range_and_has_a_place_for_no_numbers():
    scale = scale_of(Dimension(1e-4, 1e-2, True, None), (1e-1, 0, None, True))
    assert (scale.low, scale.high) == (1e-4, 1e-1)
    assert [scale.position(each) for each in (0, None, True)] == [OUTSIDE] * 3
    assert scale.ticks[0].position == OUTSIDE < 0


def test_choices_that_differ_in_type_alone_have_places_of_their_own():
    choices = (1, 1.0, True, "1")
    scale = scale_of(Dimension(None, None, False, choices), ())
    assert len({scale.position(choice) for choice in choices}) == 4
    assert [tick.label for tick in scale.ticks] == ["1: 1", "2: 1", "3: true", "4: 1"]


def test_long_choices_are_shortened_and_numbered_where_they_then_look_alike():
    alike = tuple(f"a_decoder_{letter}_of_many_layers" for letter in "abc")
    shown = labels(Dimension(None, None, False, alike))
    assert [text[:3] for text in shown] == ["1: ", "2: ", "3: "]
    assert max(map(len, shown)) <= 17


@pytest.mark.parametrize("most", [4, 5, 10])
def test_no_axis_has_far_more_ticks_than_allowed(most: int):
    many = tuple(range(1000))
    for dimension in (
        Dimension(1e-30, 1e30, True, None),
        Dimension(0, 99999, False, None),
        Dimension(0.1, 0.3, False, None),
        Dimension(None, None, False, many),
    ):
        assert 1 <= len(labels(dimension, most=most)) <= most + 1


def test_fences_leave_out_values_far_from_the_quartiles():
    assert fences([1.0, 2.0, 3.0, 4.0, 1e9]) == (1.0, 4.0)
    assert fences([-1e9, 1.0, 2.0, 3.0, 4.0]) == (1.0, 4.0)
    assert fences([5.0, 5.0, 5.0, 5.0, 7.0]) == (5.0, 7.0)
