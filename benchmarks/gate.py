"""measured ratios, benchmarks/baselines.json -> exit 4 and a line per ratio below its baseline"""

import argparse
import datetime
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from benchmarks import result_files
from benchmarks.result_files import COMMANDS, Named, Results
from pipeline.reporting.speed import PLAIN, VARIANT, read_file
from pipeline.reporting.tables import markdown_table
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
LISTED = 3
"""Rows without a judgement that are named; the table has all."""
PROMOTE = "make bench-gate ARGS=--promote"

Status = Literal["ok", "better", "broken", "new", "gone"]
Share = Annotated[float, Field(gt=0, le=1)]


class Entry(BaseModel):
    """Holds a stored ratio; `share` applies to this row only."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    ratio: float = Field(gt=0)
    share: Share | None = None


class Baseline(BaseModel):
    """Holds row -> name of a ratio -> stored ratio, with machine and commit."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    machine: dict[str, str]
    commit: str
    date: str
    rows: dict[str, dict[str, Entry]]


class Baselines(BaseModel):
    """Holds the content of the file."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    schema_version: Literal[1] = Field(alias="schema")
    share: Share = SHARE
    benchmarks: dict[str, Baseline]


class Line(NamedTuple):
    """Holds the status of one ratio."""

    benchmark: str
    row: str
    name: str
    status: Status
    ratio: float | None
    baseline: float | None
    least: float | None


def ratios_of(rows: Sequence[Named]) -> dict[str, dict[str, float]]:
    """Returns row -> the ratios to check: to the reference, and to the proposal's variant if the
    goal is about it.
    """
    result = {}
    for item in rows:
        names = [PLAIN, *([VARIANT] if (item.row.goal or "").endswith("seed's way") else [])]
        ratios = {name: item.row.ratios[name].median for name in names if name in item.row.ratios}
        if ratios and not item.row.is_part:
            result[item.name] = ratios
    return result


def judge(results: Mapping[str, Results], baselines: Baselines) -> list[Line]:
    """Returns a line per ratio that was measured or is in the baseline."""
    lines = []
    for benchmark, measured in results.items():
        result = ratios_of(result_files.named({benchmark: measured}))
        reference = baselines.benchmarks.get(benchmark)
        stored = reference.rows if reference else {}
        for row in dict.fromkeys([*result, *stored]):
            now, then = result.get(row, {}), stored.get(row, {})
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
    """Returns an error line per broken ratio, with its remedy; one line if nothing was compared."""
    message = [
        f"gate: {line.benchmark}: {line.row}: {line.name} is {line.ratio:.3g}x, below"
        f" {line.least:.3g}x (baseline {line.baseline:.3g}x): measure again on a quiet machine"
        f" (`{COMMANDS[line.benchmark]}`); find what made it slow, or if it must be so: `{PROMOTE}"
        f" BENCH={line.benchmark}` [exit 4]"
        for line in lines
        if line.status == "broken"
    ]
    if all(line.status in ("new", "gone") for line in lines):
        message.append(
            f"gate: no ratio has a baseline, so nothing is judged; `{PROMOTE}` makes them [exit 4]"
        )
    return message


def notes(results: Mapping[str, Results], baselines: Baselines, lines: Sequence[Line]) -> list[str]:
    """Returns remarks that are no failures: ratios without a baseline or a measurement, another
    machine.
    """
    message = []
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
                more = f"; and {len(rows) - LISTED} more" if len(rows) > LISTED else ""
                message.append(
                    f"{benchmark}: {status}, {meaning}: {'; '.join(rows[:LISTED])}{more}"
                )
        reference = baselines.benchmarks.get(benchmark)
        for name, then in (reference.machine if reference else {}).items():
            if (now := measured.machine[name]) != then:
                message.append(
                    f"{benchmark}: {name} is {now}, the baseline's {then}: ratios may differ for"
                    " that alone"
                )
    return message


def rendered(lines: Sequence[Line]) -> str:
    """Renders a table of all checked ratios."""

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
    head = ("benchmark", "row", "ratio", "measured", "baseline", "at least", "status")
    return markdown_table(head, rows)


def promoted(root: Path, results: Mapping[str, Results], baselines: Baselines) -> dict[str, Any]:
    """Returns the file with these results as baselines; other benchmarks and shares of rows are
    kept.
    """
    stored = {
        name: item.model_dump(exclude_none=True) for name, item in baselines.benchmarks.items()
    }
    for benchmark, measured in results.items():
        old = stored.get(benchmark, {"rows": {}})["rows"]
        rows = {
            row: {
                name: old.get(row, {}).get(name, {}) | {"ratio": float(f"{result:.4g}")}
                for name, result in each.items()
            }
            for row, each in ratios_of(result_files.named({benchmark: measured})).items()
        }
        machine = {name: measured.machine[name] for name in MACHINE}
        stored[benchmark] = {"machine": machine, **origin(root), "rows": rows}
    return {"schema": 1, "share": baselines.share, "benchmarks": stored}


def origin(root: Path) -> dict[str, str]:
    """Returns date and commit of the measured code."""
    changed = git(root, "status", "--porcelain", "--", *CODE)
    commit = git(root, "rev-parse", "--short=12", "HEAD") or "none"
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"commit": commit + ("+changes" if changed else ""), "date": date}


def read_measured(folder: Path, names: Sequence[str]) -> dict[str, Results]:
    """Reads the results of these benchmarks in a folder, or of all.

    Raises:
        ArtifactError: a named benchmark or all of them were not measured, or a file has another
        schema.
    """
    result = {
        name: results
        for name, results in result_files.read(folder).items()
        if not names or name in names
    }
    missing = [name for name, results in result.items() if results is None]
    if missing and (names or len(missing) == len(result)):
        raise ArtifactError(
            f"{folder / f'{missing[0]}.json'}: is missing; `{COMMANDS[missing[0]]}` measures it"
        )
    return {name: results for name, results in result.items() if results is not None}


def gate(root: Path, folder: Path, names: Sequence[str], promote: bool) -> int:
    """Checks the ratios, or stores them with `promote`; returns the exit code.

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
    selected = parser.parse_args(argv)
    if unknown := sorted(set(selected.names) - set(COMMANDS)):
        parser.error(
            f"{', '.join(unknown)}: there is no such benchmark; there are {', '.join(COMMANDS)}"
        )
    try:
        return gate(Path.cwd(), selected.results, selected.names, selected.promote)
    except ArtifactError as error:
        print(f"gate: {error} [exit 3]", file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main())
