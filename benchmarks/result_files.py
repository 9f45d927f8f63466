"""benchmarks/results/NAME.json -> validated rows under unique names"""

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
    """Holds seconds or bytes per unit of each round."""

    rounds: list[float]
    compile_seconds: float


class Without(Measured):
    """Holds the time of ours without one optimisation."""

    what: str


class Point(BaseModel):
    """Holds the position of a row on a scaling curve."""

    model_config = ConfigDict(strict=True, frozen=True)
    curve: str
    axis: str
    at: float


class Row(speed.Row):
    """Holds one comparison."""

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
        """Returns whether it is a part or variant of the row above."""
        return self.row.startswith(" ")


class Results(speed.Results):
    """Holds the results of one benchmark; versions of libraries are in `model_extra`."""

    model_config = ConfigDict(strict=True, frozen=True, extra="allow")
    device: str
    python: str
    rows: list[Row]  # type: ignore[assignment]
    notes: list[str]

    @property
    def machine(self) -> dict[str, str]:
        """Returns all settings besides the code that a measurement depends on."""
        inputs = self.model_dump(include={"device", "cpu", "backend", "threads", "python"})
        return {**inputs, **(self.model_extra or {}), "rounds": str(self.rounds)}


class Named(NamedTuple):
    """Holds a row, its benchmark, and a name unique in that benchmark; names of parts begin with
    that of the row above.
    """

    benchmark: str
    name: str
    row: Row


def read(folder: Path) -> dict[str, Results | None]:
    """Reads benchmark -> results from a folder; None if a benchmark was not run.

    Raises:
        ArtifactError: a file has another schema.
    """
    return {
        name: speed.read_file(Path(), folder / f"{name}.json", Results, command)
        for name, command in COMMANDS.items()
    }


def named(result: dict[str, Results | None]) -> list[Named]:
    """Returns all rows of all benchmarks under their names."""
    return [
        item
        for name, results in result.items()
        if results is not None
        for item in _named(name, results.rows)
    ]


def _named(benchmark: str, rows: list[Row]) -> list[Named]:
    result: dict[str, Named] = {}
    above = ""
    for row in rows:
        local = row.row.strip()
        above = above if row.is_part else local
        name = whole = f"{above} / {local}" if row.is_part and above else local
        number = 1
        while name in result:
            number += 1
            name = f"{whole} ({number})"
        result[name] = Named(benchmark, name, row)
    return list(result.values())


def against_peers(rows: list[Named]) -> dict[str, dict[str, Named]]:
    """Returns work -> library -> the row that compares it with ours, without points of curves."""
    result: dict[str, dict[str, Named]] = {}
    for item in rows:
        on_curve = item.row.is_part and item.row.point is not None
        if on_curve or not is_peer(item) or speed.PLAIN not in item.row.ratios:
            continue
        names = [BEFORE.sub("", part).strip() for part in item.name.split(" / ")]
        result.setdefault(" / ".join(filter(None, names)), {})[_library(item)] = item
    return result


def is_peer(item: Named) -> bool:
    """Returns whether `before` is another library rather than a reference or a variant of ours."""
    against = item.row.against
    return against.startswith(LIBRARIES) or (
        item.benchmark == "peers" and against != speed.REFERENCE
    )


def _library(item: Named) -> str:
    """Returns the row's own name of the library if it says more, as in `torchrl, vectorised`."""
    words = BEFORE.search(item.row.row)
    lines = words["what"].strip() if words else ""
    return lines if item.row.against in lines else item.row.against


def value(measured: Measured | None, unit: str) -> str:
    """Formats a median without its unit; '-' if nothing was measured."""
    return "-" if measured is None else f"{float(f'{measured.median * FACTORS[unit]:.3g}'):g}"


def between(slow: Measured | None, fast: Measured | None) -> speed.Ratio | None:
    """Returns the quotient of two times over the rounds that both have."""
    if slow is None or fast is None:
        return None
    both = zip(slow.rounds, fast.rounds, strict=False)
    result = harness.ratio(*(harness.Measured(np.array(side)) for side in zip(*both, strict=True)))
    return speed.Ratio(**result._asdict())


def before(row: Row) -> str:
    """Formats the median of the other side, with its name unless it is a plain reference."""
    named_so = row.before is not None and row.against != speed.REFERENCE
    return value(row.before, row.unit) + (f" ({row.against})" if named_so else "")


def common(result: dict[str, Results | None]) -> dict[str, str]:
    """Returns machine settings shared by all benchmarks; others appear as `BENCHMARK.setting`."""
    each = {name: results.machine for name, results in result.items() if results is not None}
    keys = dict.fromkeys(key for machine in each.values() for key in machine)
    lines: dict[str, str] = {}
    for key in keys:
        values: dict[str, Any] = {
            name: machine[key] for name, machine in each.items() if key in machine
        }
        alike = len(set(values.values())) == 1
        lines |= (
            {key: next(iter(values.values()))}
            if alike
            else {f"{name}.{key}": item for name, item in values.items()}
        )
    return lines
