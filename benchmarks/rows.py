"""benchmarks/results/NAME.json <-> measured rows, their ratios, and what became of promises

A benchmark is a module `benchmarks/NAME/measure.py` with a function `measure(root, rounds)` that
returns a list of rows, each declared where it is measured. The sides of a model's row are ORIGINAL
(the plain reference), PROPOSAL (the same with what a document proposes) and OURS:

    times = race({ORIGINAL: loop, PROPOSAL: sorted_table, OURS: program}, rounds, {OURS: 1000})
    Row("256 pairs", "us/call", times, Claim("replay", "~5x per sample()", 5.0))

A call of `program` draws 1000 batches, so its time is divided by 1000. `timing.check_same` comes
before the race. A claim names its document, quotes the promise, and gives its weakest reading as a
ratio: "50 % faster" needs 1.5, "50 % less memory" needs 2. Sizes in bytes are `Times([bytes])`.
Without PROPOSAL the row is measured, and its promise is not judged. In a row against other
libraries the sides are OURS and the names of libraries, and there is no claim. `note` says in a
sentence where the sides do not do the same work; the page shows it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter

from pipeline.reporting.result_files import as_json, read_file, write_lines

ORIGINAL, PROPOSAL, OURS = "the original program", "its proposal", "ours"
BEFORE = "before"
"""An earlier revision of this project, in rows about the loop; their note is the goal."""
PEER, IQN, RANDOM = "stable-baselines3", "iqn", "random actions"
"""Sides of rows about environments of others, of which OURS is PPO."""
DOCUMENTS = {
    "allo": "Performance Optimization Proposal for exp_alcl/allo.py",
    "replay": "Replay Buffer Vectorization: Implementation Summary",
    "colony": "Performance Optimizations Applied: delete ratio architecture",
    "dynamics": "Performance Optimization Summary: active-dynamics",
    "agents": "JAX Acceleration Opportunities for Sequential Mode: treasurehunt",
}
"""Titles of the documents that claims are from, in the order of the page."""
Unit = Literal["ms/step", "us/call", "us/agent-step", "s", "share", "return", "MB", "KiB"]
SECONDS = {"ms/step": 1e3, "us/call": 1e6, "us/agent-step": 1e6}
BYTES = {"MB": 1e-6, "KiB": 1 / 1024}
"""Unit -> factor from seconds, or from bytes, where it is another than 1."""


class Times(NamedTuple):
    """Holds seconds (or bytes, or returns) per unit of work, a value per round or seed, and the
    seconds by which the first call took longer.
    """

    values: Annotated[Sequence[float], Field(min_length=1)]
    compile_seconds: float = 0.0

    @property
    def median(self) -> float:
        return float(np.median(self.values))


class Ratio(NamedTuple):
    """Holds the quotient of two sides: median and quartiles over the rounds."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        median, low, high = (f"{float(f'{number:.3g}'):g}" for number in self)
        return f"{median}x" if low == high else f"{median}x ({low}..{high})"


class Claim(NamedTuple):
    """Holds a promise of a document: its words, and the least ratio that keeps it."""

    document: Literal["allo", "replay", "colony", "dynamics", "agents"]
    promised: str
    least: float


class Row(NamedTuple):
    """Holds one piece of work and what it takes each side."""

    work: str
    unit: Unit
    sides: Mapping[str, Times]
    claim: Claim | None = None
    note: str = ""

    def ratio(self, slow: str, fast: str = OURS) -> Ratio:
        """Divides the sides round by round, since a round has the same conditions for both."""
        each = np.divide(self.sides[slow].values, self.sides[fast].values)
        return Ratio(*map(float, np.quantile(each, (0.5, 0.25, 0.75))))

    @property
    def is_of_peers(self) -> bool:
        """Says whether it compares what ours takes with what other libraries take."""
        return self.unit != "return" and not {ORIGINAL, BEFORE} & self.sides.keys()

    @property
    def gains(self) -> dict[str, Ratio]:
        """Returns what ours is compared with (the original program, or libraries) -> the ratio;
        nothing for returns, which have none.
        """
        if self.unit == "return":
            return {}
        return {side: self.ratio(side) for side in self.sides if side not in (PROPOSAL, OURS)}

    @property
    def proposed(self) -> Ratio | None:
        """Returns what the proposal gains over the original program; None if it was not built."""
        return self.ratio(ORIGINAL, PROPOSAL) if PROPOSAL in self.sides else None

    @property
    def verdict(self) -> str:
        """Says whether the proposal keeps what the document promises of it."""
        if self.claim is None:
            return "-"
        if self.proposed is None:
            return "not built here"
        if self.proposed.low >= self.claim.least:
            return "holds"
        return "does not hold" if self.proposed.high < self.claim.least else "in doubt"

    def shown(self, side: str) -> str:
        """Formats the median of a side with its unit: `2.14 ms/step`."""
        value = self.sides[side].median * (SECONDS | BYTES).get(self.unit, 1.0)
        return f"{float(f'{value:.3g}'):g} {self.unit.replace('us/', 'µs/')}"


class Results(NamedTuple):
    """Holds the rows of a benchmark, and what its times depend on besides the code."""

    machine: Mapping[str, str]
    rounds: Annotated[int, Field(gt=0)]
    rows: Sequence[Row]


FORM = TypeAdapter(Results, config=ConfigDict(strict=True))


def write(folder: Path, name: str, results: Results) -> None:
    """Writes results with a line per row.

    Raises:
        ValidationError: a row has another form.
    """
    content = as_json(results)
    FORM.validate_python(content)
    write_lines(folder / f"{name}.json", content, depth=2)


def read(folder: Path, names: Sequence[str]) -> dict[str, Results]:
    """Reads benchmark -> results, of those that were measured.

    Raises:
        DataError: a file has another form.
    """
    files = {
        name: read_file(folder, Path(f"{name}.json"), FORM, f"make bench BENCH={name}")
        for name in names
    }
    return {name: results for name, results in files.items() if results is not None}
