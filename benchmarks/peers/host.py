"""libraries -> rows about a replay on the host: draws of 256, adds of one and of 1000"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from benchmarks.harness import Goal, Measured, Row, Without, race
from benchmarks.peers import buffers
from benchmarks.peers.buffers import LIBRARIES, MANY, Replay, Transition, Work, numbered
from benchmarks.repeat import repeat

STORED, LARGE_STORED = 100_000, 20_000
FLOATS, LARGE_FLOATS = 2, 1000
BATCH = 256
GOALS = {"cpprb": 3.0, "stable-baselines3": 8.0, "torchrl": 8.0, "flashbax": 10.0}
LARGE_GOALS = {"cpprb": 0.95}
LARGE_SHARE = 0.6
"""Of the speed of np.take."""
ADD_GOALS = {"stable-baselines3": 3.0, "cpprb": 20.0}
EXTEND_GOALS = {"stable-baselines3": 2.0, "cpprb": 20.0}
WITHOUT_TIMEOUTS = "stable-baselines3, no timeouts"
ADD_TRIED = (
    "memoryviews of columns of numbers, a check of remembered types, one look at all columns: no"
    " gain; half of it is the check that a transition fits, which the others leave out"
)
EXTEND_TRIED = "slices alone, without any check, take what the limit says"


def rows(libraries: Iterable[str], rounds: int) -> list[Row]:
    """Returns all rows with the available libraries."""
    names = [name for name in LIBRARIES if name in set(libraries)]
    return [
        *small_draw_rows(names, rounds),
        *large_draw_rows(names, rounds),
        *add_rows(names, rounds),
    ]


def replays(libraries: Iterable[str], data: Transition) -> dict[str, Replay]:
    """Builds ours and those of libraries, all with the same transitions.

    Raises:
        NotTheSame: one draws others, or not uniformly.
    """
    makers = {"ours": buffers.ours, **{name: LIBRARIES[name] for name in libraries}}
    result = {name: make(data, BATCH) for name, make in makers.items()}
    for name, replay in result.items():
        buffers.refuse_other_draws(name, replay, data, BATCH)
    return result


def small_draw_rows(libraries: Iterable[str], rounds: int) -> list[Row]:
    """Measures small replays, where overhead dominates."""
    data = numbered(STORED, FLOATS)
    works = {name: replay.draw for name, replay in replays(libraries, data).items()}
    works |= {"limit": buffers.gathers(data, BATCH).draw, "indexing": indexing(data)}
    times = raced(works, rounds)
    without = Without("np.take, and picks by floor(u N)", times.pop("indexing"))
    rows = compared(f"draw of {BATCH}, {FLOATS} floats", times, GOALS)
    return [row._replace(without=without) for row in rows]


def indexing(data: Transition) -> Work:
    """Draws integers with numpy and indexes each column by them."""
    rng = np.random.default_rng(buffers.SEED)
    columns = [column.copy() for column in data]

    def draw() -> Any:
        picks = rng.integers(0, len(columns[0]), BATCH)
        return Transition(*(column[picks] for column in columns))

    return draw


def large_draw_rows(libraries: Iterable[str], rounds: int) -> list[Row]:
    """Measures large replays, where memory dominates: the limit is a gather."""
    data = numbered(LARGE_STORED, LARGE_FLOATS)
    works = {name: replay.draw for name, replay in replays(libraries, data).items()}
    times = raced(works | {"limit": buffers.gathers(data, BATCH).draw}, rounds)
    name = f"draw of {BATCH}, {LARGE_FLOATS} floats"
    goal = Goal(LARGE_SHARE, "limit")
    share = Row(name, "us/call", times["ours"], limit=times["limit"], goal=goal)
    return [share, *compared(name, times, LARGE_GOALS)]


def add_rows(libraries: Iterable[str], rounds: int) -> list[Row]:
    """Measures adds of one and of a thousand."""
    data = numbered(STORED, FLOATS)
    replay_of = replays(libraries, data)
    if "stable-baselines3" in replay_of:
        replay_of[WITHOUT_TIMEOUTS] = buffers.stable_baselines3(data, BATCH, timeouts=False)
    times = raced({name: item.add for name, item in replay_of.items() if item.add}, rounds)
    single = compared(f"add of one, {FLOATS} floats", times, ADD_GOALS, ADD_TRIED)
    replay_of["limit"] = buffers.gathers(data, BATCH)
    times = raced({name: item.extend for name, item in replay_of.items() if item.extend}, rounds)
    return [
        *single,
        *compared(f"add of {MANY}, {FLOATS} floats", times, EXTEND_GOALS, EXTEND_TRIED),
    ]


def raced(works: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, Measured]:
    return race({name: repeat(work) for name, work in works.items()}, rounds)


def compared(
    name: str, times: Mapping[str, Measured], goals: Mapping[str, float], tried: str = ""
) -> list[Row]:
    """Returns a row for each library; `tried` stands where a goal is missed."""
    rows = [
        Row(
            f"{name}; before: {side}",
            "us/call",
            times["ours"],
            before=measured,
            limit=times.get("limit"),
            goal=Goal(goals[side], "before") if side in goals else None,
            against=side.partition(",")[0],
        )
        for side, measured in times.items()
        if side not in ("ours", "limit")
    ]
    return [row if row.goal_reached in (None, True) else row._replace(tried=tried) for row in rows]
