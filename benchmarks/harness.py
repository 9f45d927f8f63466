"""contestants -> times: every round runs all of them, so that a busy machine slows them alike"""

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np


class Contestant(NamedTuple):
    """Holds work to time. `run` returns when the work is done and counts as `units` (steps, calls)
    of a row.
    """

    run: Callable[[], object]
    units: float = 1.0


class Measured(NamedTuple):
    """Holds seconds (or bytes) per unit, one value a round, and the time of the first call beyond
    the median.
    """

    values: np.ndarray
    compile_seconds: float = 0.0

    @property
    def median(self) -> float:
        return float(np.median(self.values))


class Ratio(NamedTuple):
    """Holds the quotient of two times: median, least and greatest over the rounds."""

    median: float
    least: float
    greatest: float


def race(
    contestants: Mapping[str, Contestant],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Measured]:
    """Times every contestant in every round. The first call (which compiles) is timed apart, the
    second is not timed.

    Every other round runs the contestants in reverse, so that none always follows the same other.
    """

    def seconds(name: str) -> float:
        begin = clock()
        contestants[name].run()
        return clock() - begin

    first = {name: seconds(name) for name in contestants}
    used: dict[str, list[float]] = {name: [] for name in contestants}
    for name in contestants:
        contestants[name].run()
    for index in range(rounds):
        for name in list(contestants)[:: -1 if index % 2 else 1]:
            used[name].append(seconds(name))
    return {
        name: Measured(
            np.array(used[name]) / contestants[name].units,
            max(0.0, first[name] - float(np.median(used[name]))),
        )
        for name in contestants
    }


def ratio(slower: Measured, faster: Measured) -> Ratio:
    """Divides round by round, since both times of a round are from the same conditions."""
    each = slower.values / faster.values
    return Ratio(float(np.median(each)), float(each.min()), float(each.max()))
