"""learning curves of both sides, one for each seed -> rows and lines of text"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.harness import Goal, Measured, Row
from quatrain.statistics import half_interval

OURS, PEER = "ours", "stable-baselines3"
EVERY, LAST = 32_768, 294_912
CURVE = tuple(range(EVERY, LAST + 1, EVERY))
"""Transitions after which both are scored: ours has just validated its weights there."""
SHOWN = (32_768, 98_304, 196_608, 294_912)
COMPARED = 98_304
TRIED = (
    "larger batches, 128 colonies x 4 steps in minibatches of 512, take a quarter less time and"
    " gain no return; a third of the time is the environment's step,"
    " the rest small networks and Beta distributions"
)


class Point(NamedTuple):
    """Holds a score while learning. seconds: of CPU, of learning alone."""

    transitions: int
    seconds: float
    mean_return: float
    success: float


Curves = Mapping[str, Sequence[Sequence[Point]]]


def rows_of(curves: Curves) -> list[Row]:
    """Compares the seconds of each seed to so many transitions, and to the same return.

    The latter only where all seeds of both sides reach it.
    """
    rows = []
    for transitions in SHOWN:
        points = {name: _at(of_seeds, transitions) for name, of_seeds in curves.items()}
        row = _row(f"PPO on colonies, {transitions:,} transitions", points)
        compared = transitions == COMPARED
        rows.append(row._replace(goal=Goal(1.0, "before"), tried=TRIED) if compared else row)
    target = equal_return(curves)
    first = {name: first_points(of_seeds, target) for name, of_seeds in curves.items()}
    if all(len(first[name]) == len(curves[name]) for name in curves):
        rows.append(_row(f"PPO on colonies, to the return that {PEER} ends with", first))
    return rows


def _at(of_seeds: Sequence[Sequence[Point]], transitions: int) -> list[Point]:
    return [point for curve in of_seeds for point in curve if point.transitions == transitions]


def _row(name: str, points: Mapping[str, Sequence[Point]]) -> Row:
    ours, peer = (Measured([point.seconds for point in points[side]]) for side in (OURS, PEER))
    return Row(name, "s", ours, peer, against=PEER)


def equal_return(curves: Curves) -> float:
    """Returns the lowest final return of the other library's seeds, which all of them reach."""
    return min(curve[-1].mean_return for curve in curves[PEER])


def first_points(of_seeds: Sequence[Sequence[Point]], target: float) -> list[Point]:
    """Returns the first point of each curve that has the return; none of a curve without one."""
    above = [[point for point in curve if point.mean_return >= target] for curve in of_seeds]
    return [points[0] for points in above if points]


def lines_of(curves: Curves) -> list[str]:
    """Returns mean returns with 95 % intervals over seeds, and what the same return costs."""
    returns = [
        f"PPO on colonies, {name}, {len(of_seeds)} seeds: mean return "
        + ", ".join(_point(points) for points in zip(*of_seeds, strict=True))
        for name, of_seeds in curves.items()
    ]
    target = equal_return(curves)
    costs = [
        _cost(name, first_points(of_seeds, target), len(of_seeds))
        for name, of_seeds in curves.items()
    ]
    return [
        *returns,
        f"PPO on colonies, to a return of {target:.3f}, the lowest with which a seed of {PEER} "
        f"ends, scored every {EVERY:,} transitions: {'; '.join(costs)}",
    ]


def _cost(name: str, first: Sequence[Point], seeds: int) -> str:
    reached = f"{name} {len(first)} of {seeds} seeds"
    if not first:
        return reached
    transitions, seconds = (
        float(np.median([getattr(point, field) for point in first]))
        for field in ("transitions", "seconds")
    )
    return f"{reached}, median {transitions:,.0f} transitions and {seconds:.1f} s"


def _point(of_seeds: Sequence[Point]) -> str:
    returns = np.array([point.mean_return for point in of_seeds])
    success = np.mean([point.success for point in of_seeds])
    half = float(half_interval(returns))
    low, high = returns.mean() - half, returns.mean() + half
    return (
        f"{returns.mean():.3f} ({low:.3f}..{high:.3f}, success {success:.0%}) after "
        f"{of_seeds[0].transitions:,}"
    )
