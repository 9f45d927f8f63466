"""measured ratios, benchmarks/baselines.json -> exit 4 and a line per ratio below its baseline"""

import argparse
import datetime
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import ConfigDict, Field, TypeAdapter

from benchmarks import claims
from benchmarks.claims import COMMANDS
from benchmarks.run import parsed
from benchmarks.speed import PLAIN, VARIANT, Results
from pipeline.judging.render import markdown_table
from pipeline.reporting.result_files import read_file, write_lines
from pipeline.runtime.errors import described
from pipeline.runtime.git import revision
from quatrain.errors import DataError

BASELINES = Path("benchmarks/baselines.json")
SHARE = 0.6
"""Of its baseline that a ratio must have: other machines and noise move ratios, too."""
MACHINE = ("cpu", "device", "backend", "threads")
CODE = ("src", "benchmarks/*.py", "params.yaml", "presets")
"""What ratios depend on."""
PROMOTE = "make bench-gate ARGS=--promote"


class Baseline(NamedTuple):
    """Holds `ROW: RATIO` -> stored ratio, with machine and commit."""

    machine: dict[str, str]
    commit: str
    date: str
    ratios: dict[str, Annotated[float, Field(gt=0)]]


class Baselines(NamedTuple):
    """Holds the content of the file."""

    schema: Literal[3]
    share: Annotated[float, Field(gt=0, le=1)]
    benchmarks: dict[str, Baseline]


FORM = TypeAdapter(Baselines, config=ConfigDict(strict=True))


class Line(NamedTuple):
    """Holds the comparison of one ratio."""

    benchmark: str
    name: str
    ratio: float | None
    baseline: float | None
    least: float | None

    @property
    def status(self) -> str:
        if self.baseline is None or self.least is None:
            return "new: no baseline yet"
        if self.ratio is None:
            return "gone: not measured"
        if self.ratio < self.least:
            return "broken"
        return "better" if self.ratio * self.least > self.baseline**2 else "ok"

    @property
    def why(self) -> str:
        """Returns what is broken, and its remedy."""
        ratio, baseline, least = map(shown, self[2:])
        return (
            f"gate: {self.benchmark}: {self.name} is {ratio}, below {least} (baseline {baseline}):"
            f" measure again on a quiet machine (`{COMMANDS[self.benchmark]}`); find what made it"
            f" slow, or if it must be so: `{PROMOTE} BENCH={self.benchmark}` [exit 4]"
        )


def ratios_of(benchmark: str, results: Results) -> dict[str, float]:
    """Returns the ratios to check: to the reference, and to the proposal's variant if the goal is
    about it.
    """
    result = {}
    for item in claims.named({benchmark: results}):
        goal = item.row.goal
        names = [PLAIN, VARIANT] if goal and goal.against == "seed's way" else [PLAIN]
        for name in names:
            if name in item.row.ratios and not item.row.part_of:
                result[f"{item.key}: {name}"] = item.row.ratios[name].median
    return result


def judge(stored: Mapping[str, Results], baselines: Baselines) -> list[Line]:
    """Returns a line per ratio that was measured or is in the baseline."""
    lines = []
    for benchmark, results in stored.items():
        now, old = ratios_of(benchmark, results), baselines.benchmarks.get(benchmark)
        then = old.ratios if old else {}
        for name in dict.fromkeys([*now, *then]):
            baseline = then.get(name)
            least = None if baseline is None else baseline * baselines.share
            lines.append(Line(benchmark, name, now.get(name), baseline, least))
    return lines


def other_machines(stored: Mapping[str, Results], baselines: Baselines) -> list[str]:
    """Returns a remark per setting that is not the baseline's."""
    return [
        f"{benchmark}: {name} is {now}, the baseline's {then}: ratios may differ for that alone"
        for benchmark, baseline in baselines.benchmarks.items()
        if benchmark in stored
        for name, then in baseline.machine.items()
        if (now := getattr(stored[benchmark].machine, name)) != then
    ]


def promoted(root: Path, stored: Mapping[str, Results], baselines: Baselines) -> Baselines:
    """Returns baselines with these results; other benchmarks are kept."""
    commit = revision(root, CODE)
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    benchmarks = dict(baselines.benchmarks)
    for benchmark, results in stored.items():
        ratios = {
            name: float(f"{ratio:.4g}") for name, ratio in ratios_of(benchmark, results).items()
        }
        machine = {name: getattr(results.machine, name) for name in MACHINE}
        benchmarks[benchmark] = Baseline(machine, commit, date, ratios)
    return baselines._replace(benchmarks=benchmarks)


def shown(number: float | None) -> str:
    return "-" if number is None else f"{number:.3g}x"


def gate(root: Path, folder: Path, names: Sequence[str], promote: bool) -> int:
    """Checks the ratios, or stores them with `promote`; returns the exit code.

    Raises:
        DataError: a file cannot be read, or a named benchmark or all of them were not measured.
    """
    measured = claims.read(folder)
    stored = {name: measured[name] for name in measured if not names or name in names}
    missing = [name for name in names or COMMANDS if name not in stored]
    if missing and (names or not stored):
        file = folder / f"{missing[0]}.json"
        raise DataError(f"{file}: is missing; `{COMMANDS[missing[0]]}` measures it")
    restore = f"git checkout {BASELINES}"
    baselines = read_file(root, BASELINES, FORM, restore) or Baselines(3, SHARE, {})
    lines = judge(stored, baselines)
    head = ("benchmark", "ratio", "measured", "baseline", "at least", "status")
    rows = [[*line[:2], *map(shown, line[2:]), line.status] for line in lines]
    print(markdown_table(head, rows), *other_machines(stored, baselines), sep="\n", flush=True)
    if promote:
        write_lines(root / BASELINES, promoted(root, stored, baselines), depth=4)
        print(f"{BASELINES}: holds the ratios of {', '.join(stored)} now; commit it")
        return 0
    broken = [line.why for line in lines if line.status == "broken"]
    if all(line.ratio is None or line.baseline is None for line in lines):
        nothing = "gate: no ratio has a baseline, so nothing is judged"
        broken.append(f"{nothing}; `{PROMOTE}` makes them [exit 4]")
    print("\n".join(broken) or "gate: passed", file=sys.stderr if broken else sys.stdout)
    return 4 if broken else 0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gate", description=__doc__)
    parser.add_argument("--promote", action="store_true", help="make these ratios the baselines")
    selected = parsed(parser, argv, list(COMMANDS))
    try:
        return gate(Path.cwd(), selected.results, selected.names, selected.promote)
    except DataError as error:
        print(f"gate: {described(error)} [exit 3]", file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main())
