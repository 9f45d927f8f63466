"""contestants -> times -> rows: each round runs all, so that a busy machine slows them alike"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from tabulate import tabulate

from pipeline.reporting.speed import (
    FACTORS,
    PLAIN,
    PROPOSED,
    VARIANT,
    Goal,
    Machine,
    Measured,
    Point,
    Results,
    Row,
    Without,
    asked,
)

__all__ = ["Goal", "Measured", "Point", "Row", "Without"]  # for those who measure, as all below
RATIOS = (PROPOSED, PLAIN, VARIANT)
VALUES = ("before", "seed's way", "ours", "without", "limit")
HEAD = ("row", "claim", "unit", *VALUES, *RATIOS, "goal", "met?", "compile s")


class NotTheSame(Exception):
    """Signals that contestants do not compute the same: their times must not be compared."""


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
    """Returns what is stored: a part names its row, and only `against` names a library."""
    fields = {name: settings[name] for name in ("device", "cpu", "threads")}
    versions = {name: text for name, text in settings.items() if name not in fields}
    machine = Machine(backend=report.backend, versions=versions, **fields)
    rows: list[Row] = []
    above = ""
    for row in report.rows:
        name, _, other = row.name.strip().partition("; before: ")
        against = other if other.startswith(row.against) else row.against
        name = name if other == against else row.name.strip()
        above = above if row.name.startswith(" ") else name
        part_of = row.part_of or (above if row.name.startswith(" ") else "")
        rows.append(row._replace(name=name, against=against, part_of=part_of))
    return Results(machine, rounds, rows, report.notes)


def render(rows: Sequence[Row]) -> str:
    """Renders rows as text: medians in their unit, ratios with their least and greatest."""
    return tabulate(
        [_cells(row) for row in rows],
        HEAD,
        tablefmt="simple",
        disable_numparse=True,
        preserve_whitespace=True,
    )


def _cells(row: Row) -> list[str]:
    sides = (row.before, row.seed_way, row.ours, row.without and row.without.measured, row.limit)
    ratios = map(row.ratios.get, RATIOS)
    return [
        f"{'  ' if row.part_of else ''}{row.name}",
        ", ".join(row.claims),
        row.unit,
        *(f"{side.median * FACTORS[row.unit]:.3g}" if side else "" for side in sides),
        *(f"{it.median:.3g} ({it.least:.3g}..{it.greatest:.3g})" if it else "" for it in ratios),
        asked(row) if row.goal else "",
        {None: "", True: "yes", False: "no"}[row.goal_reached],
        f"{row.ours.compile_seconds:.1f}",
    ]
