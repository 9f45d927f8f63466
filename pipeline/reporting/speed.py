"""benchmarks/results/MODEL.json -> a model's speed against plain references, beside its goals."""

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipeline.judging.verdicts import first_error
from pipeline.runtime.errors import ArtifactError
from pipeline.storage import artifacts

# Ratio to the plain reference.
PLAIN = "before/ours"
# Ratio to the variant of the reference that was proposed.
VARIANT = "seed's/ours"
# Ratio to the least that the machine needs.
LIMIT = "limit/ours"
# `before` of a row that names no other library.
REFERENCE = "plain reference"
# Units of rows about memory -> factor from bytes.
MEMORY = {"MB": 1e-6, "KiB": 1 / 1024}

Form = TypeVar("Form", bound=BaseModel)


class Stored(BaseModel):
    """Defines a part of the file; the report ignores keys that it does not show."""

    model_config = ConfigDict(strict=True, frozen=True)


class Measured(Stored):
    """Holds what one side takes, in seconds or bytes."""

    median: float


class Ratio(Measured):
    least: float
    greatest: float


class Row(Stored):
    """Holds what the report shows of one comparison, as `benchmarks.table.as_json` writes it."""

    row: str
    against: str
    unit: str
    ours: Measured
    ratios: dict[str, Ratio]
    goal: str | None = Field(pattern="^(<=|>=) [^ ]+ .+$")
    is_reached: bool | None = Field(alias="met")


class Results(Stored):
    """Holds all comparisons of one model, and the machine that they were measured on."""

    cpu: str
    backend: str
    threads: str
    rounds: int = Field(gt=0)
    rows: list[Row]


def read_results(root: Path, model: str) -> Results | None:
    """Reads what `make bench BENCH=MODEL` wrote; None if it was not run.

    Raises:
        ArtifactError: the file has another form.
    """
    return read_file(root, path_of(model), Results, f"make bench BENCH={model}")


def read_file(root: Path, path: Path, form: type[Form], command: str) -> Form | None:
    """Reads a file below `root` that a command writes; None if there is none.

    Raises:
        ArtifactError: the file has another form.
    """
    if not (root / path).exists():
        return None
    try:
        return form.model_validate(artifacts.read_json(root / path))
    except ValidationError as error:
        raise ArtifactError(f"{path}: {first_error(error)}; `{command}` writes it anew") from None


def path_of(model: str) -> Path:
    return Path("benchmarks", "results", f"{model}.json")


def ratio_of(row: Row) -> str:
    """Formats the ratio to the plain reference: `5x (4x to 6x)`."""
    ratio = row.ratios.get(PLAIN)
    if ratio is None:
        return "-"
    rounds = f"({times(ratio.least)} to {times(ratio.greatest)})"
    return f"{times(ratio.median)} {rounds}{' less memory' if row.unit in MEMORY else ''}"


def main_rows(results: Results) -> list[Row]:
    """Returns the rows that compare a whole piece of work, not a part of the row above."""
    rows = [row for row in results.rows if not row.row.startswith(" ")]
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


def goal_of(row: Row) -> str:
    """Spells out `>= 5x before`, `>= 5x seed's way`, `>= 0.6x limit` or `<= 2 s`.

    Adds the measured value if the row's ratio does not show it.
    """
    if row.goal is None:
        return "-"
    sign, number, against = row.goal.split(" ", 2)
    if sign == "<=":
        most = in_units(float(number), row.unit)
        return f"at most {most}: takes {in_units(row.ours.median, row.unit)}"
    if against == "before":
        return f"at least {number}"
    ratio = row.ratios.get(LIMIT if against == "limit" else VARIANT)
    if against == "limit":
        share = "-" if ratio is None else percent(ratio.median)
        least = percent(float(number.removesuffix("x")))
        return f"at least {least} of what the machine can do: {share}"
    return f"at least {number} a proposed variant: {'-' if ratio is None else times(ratio.median)}"


def in_units(value: float, unit: str) -> str:
    """Formats bytes in the unit of a row about memory, anything else in seconds."""
    return f"{value * MEMORY[unit]:.3g} {unit}" if unit in MEMORY else f"{value:.3g} s"
