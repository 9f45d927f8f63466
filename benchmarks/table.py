"""measured contestants -> rows with claims, ratios and goals; as text and JSON"""

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
    "row",
    "claim",
    "promised",
    "unit",
    "before",
    "seed's way",
    "ours",
    "without",
    "limit",
    "before/seed's",
    "before/ours",
    "seed's/ours",
    "goal",
    "met?",
    "compile s",
)


class NotTheSame(Exception):
    """Signals that contestants do not compute the same: their times must not be compared."""


class Goal(NamedTuple):
    """Holds a ratio to reach at least, or (`value`) seconds or bytes not to exceed.

    Against the limit, the ratio is the share of the machine's capacity that ours reaches.
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
    """Holds ours with one optimisation taken away: if that restores the old time, it is what the
    ratio measures.
    """

    what: str
    measured: Measured


class Point(NamedTuple):
    """Holds the position of a row on a scaling curve: "worlds" at 256, for example."""

    curve: str
    axis: str
    at: float


class Row(NamedTuple):
    """Holds one comparison. `before` is the plain reference or a peer (`against`), `seed_way` the
    proposal's variant of it.

    `limit` is the least that this machine needs for the same work (a gather, the matmuls). A row
    whose name begins
    with two blanks is a part or variant of the one above. `tried` says what was tried for a
    missed goal.
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
        """Returns name -> ratio of each measured pair, the first divided by the second."""
        pairs = {
            "before/ours": (self.before, self.ours),
            "seed's/ours": (self.seed_way, self.ours),
            "before/seed's": (self.before, self.seed_way),
            "limit/ours": (self.limit, self.ours),
            "without/ours": (self.without and self.without.measured, self.ours),
        }
        return {name: ratio(slow, fast) for name, (slow, fast) in pairs.items() if slow and fast}

    @property
    def goal_reached(self) -> bool | None:
        if self.goal is None:
            return None
        if self.goal.against == "value":
            return self.ours.median <= self.goal.number
        names = {"before": "before/ours", "seed's way": "seed's/ours", "limit": "limit/ours"}
        reached = self.ratios.get(names[self.goal.against])
        return reached is not None and reached.median >= self.goal.number


class Report(NamedTuple):
    """Holds what a benchmark prints and stores."""

    rows: list[Row]
    notes: list[str]
    backend: str


def render(rows: Sequence[Row]) -> str:
    """Renders the rows as text in columns: medians, ratios with their least and greatest."""
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
        result = row.ratios.get(name)
        return (
            ""
            if result is None
            else f"{result.median:.3g} ({result.least:.3g}..{result.greatest:.3g})"
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
        {None: "", True: "yes", False: "no"}[row.goal_reached],
        f"{row.ours.compile_seconds:.1f}",
    )


def as_json(row: Row) -> dict[str, Any]:
    """Returns the row with the values of every round, in seconds per unit (bytes for units of
    memory).
    """
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
        "ratios": {name: result._asdict() for name, result in row.ratios.items()},
        "goal": None if row.goal is None else str(row.goal),
        "met": row.goal_reached,
        "tried": row.tried,
        "point": None if row.point is None else row.point._asdict(),
    }


def _values(measured: Measured) -> dict[str, Any]:
    return {
        "median": measured.median,
        "rounds": measured.values.tolist(),
        "compile_seconds": measured.compile_seconds,
    }
