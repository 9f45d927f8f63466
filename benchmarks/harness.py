"""contestants -> times -> rows: each round runs all, so that a busy machine slows them alike"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import speed
from benchmarks.speed import Goal, Measured, Results, Row, Without
from pipeline.storage.params_file import read_params

__all__ = ["Goal", "Measured", "Row", "Without"]  # for those who measure, as all below
TIMES = ("row", "unit", "before", "seed's way", "ours", "limit")
RATIOS = ("before / ours", "seed's way / ours", "of the limit", "without / ours", "compile s")
HEAD = (*TIMES, *RATIOS, "goal", "met?")
TURN, MOST = 0.006, 20_000
"""Seconds of a turn of short work, or longer where one call takes longer; calls in a turn."""
COMPILED = 0.05
"""Seconds from which a first call counts as compiling."""


class NotComparable(Exception):
    """Signals that contestants do not do the same, or fail: their times must not be compared."""


class Contestant(NamedTuple):
    """Holds work to time. `run` returns when the work is done and counts as `units` (steps, calls)
    of a row.
    """

    run: Callable[[], object]
    units: float = 1.0


class Report(NamedTuple):
    """Holds what a benchmark measured. The name of a part of the row above begins with a blank."""

    rows: Sequence[Row]
    notes: Sequence[str]
    backend: str


def read_config(root: Path, preset: str | None, model: str, changes: Mapping[str, Any]) -> Any:
    """Returns a model's config of a preset (None: params.yaml) with some values changed."""
    return getattr(read_params(root, preset, {model: changes}), model)


def repeat(work: Callable[[], object], units: float = 1.0) -> Contestant:
    """Repeats short work until a timing is long enough; one repetition counts as `units`."""
    work()
    begin = time.perf_counter()
    work()
    calls = max(1, min(MOST, round(TURN / max(time.perf_counter() - begin, 1e-9))))

    def run() -> None:
        for _ in range(calls):
            work()

    return Contestant(run, calls * units)


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

    caller = sys._getframe(1)
    place = f"{caller.f_globals['__name__'].removeprefix('benchmarks.')}.{caller.f_code.co_name}"
    print(f"{place}: {', '.join(contestants)}", file=sys.stderr, flush=True)
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


def results_of(report: Report, settings: Mapping[str, str], rounds: int) -> Results:
    """Returns what is stored, where a part names its row."""
    fields = {name: settings[name] for name in ("device", "cpu", "threads")}
    versions = {name: text for name, text in settings.items() if name not in fields}
    machine = speed.Machine(backend=report.backend, versions=versions, **fields)
    rows: list[Row] = []
    above = ""
    for row in report.rows:
        if row.name.startswith(" "):
            row = row._replace(name=row.name.strip(), part_of=row.part_of or above)
        else:
            above = row.name
        rows.append(row)
    return Results(machine, rounds, rows, report.notes)


def cells(row: Row) -> list[str]:
    """Returns what HEAD names: medians in the row's unit, ratios with their least and greatest."""
    ratios = row.ratios
    sides = [value(side, row.unit) for side in (row.before, row.seed_way, row.ours, row.limit)]
    if row.before and row.against != speed.REFERENCE:
        sides[0] += f" ({row.against})"
    without = f": {row.without.what}" if row.without else ""
    limit, compiling = ratios.get(speed.LIMIT), row.ours.compile_seconds
    return [
        row.title,
        speed.in_words(row.unit),
        *sides,
        spread(ratios.get(speed.PLAIN)),
        spread(ratios.get(speed.VARIANT)),
        speed.percent(limit.median) if limit else "-",
        spread(ratios.get(speed.WITHOUT)) + without,
        f"{compiling:.1f}" if compiling >= COMPILED else "-",
        speed.asked(row),
        {None: "", True: "yes", False: "no"}[row.goal_reached],
    ]


def spread(ratio: speed.Ratio | None) -> str:
    """Formats a ratio as `4.76x (3.92..5.19)`."""
    if ratio is None:
        return "-"
    median, least, greatest = (speed.times(number) for number in ratio)
    return median if least == greatest else f"{median} ({least[:-1]}..{greatest[:-1]})"


def value(measured: Measured | None, unit: str) -> str:
    """Formats a median without its unit."""
    return "-" if measured is None else speed.in_unit(measured.median, unit).split()[0]
