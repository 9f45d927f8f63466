"""libraries -> rows about a replay on the host: draws of 256 transitions, single adds and adds of a
thousand
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from benchmarks.harness import Contestant, Measured, race
from benchmarks.peers import buffers
from benchmarks.peers.buffers import (
    LIBRARIES,
    MANY,
    Replay,
    Transition,
    Work,
    numbered,
    refuse_other_draws,
)
from benchmarks.table import Goal, Point, Row, Without

STORED, LARGE_STORED = 100_000, 20_000
FLOATS, LARGE_FLOATS = 2, 1000
BATCH = 256
CAPACITIES, BATCHES = (10_000, 100_000, 1_000_000), (32, 256, 2048)
TURN_SECONDS = 0.02
"""What a turn lasts at least, about."""
GOALS = {"cpprb": 3.0, "stable-baselines3": 8.0, "torchrl": 8.0, "flashbax": 10.0}
LARGE_GOALS = {"cpprb": 0.95}
LARGE_SHARE = 0.6
ADD_GOALS, EXTEND_GOALS = (
    {"stable-baselines3": 3.0, "cpprb": 20.0},
    {"stable-baselines3": 2.0, "cpprb": 20.0},
)
WITHOUT_TIMEOUTS = "stable-baselines3, no timeouts"
ADD_TRIED = (
    "memoryviews of columns of numbers, a check of remembered types, one look at all columns: no"
    " gain; half of it is the check that a transition fits (without), which the others leave out"
)
EXTEND_TRIED = "slices alone, without any check, take what the limit says"
CURVE_NAME, CURVE = "draws on the host", "cpprb"
"""The library that the curves are drawn with: the fastest of the others."""


def rows(libraries: Iterable[str], rounds: int) -> list[Row]:
    """Returns all rows with the available libraries."""
    selected = [name for name in LIBRARIES if name in set(libraries)]
    actual = [
        *small_rows(selected, rounds),
        *large_rows(selected, rounds),
        *add_rows(selected, rounds),
    ]
    return actual + (curve_rows(rounds) if CURVE in selected else [])


def replays(libraries: Iterable[str], data: Transition, batch: int) -> dict[str, Replay]:
    """Ours and those of libraries, all with the same transitions.

    Raises:
        NotTheSame: one draws others, or not uniformly.
    """
    actual = {"ours": buffers.ours(data, batch)} | {
        name: LIBRARIES[name](data, batch) for name in libraries
    }
    for name, replay in actual.items():
        refuse_other_draws(name, replay, data, batch)
    return actual


def small_rows(libraries: Iterable[str], rounds: int) -> list[Row]:
    """Measures small replays, where overhead dominates; without `take`, ours indexes like a first
    attempt.
    """
    data = numbered(STORED, FLOATS)
    works = {name: replay.draw for name, replay in replays(libraries, data, BATCH).items()}
    times = raced(
        works | {"limit": buffers.gathers(data, BATCH).draw, "fancy": fancy(data)}, rounds
    )
    without = Without("np.take, and picks by floor(u N)", times.pop("fancy"))
    actual = compared(f"draw of {BATCH}, {FLOATS} floats", times, GOALS)
    return [row._replace(without=without) for row in actual]


def fancy(data: Transition) -> Work:
    """Draws integers with numpy and indexes each column by them."""
    rng, kept = np.random.default_rng(buffers.SEED), [column.copy() for column in data]

    def draw() -> Any:
        picks = rng.integers(0, len(kept[0]), BATCH)
        return Transition(*(column[picks] for column in kept))

    return draw


def large_rows(libraries: Iterable[str], rounds: int) -> list[Row]:
    """Measures large replays, where memory dominates: the limit is a gather."""
    data = numbered(LARGE_STORED, LARGE_FLOATS)
    works = {name: replay.draw for name, replay in replays(libraries, data, BATCH).items()}
    times = raced(works | {"limit": buffers.gathers(data, BATCH).draw}, rounds)
    name = f"draw of {BATCH}, {LARGE_FLOATS} floats"
    share = Row(
        name, "us/call", times["ours"], limit=times["limit"], goal=Goal(LARGE_SHARE, "limit")
    )
    return [share, *compared(name, times, LARGE_GOALS)]


def add_rows(libraries: Iterable[str], rounds: int) -> list[Row]:
    """Measures adds of one and of a thousand."""
    libraries, data = list(libraries), numbered(STORED, FLOATS)
    actual = replays(libraries, data, BATCH)
    if "stable-baselines3" in actual:
        actual[WITHOUT_TIMEOUTS] = buffers.stable_baselines3(data, BATCH, timeouts=False)
    works = {name: replay.add for name, replay in actual.items() if replay.add}
    times = raced(works | {"unchecked": unchecked(data)}, rounds)
    without = Without("the check of shapes and dtypes", times.pop("unchecked"))
    result = [
        row._replace(without=without)
        for row in compared(f"add of one, {FLOATS} floats", times, ADD_GOALS)
    ]
    actual["limit"] = buffers.gathers(data, BATCH)
    times = raced({name: replay.extend for name, replay in actual.items() if replay.extend}, rounds)
    result += compared(f"add of {MANY}, {FLOATS} floats", times, EXTEND_GOALS)
    return [
        row if row.goal_reached in (None, True) else row._replace(tried=tried(row))
        for row in result
    ]


def unchecked(data: Transition) -> Work:
    ring, item = buffers.Unchecked(len(data.reward), buffers.rows(data, 0)), buffers.one_of(data)
    return lambda: ring.add(item)


def tried(row: Row) -> str:
    return ADD_TRIED if row.without else EXTEND_TRIED


def curve_rows(rounds: int) -> list[Row]:
    """Measures how a draw scales with capacity and batch."""
    stored = [
        curve_row(
            f"  {at:,} stored",
            Point(f"{CURVE_NAME}: stored", "transitions stored", at),
            at,
            BATCH,
            rounds,
        )
        for at in CAPACITIES
    ]
    drawn = [
        curve_row(
            f"  a batch of {at}", Point(f"{CURVE_NAME}: batch", "batch", at), STORED, at, rounds
        )
        for at in BATCHES
    ]
    return stored + drawn


def curve_row(name: str, point: Point, stored: int, batch: int, rounds: int) -> Row:
    data = numbered(stored, FLOATS)
    works = {side: replay.draw for side, replay in replays([CURVE], data, batch).items()}
    times = raced(works | {"limit": buffers.gathers(data, batch).draw}, rounds)
    row = Row(
        f"{name}; before: {CURVE}", "us/call", times["ours"], times[CURVE], limit=times["limit"]
    )
    return row._replace(against=CURVE, point=point)


def compared(name: str, times: Mapping[str, Measured], goals: Mapping[str, float]) -> list[Row]:
    """Returns a row for each library."""
    others = {side: measured for side, measured in times.items() if side not in ("ours", "limit")}
    return [
        Row(
            f"{name}; before: {side}",
            "us/call",
            times["ours"],
            before=measured,
            limit=times.get("limit"),
            goal=Goal(goals[side], "before") if side in goals else None,
            against=side.partition(",")[0],
        )
        for side, measured in others.items()
    ]


def raced(works: Mapping[str, Work], rounds: int) -> dict[str, Measured]:
    """Races the works, each repeated as often as fits into TURN_SECONDS."""
    return race({name: lasting(work) for name, work in works.items()}, rounds)


def lasting(work: Work, clock: Callable[[], float] = time.perf_counter) -> Contestant:
    """Repeats work often enough to be timed. Compilation happened before."""
    work()
    begin = clock()
    work()
    calls = max(1, int(TURN_SECONDS / max(clock() - begin, 1e-6)))

    def run() -> None:
        for _ in range(calls):
            work()

    return Contestant(run, calls)
