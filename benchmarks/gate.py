"""measured ratios, benchmarks/baselines.json -> exit 4 with a line per ratio that fell far below what it was."""

import argparse
import datetime
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from benchmarks import kept
from benchmarks.kept import COMMANDS, Named, Results
from pipeline.reporting.sections import table
from pipeline.reporting.speed import PLAIN, VARIANT, read_file
from pipeline.runtime.errors import ArtifactError
from pipeline.storage import artifacts
from pipeline.tracking.run import git

BASELINES = Path("benchmarks/baselines.json")
SHARE = 0.6
"""Of its baseline that a ratio must have: other machines and noise move ratios, too."""
MACHINE = ("cpu", "device", "backend", "threads")
"""What ratios may depend on."""
CODE = ("src", "benchmarks/*.py", "params.yaml", "presets")
"""What ratios come from."""
TOLD = 3
"""Rows without a judgement that are named; the table has all."""
PROMOTE = "make bench-gate ARGS=--promote"

Status = Literal["ok", "better", "broken", "new", "gone"]
Share = Annotated[float, Field(gt=0, le=1)]


class Entry(BaseModel):
    """A ratio as it was; `share` is of this row alone."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    ratio: float = Field(gt=0)
    share: Share | None = None


class Baseline(BaseModel):
    """Row -> ratio's name -> what it was, and where."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    machine: dict[str, str]
    commit: str
    date: str
    rows: dict[str, dict[str, Entry]]


class Baselines(BaseModel):
    """What the file holds."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    schema_version: Literal[1] = Field(alias="schema")
    share: Share = SHARE
    benchmarks: dict[str, Baseline]


class Line(NamedTuple):
    """The judgement of one ratio."""

    benchmark: str
    row: str
    name: str
    status: Status
    ratio: float | None
    baseline: float | None
    least: float | None


def ratios_of(rows: Sequence[Named]) -> dict[str, dict[str, float]]:
    """Row -> the ratios that are judged: to the reference, and to the proposal's way where that is the goal."""
    found = {}
    for one in rows:
        names = [PLAIN, *([VARIANT] if (one.row.goal or "").endswith("seed's way") else [])]
        ratios = {name: one.row.ratios[name].median for name in names if name in one.row.ratios}
        if ratios and not one.row.is_part:
            found[one.name] = ratios
    return found


def judge(results: Mapping[str, Results], baselines: Baselines) -> list[Line]:
    """A line per ratio that was measured or is in the baseline."""
    lines = []
    for benchmark, measured in results.items():
        found = ratios_of(kept.named({benchmark: measured}))
        known = baselines.benchmarks.get(benchmark)
        stored = known.rows if known else {}
        for row in dict.fromkeys([*found, *stored]):
            now, then = found.get(row, {}), stored.get(row, {})
            for name in dict.fromkeys([*now, *then]):
                line = Line(benchmark, row, name, "new", now.get(name), None, None)
                lines.append(_beside(line, then.get(name), baselines.share))
    return lines


def _beside(line: Line, entry: Entry | None, share: float) -> Line:
    if entry is None:
        return line
    share = entry.share or share
    line = line._replace(baseline=entry.ratio, least=share * entry.ratio)
    if line.ratio is None:
        return line._replace(status="gone")
    if line.ratio < share * entry.ratio:
        return line._replace(status="broken")
    return line._replace(status="better" if line.ratio > entry.ratio / share else "ok")


def broken_lines(lines: Sequence[Line]) -> list[str]:
    """One for each ratio that fell, with what to do; one where nothing was compared."""
    told = [
        f"gate: {line.benchmark}: {line.row}: {line.name} is {line.ratio:.3g}x, below {line.least:.3g}x (baseline "
        f"{line.baseline:.3g}x): measure again on a quiet machine (`{COMMANDS[line.benchmark]}`); find what made it "
        f"slow, or if it must be so: `{PROMOTE} BENCH={line.benchmark}` [exit 4]"
        for line in lines
        if line.status == "broken"
    ]
    if all(line.status in ("new", "gone") for line in lines):
        told.append(
            f"gate: no ratio has a baseline, so nothing is judged; `{PROMOTE}` makes them [exit 4]"
        )
    return told


def notes(results: Mapping[str, Results], baselines: Baselines, lines: Sequence[Line]) -> list[str]:
    """What is no failure: ratios without a baseline or without a measurement, and another machine."""
    told = []
    for benchmark, measured in results.items():
        for status, meaning in (
            ("new", "without a baseline yet"),
            ("gone", "in the baseline, but not measured"),
        ):
            named = (
                line.row for line in lines if line.benchmark == benchmark and line.status == status
            )
            rows = list(dict.fromkeys(named))
            if rows:
                more = f"; and {len(rows) - TOLD} more" if len(rows) > TOLD else ""
                told.append(f"{benchmark}: {status}, {meaning}: {'; '.join(rows[:TOLD])}{more}")
        known = baselines.benchmarks.get(benchmark)
        for name, then in (known.machine if known else {}).items():
            if (now := measured.machine[name]) != then:
                told.append(
                    f"{benchmark}: {name} is {now}, the baseline's {then}: ratios may differ for that alone"
                )
    return told


def rendered(lines: Sequence[Line]) -> str:
    """A table of all that is judged."""

    def shown(number: float | None) -> str:
        return "-" if number is None else f"{number:.3g}x"

    rows = [
        [
            line.benchmark,
            line.row,
            line.name,
            shown(line.ratio),
            shown(line.baseline),
            shown(line.least),
            line.status,
        ]
        for line in lines
    ]
    return table(("benchmark", "row", "ratio", "measured", "baseline", "at least", "status"), rows)


def promoted(root: Path, results: Mapping[str, Results], baselines: Baselines) -> dict[str, Any]:
    """The file with these results as baselines; other benchmarks, and shares of rows, stay."""
    stored = {name: one.model_dump(exclude_none=True) for name, one in baselines.benchmarks.items()}
    for benchmark, measured in results.items():
        old = stored.get(benchmark, {"rows": {}})["rows"]
        rows = {
            row: {
                name: old.get(row, {}).get(name, {}) | {"ratio": float(f"{found:.4g}")}
                for name, found in each.items()
            }
            for row, each in ratios_of(kept.named({benchmark: measured})).items()
        }
        machine = {name: measured.machine[name] for name in MACHINE}
        stored[benchmark] = {"machine": machine, **origin(root), "rows": rows}
    return {"schema": 1, "share": baselines.share, "benchmarks": stored}


def origin(root: Path) -> dict[str, str]:
    """When, and of which code."""
    changed = git(root, "status", "--porcelain", "--", *CODE)
    commit = git(root, "rev-parse", "--short=12", "HEAD") or "none"
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"commit": commit + ("+changes" if changed else ""), "date": date}


def read_measured(folder: Path, names: Sequence[str]) -> dict[str, Results]:
    """What a folder holds of these benchmarks, or of all.

    Raises:
        ArtifactError: a named one was not measured, or nothing was, or a file has another form.
    """
    found = {
        name: results for name, results in kept.read(folder).items() if not names or name in names
    }
    missing = [name for name, results in found.items() if results is None]
    if missing and (names or len(missing) == len(found)):
        raise ArtifactError(
            f"{folder / f'{missing[0]}.json'}: is missing; `{COMMANDS[missing[0]]}` measures it"
        )
    return {name: results for name, results in found.items() if results is not None}


def gate(root: Path, folder: Path, names: Sequence[str], promote: bool) -> int:
    """Judge, or store with `promote`; the exit code.

    Raises:
        ArtifactError: a file cannot be read.
    """
    results = read_measured(folder, names)
    stored = read_file(root, BASELINES, Baselines, f"git checkout {BASELINES}")
    baselines = stored or Baselines(schema=1, benchmarks={})
    lines = judge(results, baselines)
    print(rendered(lines), *notes(results, baselines, lines), sep="\n", flush=True)
    if promote:
        artifacts.write_json(root / BASELINES, promoted(root, results, baselines))
        print(f"{BASELINES}: holds the ratios of {', '.join(results)} now; commit it")
        return 0
    broken = broken_lines(lines)
    print("\n".join(broken) or "gate: passed", file=sys.stderr if broken else sys.stdout)
    return 4 if broken else 0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gate", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"of {', '.join(COMMANDS)}; without any: all measured",
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=Path("benchmarks/results"),
        help="folder (default: %(default)s)",
    )
    parser.add_argument("--promote", action="store_true", help="make these ratios the baselines")
    chosen = parser.parse_args(argv)
    if unknown := sorted(set(chosen.names) - set(COMMANDS)):
        parser.error(
            f"{', '.join(unknown)}: there is no such benchmark; there are {', '.join(COMMANDS)}"
        )
    try:
        return gate(Path.cwd(), chosen.results, chosen.names, chosen.promote)
    except ArtifactError as error:
        print(f"gate: {error} [exit 3]", file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main())
