"""values of a key -> positions from 0 to 1 and labels, for ranges and for choices."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.ticker import MaxNLocator

from pipeline.scaling.labels import as_json, shortened, text_of
from pipeline.scaling.result import Dimension

# Position of a value that a range cannot show, such as null, or 0 on a log axis.
OUTSIDE = -0.1
# Longest label of a choice, in characters.
LONGEST = 14


class Tick(NamedTuple):
    position: float
    label: str


class Scale(NamedTuple):
    """Holds the axis of a key. options: the JSON of each choice; empty for a range."""

    low: float
    high: float
    is_log: bool
    options: tuple[str, ...]
    ticks: tuple[Tick, ...]

    def position(self, value: Any) -> float:
        """Returns 0 at the lower end, 1 at the upper one, OUTSIDE if the axis has no such value."""
        if self.options:
            return _middle(self.options.index(as_json(value)), len(self.options))
        if not _fits(value, self.is_log):
            return OUTSIDE
        return _fraction(value, self.low, self.high, self.is_log)


def scale_of(dimension: Dimension, values: Sequence[Any], most: int = 10) -> Scale:
    """Returns the axis of a key, wide enough for all these values, with at most `most` ticks."""
    if dimension.choices is not None:
        return _scale_of_choices(dimension.choices, values, most)
    assert dimension.low is not None  # a range has both ends
    assert dimension.high is not None
    inside = [value for value in values if _fits(value, dimension.is_log)]
    low, high = min([dimension.low, *inside]), max([dimension.high, *inside])
    between = nice_numbers(low, high, dimension.is_log, most - 2, _are_whole(dimension, inside))
    ticks = _with_ends(
        [Tick(_fraction(n, low, high, dimension.is_log), text_of(n)) for n in between],
        Tick(_fraction(low, low, high, dimension.is_log), text_of(low)),
        Tick(_fraction(high, low, high, dimension.is_log), text_of(high)),
        distance=max(0.09, 0.8 / most),
    )
    others = {text_of(value): None for value in values if not _fits(value, dimension.is_log)}
    if others:
        ticks.insert(0, Tick(OUTSIDE, shortened(" or ".join(others), LONGEST)))
    return Scale(low, high, dimension.is_log, (), tuple(ticks))


def _with_ends(ticks: Sequence[Tick], first: Tick, last: Tick, distance: float) -> list[Tick]:
    """Returns the ends of a range, and the ticks that are at least `distance` from them."""
    if first.position == last.position:
        return [first]
    low, high = first.position + distance - 1e-9, last.position - distance + 1e-9
    return [first, *(tick for tick in ticks if low <= tick.position <= high), last]


def _scale_of_choices(choices: Sequence[Any], values: Sequence[Any], most: int) -> Scale:
    texts = {as_json(value): text_of(value) for value in (*choices, *values)}
    labels = [shortened(text, LONGEST) for text in texts.values()]
    if len(set(labels)) < len(labels):
        labels = [f"{i}: {label}" for i, label in enumerate(labels, 1)]
    every = math.ceil(len(labels) / most)
    ticks = (Tick(_middle(i, len(labels)), label) for i, label in enumerate(labels))
    return Scale(0.0, 1.0, False, tuple(texts), tuple(ticks)[::every])


def nice_numbers(
    low: float, high: float, is_log: bool, most: int, is_whole: bool = False
) -> list[float]:
    """Returns round numbers from low to high: at least one, and at most `most`."""
    if low == high:
        return [low]
    if is_whole and high - low <= most + 3:
        return list(range(round(low), round(high) + 1))
    numbers: list[float] = []
    if is_log:
        for digits in ((1,), (1, 3), (1, 2, 5)):
            numbers = _decades(low, high, digits) if len(numbers) < 3 else numbers
    if len(numbers) < 3:
        locator = MaxNLocator(max(most - 1, 2), integer=is_whole, steps=[1, 2, 2.5, 5, 10])
        numbers = [round(float(n), 12) for n in locator.tick_values(low, high)]
    inside = [number for number in numbers if low <= number <= high]
    if is_whole:
        inside = [round(number) for number in inside]
    return inside[:: math.ceil(len(inside) / most)] or [low, high]


def fences(values: Sequence[float]) -> tuple[float, float]:
    """Returns the least and the greatest value that are no outliers: within three times the
    distance of the quartiles from them.
    """
    lower, upper = np.quantile(values, (0.25, 0.75))
    reach = 3 * (upper - lower) or math.inf
    inside = [value for value in values if lower - reach <= value <= upper + reach]
    return min(inside), max(inside)


def _decades(low: float, high: float, digits: Sequence[int]) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    numbers = (float(f"{digit}e{power}") for power in powers for digit in digits)
    return [number for number in numbers if low <= number <= high]


def _are_whole(dimension: Dimension, values: Sequence[Any]) -> bool:
    return all(isinstance(n, int) for n in (dimension.low, dimension.high, *values))


def _fits(value: Any, is_log: bool) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return math.isfinite(value) and (value > 0 or not is_log)


def _fraction(value: float, low: float, high: float, is_log: bool) -> float:
    if low == high:
        return 0.5
    if is_log:
        value, low, high = np.log([value, low, high])
    return float((value - low) / (high - low))


def _middle(index: int, count: int) -> float:
    return (index + 0.5) / count
