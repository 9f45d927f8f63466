"""contestants -> times: all of them run in every round, so that a busy machine slows them alike."""

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np


class Contestant(NamedTuple):
    """Work to time. `run` returns when the work is done; it is `units` of what a row counts (steps, calls)."""

    run: Callable[[], object]
    units: float = 1.0


class Measured(NamedTuple):
    """Seconds (or bytes) per unit, one number a round; apart from them what the first call took beyond the median."""

    values: np.ndarray
    compile_seconds: float = 0.0

    @property
    def median(self) -> float:
        return float(np.median(self.values))


class Ratio(NamedTuple):
    """How many times as much one took as the other: median, least and greatest of the rounds."""

    median: float
    least: float
    greatest: float


def race(
    contestants: Mapping[str, Contestant],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Measured]:
    """Measured of each. The first call (which compiles) is timed apart, the second not at all.

    Every other round goes through the contestants backwards, so that none always runs behind the same other.
    """

    def seconds(name: str) -> float:
        begin = clock()
        contestants[name].run()
        return clock() - begin

    first = {name: seconds(name) for name in contestants}
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    for name in contestants:
        contestants[name].run()
    for index in range(rounds):
        for name in list(contestants)[:: -1 if index % 2 else 1]:
            taken[name].append(seconds(name))
    return {
        name: Measured(
            np.array(taken[name]) / contestants[name].units,
            max(0.0, first[name] - float(np.median(taken[name]))),
        )
        for name in contestants
    }


def ratio(slower: Measured, faster: Measured) -> Ratio:
    """Round by round, because the two of one round met the same machine."""
    each = slower.values / faster.values
    return Ratio(float(np.median(each)), float(each.min()), float(each.max()))
