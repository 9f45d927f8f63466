"""benchmarks/results/NAME.json -> rows with their names in full: what a benchmark kept, for all that is made of it."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict

from benchmarks import harness
from benchmarks.table import FACTORS
from pipeline.reporting import speed
from quatrain.registry import MODELS

COMMANDS = {
    **{name: f"make bench BENCH={name}" for name in (*MODELS, "machine")},
    "peers": "make bench-peers",
    "iqn_to_return": "make bench-return",
}
"""Benchmark -> what measures it; in the order in which they are told."""

LIBRARIES = (
    "cleanrl",
    "cpprb",
    "dopamine",
    "flashbax",
    "rejax",
    "stable-baselines3",
    "tianshou",
    "torchrl",
)
"""What the benchmarks of models may be compared with, too."""
BEFORE = re.compile(r"(^|[;,] *| )(before|against):? (?P<what>.+)$")
"""What a row's name says of the other side."""


class Measured(speed.Measured):
    """Seconds or bytes per unit, in each round."""

    rounds: list[float]
    compile_seconds: float


class Without(Measured):
    """Ours with something taken away."""

    what: str


class Point(BaseModel):
    """Where a row stands on a scaling curve."""

    model_config = ConfigDict(strict=True, frozen=True)
    curve: str
    axis: str
    at: float


class Row(speed.Row):
    """One comparison with all that was kept of it."""

    claims: list[str]
    before: Measured | None
    seed_way: Measured | None
    ours: Measured
    limit: Measured | None
    without: Without | None
    tried: str
    point: Point | None

    @property
    def is_part(self) -> bool:
        """Whether it is a part or a variant of the row above it."""
        return self.row.startswith(" ")


class Results(speed.Results):
    """What one benchmark kept; versions of libraries are in `model_extra`."""

    model_config = ConfigDict(strict=True, frozen=True, extra="allow")
    device: str
    python: str
    rows: list[Row]  # type: ignore[assignment]
    notes: list[str]

    @property
    def machine(self) -> dict[str, str]:
        """All that a figure depends on beside the code."""
        given = self.model_dump(include={"device", "cpu", "backend", "threads", "python"})
        return {**given, **(self.model_extra or {}), "rounds": str(self.rounds)}


class Named(NamedTuple):
    """A row, its benchmark, and a name that no other row of the benchmark has: parts bear that of the row above."""

    benchmark: str
    name: str
    row: Row


def read(folder: Path) -> dict[str, Results | None]:
    """Benchmark -> what it kept in a folder, or None where it was not run.

    Raises:
        ArtifactError: a file has another form.
    """
    return {
        name: speed.read_file(Path(), folder / f"{name}.json", Results, command)
        for name, command in COMMANDS.items()
    }


def named(found: dict[str, Results | None]) -> list[Named]:
    """All rows of all benchmarks."""
    return [
        one
        for name, results in found.items()
        if results is not None
        for one in _named(name, results.rows)
    ]


def _named(benchmark: str, rows: list[Row]) -> list[Named]:
    found: dict[str, Named] = {}
    above = ""
    for row in rows:
        own = row.row.strip()
        above = above if row.is_part else own
        name = whole = f"{above} / {own}" if row.is_part and above else own
        number = 1
        while name in found:
            number += 1
            name = f"{whole} ({number})"
        found[name] = Named(benchmark, name, row)
    return list(found.values())


def against_peers(rows: list[Named]) -> dict[str, dict[str, Named]]:
    """Work -> other library -> the row that compares it with ours; points of curves alone are left out."""
    found: dict[str, dict[str, Named]] = {}
    for one in rows:
        on_curve = one.row.is_part and one.row.point is not None
        if on_curve or not is_peer(one) or speed.PLAIN not in one.row.ratios:
            continue
        names = [BEFORE.sub("", part).strip() for part in one.name.split(" / ")]
        found.setdefault(" / ".join(filter(None, names)), {})[_library(one)] = one
    return found


def is_peer(one: Named) -> bool:
    """Whether `before` is another library; it may also be ours without something."""
    against = one.row.against
    return against.startswith(LIBRARIES) or (
        one.benchmark == "peers" and against != speed.REFERENCE
    )


def _library(one: Named) -> str:
    """A row's own words for it where they say more, as `torchrl, vectorised`."""
    words = BEFORE.search(one.row.row)
    told = words["what"].strip() if words else ""
    return told if one.row.against in told else one.row.against


def value(measured: Measured | None, unit: str) -> str:
    """A median as a table shows it, without its unit; '-' where nothing was measured."""
    return "-" if measured is None else f"{float(f'{measured.median * FACTORS[unit]:.3g}'):g}"


def between(slow: Measured | None, fast: Measured | None) -> speed.Ratio | None:
    """How many times as much one took as the other, of the rounds that both have."""
    if slow is None or fast is None:
        return None
    both = zip(slow.rounds, fast.rounds, strict=False)
    found = harness.ratio(*(harness.Measured(np.array(side)) for side in zip(*both, strict=True)))
    return speed.Ratio(**found._asdict())


def before(row: Row) -> str:
    """The median of what ours is compared with, and what that is where it is no plain reference."""
    named_so = row.before is not None and row.against != speed.REFERENCE
    return value(row.before, row.unit) + (f" ({row.against})" if named_so else "")


def common(found: dict[str, Results | None]) -> dict[str, str]:
    """Of the machine what is the same for all benchmarks; what is not, as `BENCHMARK.what`."""
    each = {name: results.machine for name, results in found.items() if results is not None}
    keys = dict.fromkeys(key for machine in each.values() for key in machine)
    told: dict[str, str] = {}
    for key in keys:
        values: dict[str, Any] = {
            name: machine[key] for name, machine in each.items() if key in machine
        }
        alike = len(set(values.values())) == 1
        told |= (
            {key: next(iter(values.values()))}
            if alike
            else {f"{name}.{key}": one for name, one in values.items()}
        )
    return told
