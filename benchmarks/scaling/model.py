"""measured trials -> how long a sweep takes on more nodes, by a simulation of discrete events"""

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

DRAWS = 200


class Costs(NamedTuple):
    """Holds what was measured on one node, in seconds.

    seconds: of the stages of each trial. overhead: of a trial beside its stages, on its node.
    driver: of the driver's processor per trial, which no other trial's can overlap. ends: before
    the first trial begins and after the last one ended.
    """

    seconds: Sequence[float]
    overhead: float
    driver: float
    ends: float


class Limits(NamedTuple):
    """Holds three times that no schedule can beat, in seconds; the greatest one limits."""

    nodes: float
    driver: float
    longest: float

    @property
    def name(self) -> str:
        return max(zip(self, ("nodes", "driver", "longest trial"), strict=True))[1]


def makespan(seconds: Sequence[float], costs: Costs, nodes: int) -> float:
    """Returns the time of a sweep whose trials take these seconds, one at a time on each node.

    The driver begins trials one after another; a trial begins when a node and the driver are free.
    Nodes are equal, nothing else runs on them, and no trial is stopped or repeated.
    """
    free = [0.0] * nodes
    driver_free = 0.0
    for duration in seconds:
        begun = max(heapq.heappop(free), driver_free)
        driver_free = begun + costs.driver
        heapq.heappush(free, driver_free + costs.overhead + duration)
    return costs.ends + max(free)


def limits(seconds: Sequence[float], costs: Costs, nodes: int) -> Limits:
    """Returns the bounds of `makespan` without `costs.ends`."""
    each = costs.driver + costs.overhead
    return Limits(
        nodes=sum(each + duration for duration in seconds) / nodes,
        driver=costs.driver * len(seconds),
        longest=each + max(seconds),
    )


class Estimate(NamedTuple):
    """Holds medians over draws: of the time, and of how many times as fast as one node."""

    nodes: int
    seconds: float
    speed_up: float
    limit: str


def estimates(
    costs: Costs, trials: int, nodes: Sequence[int], mean: float | None = None
) -> list[Estimate]:
    """Simulates sweeps of so many trials, their durations drawn from the measured ones.

    mean: seconds of an average trial, if other than measured; the durations are stretched.
    """
    measured = np.asarray(costs.seconds)
    stretch = 1.0 if mean is None else mean / measured.mean()
    generator = np.random.default_rng(0)
    draws = generator.choice(measured * stretch, size=(DRAWS, trials)).tolist()
    alone = np.array([makespan(draw, costs, 1) for draw in draws])
    result = []
    for count in nodes:
        times = np.array([makespan(draw, costs, count) for draw in draws])
        names = [limits(draw, costs, count).name for draw in draws]
        limit = max(sorted(set(names)), key=names.count)
        speed_up = float(np.median(alone / times))
        result.append(Estimate(count, float(np.median(times)), speed_up, limit))
    return result
