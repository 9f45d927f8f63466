"""benchmarks/results/NAME.json <-> measured rows with their goals, and the words for them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter

from pipeline.reporting.result_files import as_json, write_lines

# Names of ratios. `seed's` is the variant that a document proposes.
PLAIN = "before/ours"
VARIANT = "seed's/ours"
PROPOSED = "before/seed's"
LIMIT = "limit/ours"
WITHOUT = "without/ours"
# `before` of a row that names nothing else.
REFERENCE = "plain reference"
MEMORY = ("MB", "KiB")

Unit = Literal["ms/step", "us/call", "us/agent-step", "s", "ms", "MB", "KiB", "agent-steps"]
# Unit -> factor from seconds, bytes or agent-steps.
FACTORS: dict[str, float] = {
    "ms/step": 1e3,
    "us/call": 1e6,
    "us/agent-step": 1e6,
    "s": 1.0,
    "ms": 1e3,
    "MB": 1e-6,
    "KiB": 1 / 1024,
    "agent-steps": 1.0,
}


class Measured(NamedTuple):
    """Holds seconds (or bytes) per unit, one value a round, and the time of the first call beyond
    the median.
    """

    values: Annotated[Sequence[float], Field(min_length=1)]
    compile_seconds: float = 0.0

    @property
    def median(self) -> float:
        return float(np.median(self.values))


class Ratio(NamedTuple):
    """Holds the quotient of two measurements: median, least and greatest over the rounds."""

    median: float
    least: float
    greatest: float


class Goal(NamedTuple):
    """Holds a ratio to reach at least, or (`value`) seconds or bytes not to exceed.

    Against the limit, the ratio is the share of the machine's capacity that ours reaches.
    """

    number: Annotated[float, Field(gt=0)]
    against: Literal["before", "seed's way", "limit", "value"]


class Without(NamedTuple):
    """Holds ours with one optimisation taken away: if that restores the old time, it is what the
    ratio measures.
    """

    what: str
    measured: Measured


class Row(NamedTuple):
    """Holds one comparison. `before` is the plain reference or what `against` names, `seed_way` the
    proposed variant of it.

    `limit` is the least that the machine needs for the same work (a gather, the matmuls). `tried`
    says what was tried for a missed goal. `part_of` names the row that this one is a part or
    variant of.
    """

    name: str
    unit: Unit
    ours: Measured
    before: Measured | None = None
    seed_way: Measured | None = None
    limit: Measured | None = None
    without: Without | None = None
    goal: Goal | None = None
    claims: Sequence[str] = ()
    against: str = REFERENCE
    tried: str = ""
    part_of: str = ""

    @property
    def title(self) -> str:
        return f"{self.part_of} / {self.name}" if self.part_of else self.name

    @property
    def ratios(self) -> dict[str, Ratio]:
        """Returns name -> ratio of each measured pair, the first divided by the second."""
        pairs = {
            PLAIN: (self.before, self.ours),
            VARIANT: (self.seed_way, self.ours),
            PROPOSED: (self.before, self.seed_way),
            LIMIT: (self.limit, self.ours),
            WITHOUT: (self.without and self.without.measured, self.ours),
        }
        return {name: ratio(slow, fast) for name, (slow, fast) in pairs.items() if slow and fast}

    @property
    def goal_ratio(self) -> Ratio | None:
        """Returns the ratio that the goal is about, if there is one."""
        names = {"before": PLAIN, "seed's way": VARIANT, "limit": LIMIT}
        return self.ratios.get(names.get(self.goal.against, "")) if self.goal else None

    @property
    def goal_share(self) -> float | None:
        """Returns how much of its goal the row reaches, 1 if just reached; None without a goal."""
        if self.goal is None:
            return None
        if self.goal.against == "value":
            return self.goal.number / self.ours.median
        return self.goal_ratio.median / self.goal.number if self.goal_ratio else 0.0

    @property
    def goal_reached(self) -> bool | None:
        return None if self.goal_share is None else self.goal_share >= 1


class Machine(NamedTuple):
    """Holds what a measurement depends on besides the code."""

    device: str
    backend: str
    cpu: str
    threads: str
    versions: Mapping[str, str]


class Results(NamedTuple):
    """Holds all comparisons of one benchmark; summary: what the report shows of them."""

    machine: Machine
    rounds: Annotated[int, Field(gt=0)]
    rows: Sequence[Row]
    notes: Sequence[str]
    summary: str = ""


FORM = TypeAdapter(Results, config=ConfigDict(strict=True))


def ratio(slow: Measured, fast: Measured) -> Ratio:
    """Divides round by round, since both values of a round are from the same conditions."""
    each = np.divide(slow.values, fast.values)
    return Ratio(float(np.median(each)), float(each.min()), float(each.max()))


# Files.


def write_results(path: Path, results: Results) -> None:
    """Writes results with a line per row.

    Raises:
        ValidationError: a row has another form.
    """
    content = as_json(results._replace(summary=summary(results)))
    FORM.validate_python(content)
    write_lines(path, content, depth=2)


# Wording.


def main_rows(results: Results) -> list[Row]:
    """Returns the rows that compare a whole piece of work, not a part or a variant."""
    rows = [row for row in results.rows if not row.part_of]
    return [row for row in rows if PLAIN in row.ratios or row.goal]


def summary(results: Results) -> str:
    """Returns the least and the greatest median ratio of times to plain references, and how many
    goals are reached.
    """
    rows = main_rows(results)
    medians = [
        row.ratios[PLAIN].median
        for row in rows
        if row.unit not in MEMORY and row.against == REFERENCE and PLAIN in row.ratios
    ]
    speed = f"{times(min(medians))} to {times(max(medians))}" if medians else "no ratio to"
    goals = [row.goal_reached for row in rows if row.goal is not None]
    return f"{speed} that of plain references, {goals.count(True)} of {len(goals)} goals reached"


def times(ratio: float) -> str:
    """Formats a ratio with three digits, without an exponent below a million."""
    return f"{float(f'{ratio:.3g}'):g}x"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def in_unit(value: float, unit: str) -> str:
    """Formats seconds or bytes: `2.14 ms/step`."""
    return f"{float(f'{value * FACTORS[unit]:.3g}'):g} {in_words(unit)}"


def in_words(unit: str) -> str:
    """Returns a unit as it is written: files hold `us` for µs."""
    return unit.replace("us/", "µs/")


def asked(row: Row) -> str:
    """Words the goal of a row; "-" if it has none."""
    match row.goal:
        case Goal(number, "value"):
            return f"at most {in_unit(number, row.unit)}"
        case Goal(number, "limit"):
            return f"at least {percent(number)} of what the machine can do"
        case Goal(number, "seed's way"):
            return f"at least {times(number)} a proposed variant"
        case Goal(number, _):
            return f"at least {times(number)}"
    return "-"


def reached(row: Row) -> str:
    """Words what a row reaches of what its goal is about."""
    if row.goal and row.goal.against == "value":
        return in_unit(row.ours.median, row.unit)
    shown = percent if row.goal and row.goal.against == "limit" else times
    return shown(row.goal_ratio.median) if row.goal_ratio else "not measured"
