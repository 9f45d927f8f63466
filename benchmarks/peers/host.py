"""libraries -> rows about a replay on the host: draws of 256, adds of one and of 1000"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.harness import Goal, Measured, Row, Without, race, repeat
from benchmarks.peers import buffers
from benchmarks.peers.buffers import LIBRARIES, MANY, Replay, Transition, Work, numbered

STORED, FLOATS, BATCH = 100_000, 2, 256
LARGE_STORED, LARGE_FLOATS = 20_000, 1000
GOALS = {"cpprb": 3.0, "stable-baselines3": 8.0, "torchrl": 8.0, "flashbax": 10.0}
LARGE_GOALS = {"cpprb": 0.95}
ADD_GOALS = {"stable-baselines3": 3.0, "cpprb": 20.0}
EXTEND_GOALS = {"stable-baselines3": 2.0, "cpprb": 20.0}
WITHOUT_TIMEOUTS = "stable-baselines3, no timeouts"
ADD_TRIED = (
    "memoryviews of columns of numbers, a check of remembered types, one look at all columns: no"
    " gain; half of it is the check that a transition fits, which the others leave out"
)
EXTEND_TRIED = "slices alone, without any check, take what the limit says"


def rows(rounds: int) -> list[Row]:
    """Returns rows of small replays, where overhead dominates, and of large ones, where memory
    does: the limit of a draw is a gather.
    """
    small, large = numbered(STORED, FLOATS), numbered(LARGE_STORED, LARGE_FLOATS)
    replays, limit = filled(small), buffers.gathers(small, BATCH)
    draws = {name: replay.draw for name, replay in replays.items()}
    times = raced(draws | {"limit": limit.draw, "indexing": indexing(small)}, rounds)
    without = Without("np.take, and picks by floor(u N)", times.pop("indexing"))
    draw_rows = compared(f"draw of {BATCH}, {FLOATS} floats", times, GOALS)
    if "stable-baselines3" in replays:
        replays[WITHOUT_TIMEOUTS] = buffers.stable_baselines3(small, BATCH, timeouts=False)
    adds = {name: replay.add for name, replay in replays.items()}
    extends = {name: replay.extend for name, replay in replays.items()} | {"limit": limit.extend}
    return [
        *(row._replace(without=without) for row in draw_rows),
        *large_draw_rows(filled(large), large, rounds),
        *compared(f"add of one, {FLOATS} floats", raced(adds, rounds), ADD_GOALS, ADD_TRIED),
        *compared(
            f"add of {MANY}, {FLOATS} floats", raced(extends, rounds), EXTEND_GOALS, EXTEND_TRIED
        ),
    ]


def filled(data: Transition) -> dict[str, Replay]:
    """Builds ours and those of libraries, all with the same transitions.

    Raises:
        NotComparable: one draws others, or not uniformly.
    """
    makers = {"ours": buffers.ours, **LIBRARIES}
    result = {name: make(data, BATCH) for name, make in makers.items()}
    for name, replay in result.items():
        buffers.refuse_other_draws(name, replay, data, BATCH)
    return result


def large_draw_rows(replays: Mapping[str, Replay], data: Transition, rounds: int) -> list[Row]:
    """Compares with each library, and with the limit alone."""
    draws = {name: replay.draw for name, replay in replays.items()}
    times = raced(draws | {"limit": buffers.gathers(data, BATCH).draw}, rounds)
    name, goal = f"draw of {BATCH}, {LARGE_FLOATS} floats", Goal(0.6, "limit")
    share = Row(name, "us/call", times["ours"], limit=times["limit"], goal=goal)
    return [share, *compared(name, times, LARGE_GOALS)]


def indexing(data: Transition) -> Work:
    """Draws integers with numpy and indexes each column by them."""
    rng = np.random.default_rng(buffers.SEED)
    columns = [column.copy() for column in data]

    def draw() -> Any:
        picks = rng.integers(0, len(columns[0]), BATCH)
        return Transition(*(column[picks] for column in columns))

    return draw


def raced(works: Mapping[str, Work | None], rounds: int) -> dict[str, Measured]:
    return race({name: repeat(work) for name, work in works.items() if work}, rounds)


def compared(
    name: str, times: Mapping[str, Measured], goals: Mapping[str, float], tried: str = ""
) -> list[Row]:
    """Returns a row for each library."""
    ours, limit = times["ours"], times.get("limit")
    rows = []
    for library, before in times.items():
        if library not in ("ours", "limit"):
            goal = Goal(goals[library], "before") if library in goals else None
            row = Row(name, "us/call", ours, before, limit=limit, goal=goal, against=library)
            rows.append(row._replace(tried=tried))
    return rows
