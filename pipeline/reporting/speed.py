"""benchmarks/results/MODEL.json -> how many times as fast as plain references a model is, beside its goals."""

from pathlib import Path
from typing import NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipeline.runtime.errors import ArtifactError
from pipeline.storage import artifacts

PLAIN, VARIANT, LIMIT = "before/ours", "seed's/ours", "limit/ours"
"""Ratios to the plain reference, to the variant of it that was proposed, and to what the machine needs at least."""
REFERENCE = "plain reference"
"""What `before` is where a row names no other library."""
MEMORY = {"MB": 1e-6, "KiB": 1 / 1024}
"""Units of rows that are about memory -> what a number of bytes is multiplied by."""

Form = TypeVar("Form", bound=BaseModel)


class Ratio(BaseModel):
    """Of the rounds of one comparison."""

    model_config = ConfigDict(strict=True, frozen=True)
    median: float
    least: float
    greatest: float


class Measured(BaseModel):
    """What one side takes, in seconds or bytes."""

    model_config = ConfigDict(strict=True, frozen=True)
    median: float


class Row(BaseModel):
    """One comparison, as `benchmarks.table.as_json` writes it; only what is told of it."""

    model_config = ConfigDict(strict=True, frozen=True)
    row: str
    against: str
    unit: str
    ours: Measured
    ratios: dict[str, Ratio]
    goal: str | None = Field(pattern="^(<=|>=) [^ ]+ .+$")
    met: bool | None


class Results(BaseModel):
    """All comparisons of one model, and the machine that they were measured on."""

    model_config = ConfigDict(strict=True, frozen=True)
    cpu: str
    backend: str
    threads: str
    rounds: int = Field(gt=0)
    rows: list[Row]


class Comparison(NamedTuple):
    """One piece of work: how many times as fast as its plain reference, and the goal with what it asks for."""

    work: str
    ratio: str
    goal: str
    met: bool | None


def read_results(root: Path, model: str) -> Results | None:
    """What `make bench BENCH=MODEL` found; None where it was not run.

    Raises:
        ArtifactError: the file is not what it writes.
    """
    return read_file(root, path_of(model), Results, f"make bench BENCH={model}")


def read_file(root: Path, path: Path, form: type[Form], command: str) -> Form | None:
    """A file below `root` that a command writes; None where there is none.

    Raises:
        ArtifactError: it has another form.
    """
    if not (root / path).exists():
        return None
    try:
        return form.model_validate(artifacts.read_json(root / path))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise ArtifactError(
            f"{path}: {where}: {first['msg']}; `{command}` writes it anew"
        ) from None


def path_of(model: str) -> Path:
    """Where `make bench` keeps a model's comparisons, below the project's folder."""
    return Path("benchmarks", "results", f"{model}.json")


def comparisons(results: Results) -> list[Comparison]:
    """A line per main row."""
    return [Comparison(row.row, _told(row), goal_of(row), row.met) for row in main_rows(results)]


def main_rows(results: Results) -> list[Row]:
    """Those that stand for a work of their own, not for a part of the one above."""
    return [
        row
        for row in results.rows
        if not row.row.startswith(" ") and (PLAIN in row.ratios or row.goal)
    ]


def reach(results: Results) -> str:
    """From the least to the greatest median of the main rows that time plain references."""
    timed = [
        row for row in main_rows(results) if row.unit not in MEMORY and row.against == REFERENCE
    ]
    medians = [row.ratios[PLAIN].median for row in timed if PLAIN in row.ratios]
    return f"{times(min(medians))} to {times(max(medians))}" if medians else "no ratio to"


def _told(row: Row) -> str:
    """The ratio; where it is one of memory, that it is."""
    return shown(row.ratios.get(PLAIN)) + (
        " less memory" if row.unit in MEMORY and PLAIN in row.ratios else ""
    )


def shown(ratio: Ratio | None) -> str:
    """The median, and the rounds around it."""
    return (
        "-"
        if ratio is None
        else f"{times(ratio.median)} ({times(ratio.least)} to {times(ratio.greatest)})"
    )


def times(ratio: float) -> str:
    """Three digits, and no exponent below a million."""
    return f"{float(f'{ratio:.3g}'):g}x"


def percent(share: float) -> str:
    """A share of one in whole hundredths."""
    return f"{100 * share:.0f} %"


def goal_of(row: Row) -> str:
    """`>= 5x before`, `>= 5x seed's way`, `>= 0.6x limit`, `<= 2 s` in words, with what is not in the ratio."""
    if row.goal is None:
        return "-"
    sign, number, against = row.goal.split(" ", 2)
    if sign == "<=":
        return f"at most {in_units(float(number), row.unit)}: takes {in_units(row.ours.median, row.unit)}"
    if against == "before":
        return f"at least {number}"
    if against == "limit":
        reached = row.ratios.get(LIMIT)
        share = "-" if reached is None else percent(reached.median)
        return f"at least {percent(float(number.removesuffix('x')))} of what the machine can do: {share}"
    variant = row.ratios.get(VARIANT)
    return (
        f"at least {number} a proposed variant: {'-' if variant is None else times(variant.median)}"
    )


def in_units(value: float, unit: str) -> str:
    """Bytes as a row of memory counts them, anything else in seconds."""
    return f"{value * MEMORY[unit]:.3g} {unit}" if unit in MEMORY else f"{value:.3g} s"
