"""times of contestants -> rows that say what was claimed, what is so, and whether a goal is met; text and JSON."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from benchmarks.harness import Ratio, Times, ratio

PER_SECOND = {"ms/step": 1e3, "us/call": 1e6, "us/agent-step": 1e6, "s": 1.0}
COLUMNS = (
    "row", "seed item", "claimed", "unit", "before", "seed's way", "ours",
    "before/ours", "seed's/ours", "goal", "met?", "compile s",
)  # fmt: skip


class NotTheSame(Exception):
    """Contestants that do not compute the same: their times must not be compared."""


class Report(NamedTuple):
    """What a benchmark prints and keeps."""

    rows: list["Row"]
    notes: list[str]
    backend: str


class Goal(NamedTuple):
    """A ratio that is to be reached at least, or (`limit`) seconds that are not to be exceeded."""

    number: float
    against: Literal["before", "seed's way", "limit"]

    def __str__(self) -> str:
        return f"<= {self.number:g} s" if self.against == "limit" else f">= {self.number:g}x {self.against}"


class Row(NamedTuple):
    """One comparison. `before` is the plain reference, `seed_way` the same with the seed's proposal."""

    name: str
    seed_item: str
    claimed: str
    unit: str
    ours: Times
    before: Times | None = None
    seed_way: Times | None = None
    goal: Goal | None = None

    def ratio_to(self, other: Times | None) -> Ratio | None:
        return None if other is None else ratio(other, self.ours)

    @property
    def met(self) -> bool | None:
        if self.goal is None:
            return None
        if self.goal.against == "limit":
            return self.ours.median <= self.goal.number
        reached = self.ratio_to(self.before if self.goal.against == "before" else self.seed_way)
        return reached is not None and reached.median >= self.goal.number


def render(rows: Sequence[Row]) -> str:
    """The rows as text in columns: medians, ratios with their least and greatest."""
    cells = [COLUMNS, *(_cells(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def _cells(row: Row) -> tuple[str, ...]:
    def time(times: Times | None) -> str:
        return "" if times is None else f"{times.median * PER_SECOND[row.unit]:.3g}"

    def times_as_long(found: Ratio | None) -> str:
        return "" if found is None else f"{found.median:.3g} ({found.least:.3g}..{found.greatest:.3g})"

    return (
        row.name,
        row.seed_item,
        row.claimed,
        row.unit,
        time(row.before),
        time(row.seed_way),
        time(row.ours),
        times_as_long(row.ratio_to(row.before)),
        times_as_long(row.ratio_to(row.seed_way)),
        "" if row.goal is None else str(row.goal),
        {None: "", True: "yes", False: "no"}[row.met],
        f"{row.ours.compile_seconds:.1f}",
    )


def as_json(row: Row) -> dict[str, Any]:
    """The row with the times of every round, in seconds per unit."""
    ratios = {"before/ours": row.ratio_to(row.before), "seed's/ours": row.ratio_to(row.seed_way)}
    return {
        "row": row.name,
        "seed_item": row.seed_item,
        "claimed": row.claimed,
        "unit": row.unit,
        "before": _seconds(row.before),
        "seed_way": _seconds(row.seed_way),
        "ours": _seconds(row.ours),
        "ratios": {name: found._asdict() for name, found in ratios.items() if found is not None},
        "goal": None if row.goal is None else str(row.goal),
        "met": row.met,
    }


def _seconds(times: Times | None) -> dict[str, Any] | None:
    if times is None:
        return None
    return {
        "median_seconds": times.median,
        "seconds": times.seconds.tolist(),
        "compile_seconds": times.compile_seconds,
    }
