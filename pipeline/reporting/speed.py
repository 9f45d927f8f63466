"""benchmarks/results/MODEL.json -> how many times as fast as plain references a model is, beside its goals."""

from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipeline import artifacts
from pipeline.artifacts import ArtifactError

PLAIN, VARIANT = "before/ours", "seed's/ours"
"""Ratios to the plain reference, and to the variant of it that was proposed to be faster."""


class Ratio(BaseModel):
    """Of the rounds of one comparison."""

    model_config = ConfigDict(strict=True, frozen=True)
    median: float
    least: float
    greatest: float


class Times(BaseModel):
    """Of what is measured."""

    model_config = ConfigDict(strict=True, frozen=True)
    median_seconds: float


class Row(BaseModel):
    """One comparison, as `benchmarks.table.as_json` writes it."""

    model_config = ConfigDict(strict=True, frozen=True)
    row: str
    ours: Times
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
    path = root / path_of(model)
    if not path.exists():
        return None
    try:
        return Results.model_validate(artifacts.read_json(path))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        again = f"`make bench BENCH={model}` writes it anew"
        raise ArtifactError(f"{path_of(model)}: {where}: {first['msg']}; {again}") from None


def path_of(model: str) -> Path:
    """Where `make bench` keeps a model's comparisons, below the project's folder."""
    return Path("benchmarks", "results", f"{model}.json")


def comparisons(results: Results) -> list[Comparison]:
    """A line per main row."""
    return [Comparison(row.row, shown(row.ratios.get(PLAIN)), _goal(row), row.met) for row in main_rows(results)]


def main_rows(results: Results) -> list[Row]:
    """Those that stand for a work of their own, not for a part of the one above."""
    return [row for row in results.rows if not row.row.startswith(" ") and (PLAIN in row.ratios or row.goal)]


def reach(results: Results) -> str:
    """From the least to the greatest median of the main rows."""
    medians = [row.ratios[PLAIN].median for row in main_rows(results) if PLAIN in row.ratios]
    return f"{_times(min(medians))} to {_times(max(medians))}" if medians else "no ratio to"


def shown(ratio: Ratio | None) -> str:
    """The median, and the rounds around it."""
    return "-" if ratio is None else f"{_times(ratio.median)} ({_times(ratio.least)} to {_times(ratio.greatest)})"


def _times(ratio: float) -> str:
    """Three digits, and no exponent below a million."""
    return f"{float(f'{ratio:.3g}'):g}x"


def _goal(row: Row) -> str:
    """`>= 5x before`, `>= 5x seed's way`, `<= 2 s` -> the same in words, and its number if that is not the ratio."""
    if row.goal is None:
        return "-"
    sign, number, against = row.goal.split(" ", 2)
    if sign == "<=":
        return f"at most {number} {against}: takes {row.ours.median_seconds:.3g} {against}"
    if against == "before":
        return f"at least {number}"
    variant = row.ratios.get(VARIANT)
    return f"at least {number} a proposed variant: {'-' if variant is None else _times(variant.median)}"
