"""benchmarks/results/NAME.json <-> measured rows with their goals, and the words for them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from pipeline.judging.scores import first_error
from quatrain.errors import DataError, FolderError
from quatrain.storage import folders
from quatrain.storage.atomic_write import write_durably

# Names of ratios. `seed's` is the variant that a document proposes.
PLAIN = "before/ours"
VARIANT = "seed's/ours"
PROPOSED = "before/seed's"
LIMIT = "limit/ours"
WITHOUT = "without/ours"
# `before` of a row that names nothing else.
REFERENCE = "plain reference"
MEMORY = ("MB", "KiB")
# Significant digits of a stored number.
DIGITS = 5

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
Form = TypeVar("Form")


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
    """Holds all comparisons of one benchmark."""

    machine: Machine
    rounds: Annotated[int, Field(gt=0)]
    rows: Sequence[Row]
    notes: Sequence[str]


FORM = TypeAdapter(Results, config=ConfigDict(strict=True))


def ratio(slow: Measured, fast: Measured) -> Ratio:
    """Divides round by round, since both values of a round are from the same conditions."""
    each = np.divide(slow.values, fast.values)
    return Ratio(float(np.median(each)), float(each.min()), float(each.max()))


# Files.


def read_results(root: Path, model: str) -> Results | None:
    """Reads what `make bench BENCH=MODEL` wrote; None if it was not run.

    Raises:
        DataError: the file has another form.
    """
    return read_file(root, path_of(model), FORM, f"make bench BENCH={model}")


def read_file(root: Path, path: Path, form: TypeAdapter[Form], command: str) -> Form | None:
    """Reads a file below `root` that a command writes; None if there is none.

    Raises:
        DataError: the file has another form.
    """
    if not (root / path).exists():
        return None
    try:
        return form.validate_python(folders.read_json(root / path))
    except ValidationError as error:
        raise DataError(f"{path}: {first_error(error)}; `{command}` writes it anew") from None


def read_stored(path: Path, key: str) -> dict[str, Any]:
    """Returns what a command stored under a key of a file, to be continued; {} without a file.

    Raises:
        DataError: the file has another form.
    """
    if not path.exists():
        return {}
    content = folders.read_json(path)
    stored = content.get(key) if isinstance(content, dict) else None
    if not isinstance(stored, dict) or not all(isinstance(each, dict) for each in stored.values()):
        raise FolderError(f"{path.name}: has no results under {key!r}")
    return stored


def path_of(model: str) -> Path:
    return Path("benchmarks", "results", f"{model}.json")


def write_results(path: Path, results: Results) -> None:
    """Writes results with a line per row.

    Raises:
        ValidationError: a row has another form.
    """
    content = as_json(results)
    FORM.validate_python(content)
    write_lines(path, content, depth=2)


def write_lines(path: Path, value: Any, depth: int) -> None:
    """Writes JSON with a line per item of its `depth` outer levels."""
    write_durably(path, f"{_lines(value, depth)}\n".encode())


def _lines(value: Any, depth: int, indent: str = "\n") -> str:
    if not depth or not value or not isinstance(value, dict | list):
        return json.dumps(value)
    inner = f"{indent} "
    if isinstance(value, list):
        items = [_lines(item, depth - 1, inner) for item in value]
        return f"[{inner}{f',{inner}'.join(items)}{indent}]"
    items = [f"{json.dumps(key)}: {_lines(item, depth - 1, inner)}" for key, item in value.items()]
    return f"{{{inner}{f',{inner}'.join(items)}{indent}}}"


def as_json(value: Any) -> Any:
    """Returns named tuples as dictionaries without the fields that have their default value."""
    if isinstance(value, float | np.number):
        return float(f"{value:.{DIGITS}g}")
    if hasattr(value, "_fields"):
        defaults = value._field_defaults
        return {
            key: as_json(item)
            for key, item in value._asdict().items()
            if key not in defaults or item != defaults[key]
        }
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [as_json(item) for item in value]
    return value


# Wording.


def main_rows(results: Results) -> list[Row]:
    """Returns the rows that compare a whole piece of work, not a part or a variant."""
    rows = [row for row in results.rows if not row.part_of]
    return [row for row in rows if PLAIN in row.ratios or row.goal]


def reach(results: Results) -> str:
    """Returns the least and the greatest median ratio of times to plain references."""
    medians = [
        row.ratios[PLAIN].median
        for row in main_rows(results)
        if row.unit not in MEMORY and row.against == REFERENCE and PLAIN in row.ratios
    ]
    return f"{times(min(medians))} to {times(max(medians))}" if medians else "no ratio to"


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
