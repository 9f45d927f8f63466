"""measured contestants -> rows that say what was promised, what is so, and whether a goal is met; text and JSON."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from benchmarks.claims import CLAIMS
from benchmarks.harness import Measured, Ratio, ratio

FACTORS = {
    "ms/step": 1e3,
    "us/call": 1e6,
    "us/agent-step": 1e6,
    "s": 1.0,
    "ms": 1e3,
    "MB": 1e-6,
    "KiB": 1 / 1024,
}
"""unit -> what a value in seconds or bytes is multiplied by to be shown."""
COLUMNS = (
    "row", "claim", "promised", "unit", "before", "seed's way", "ours", "without", "limit",
    "before/seed's", "before/ours", "seed's/ours", "goal", "met?", "compile s",
)  # fmt: skip


class NotTheSame(Exception):
    """Contestants that do not compute the same: their times must not be compared."""


class Goal(NamedTuple):
    """A ratio that is to be reached at least, or (`value`) seconds or bytes that are not to be exceeded.

    Against the limit the ratio is the share of what the machine can do that ours reaches.
    """

    number: float
    against: Literal["before", "seed's way", "limit", "value"]

    def __str__(self) -> str:
        return (
            f"<= {self.number:g} s"
            if self.against == "value"
            else f">= {self.number:g}x {self.against}"
        )


class Without(NamedTuple):
    """Ours with one optimisation taken away: where that brings back the old figure, it is what the ratio measures."""

    what: str
    measured: Measured


class Point(NamedTuple):
    """Where a row stands on a scaling curve: "worlds" at 256, for example."""

    curve: str
    axis: str
    at: float


class Row(NamedTuple):
    """One comparison. `before` is the plain reference or a peer (`against`), `seed_way` what a proposal makes of it.

    `limit` is what this machine needs at least for the same work (a gather, the matmuls). A row whose name begins
    with two blanks is a part or a variant of the one above. `tried` says, where a goal is missed, what was tried.
    """

    name: str
    unit: str
    ours: Measured
    before: Measured | None = None
    seed_way: Measured | None = None
    limit: Measured | None = None
    without: Without | None = None
    goal: Goal | None = None
    claims: tuple[str, ...] = ()
    against: str = "plain reference"
    tried: str = ""
    point: Point | None = None

    @property
    def ratios(self) -> dict[str, Ratio]:
        """Of each pair that was measured, by name: the first divided by the second."""
        pairs = {
            "before/ours": (self.before, self.ours),
            "seed's/ours": (self.seed_way, self.ours),
            "before/seed's": (self.before, self.seed_way),
            "limit/ours": (self.limit, self.ours),
            "without/ours": (self.without and self.without.measured, self.ours),
        }
        return {name: ratio(slow, fast) for name, (slow, fast) in pairs.items() if slow and fast}

    @property
    def met(self) -> bool | None:
        if self.goal is None:
            return None
        if self.goal.against == "value":
            return self.ours.median <= self.goal.number
        names = {"before": "before/ours", "seed's way": "seed's/ours", "limit": "limit/ours"}
        reached = self.ratios.get(names[self.goal.against])
        return reached is not None and reached.median >= self.goal.number


class Report(NamedTuple):
    """What a benchmark prints and keeps."""

    rows: list[Row]
    notes: list[str]
    backend: str


def render(rows: Sequence[Row]) -> str:
    """The rows as text in columns: medians, ratios with their least and greatest."""
    cells = [COLUMNS, *(_cells(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def _cells(row: Row) -> tuple[str, ...]:
    def value(measured: Measured | None) -> str:
        return "" if measured is None else f"{measured.median * FACTORS[row.unit]:.3g}"

    def times_as_much(name: str) -> str:
        found = row.ratios.get(name)
        return (
            "" if found is None else f"{found.median:.3g} ({found.least:.3g}..{found.greatest:.3g})"
        )

    return (
        row.name,
        ", ".join(row.claims),
        "; ".join(CLAIMS[claim].promised for claim in row.claims),
        row.unit,
        value(row.before),
        value(row.seed_way),
        value(row.ours),
        value(row.without and row.without.measured),
        value(row.limit),
        *map(times_as_much, ("before/seed's", "before/ours", "seed's/ours")),
        "" if row.goal is None else str(row.goal),
        {None: "", True: "yes", False: "no"}[row.met],
        f"{row.ours.compile_seconds:.1f}",
    )


def as_json(row: Row) -> dict[str, Any]:
    """The row with the values of every round, in seconds (bytes, where the unit is one of memory) per unit."""
    without = (
        None if row.without is None else {"what": row.without.what, **_values(row.without.measured)}
    )
    return {
        "row": row.name,
        "claims": list(row.claims),
        "against": row.against,
        "unit": row.unit,
        "before": None if row.before is None else _values(row.before),
        "seed_way": None if row.seed_way is None else _values(row.seed_way),
        "ours": _values(row.ours),
        "limit": None if row.limit is None else _values(row.limit),
        "without": without,
        "ratios": {name: found._asdict() for name, found in row.ratios.items()},
        "goal": None if row.goal is None else str(row.goal),
        "met": row.met,
        "tried": row.tried,
        "point": None if row.point is None else row.point._asdict(),
    }


def _values(measured: Measured) -> dict[str, Any]:
    return {
        "median": measured.median,
        "rounds": measured.values.tolist(),
        "compile_seconds": measured.compile_seconds,
    }
