"""names of benchmarks (none: all but peers) -> tables, results/*.json, page and MLflow run"""

import argparse
import importlib
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import claims, speed
from benchmarks.claims import COMMANDS, PROPOSALS, Named
from benchmarks.harness import HEAD, cells, results_of
from benchmarks.speed import LIMIT, PLAIN, PROPOSED, VARIANT, WITHOUT, Results
from pipeline.judging.render import markdown_table
from pipeline.runtime import console
from pipeline.runtime.devices import settings
from pipeline.runtime.errors import LockHeld, described
from pipeline.runtime.stage import prepare_process
from pipeline.storage.params_file import read_params
from pipeline.tracking.origin import code_tags
from pipeline.tracking.records import Header
from pipeline.tracking.run import Run, path_of
from pipeline.tracking.store import resolve_uri
from quatrain.devices import on_device
from quatrain.errors import ConfigError, DataError
from quatrain.registry import MODELS
from quatrain.storage.folders import digest_of, file_digest

RESULTS = Path("benchmarks/results")
BENCHMARKS = (*MODELS, "machine")
"""What is measured if none is named: `benchmarks/NAME/measure.py`."""
SLOW = {"iqn_to_return": "benchmarks.iqn.whole"}
"""Benchmarks whose rounds take minutes: their modules. One round is enough."""
PEERS = Path(".bench/peers")
"""Environment of other libraries."""
LEAST_ROUNDS = 5
EXPERIMENT = "benchmarks"
KINDS = {VARIANT: "over_proposal", PROPOSED: "proposal", LIMIT: "of_limit", WITHOUT: "over_without"}
"""Ratio of a main row -> what follows the benchmark's name in a metric's."""
LONGEST = 200
"""Characters of a row's name in a metric's."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    slow = f"of each (default: {LEAST_ROUNDS}; {', '.join(SLOW)}: 1)"
    parser.add_argument("--rounds", type=int, help=slow)
    page = "measure nothing, write the page of the results that are there"
    parser.add_argument("--page", action="store_true", help=page)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)  # in this process
    selected = parsed(parser, argv, (*BENCHMARKS, "peers", *SLOW))
    names = list(dict.fromkeys(selected.names)) or list(BENCHMARKS)
    least = 1 if SLOW.keys() >= {*names} else LEAST_ROUNDS
    rounds = least if selected.rounds is None else selected.rounds
    if rounds < least:
        parser.error(f"--rounds {rounds}: medians of fewer than {least} rounds say nothing")
    if selected.page:
        return publish(Path.cwd(), selected.results, ())
    if selected.here:
        return measured_here(names[0], rounds, selected.results)
    codes = {name: measured(name, rounds, selected.results) for name in names}
    if done := [name for name, code in codes.items() if code == 0]:
        publish(Path.cwd(), selected.results, done)
    return max(codes.values())


def parsed(
    parser: argparse.ArgumentParser, argv: list[str] | None, names: Sequence[str]
) -> argparse.Namespace:
    """Parses arguments with names of benchmarks and the folder of their results."""
    listed = ", ".join(names)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {listed}; default: all")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the JSON")
    result = parser.parse_args(argv)
    if unknown := sorted(set(result.names) - set(names)):
        parser.error(f"{', '.join(unknown)}: there is no such benchmark; there are {listed}")
    return result


def measured(name: str, rounds: int, results: Path) -> int:
    """Measures in a new process: jax reads its thread count once, memory is not shared. Other
    libraries have an environment of their own.
    """
    begin = time.perf_counter()
    python, variables = Path(sys.executable), dict(os.environ)
    if name == "peers":
        if not (PEERS / ".installed").exists():
            why = f"{PEERS} lacks other libraries; `{COMMANDS[name]}` installs them"
            print(f"peers: {why} [exit 3]", file=sys.stderr)
            return 3
        python = PEERS / "bin" / "python"
        paths = f"{Path('src').resolve()}:{Path.cwd()}"
        variables |= {"PYTHONPATH": paths, "PYTHONWARNINGS": "ignore"}
    options = ["--rounds", str(rounds), "--results", str(results), "--here"]
    command = [python, "-m", "benchmarks.run", name, *options]
    code = subprocess.run(command, env=variables).returncode
    ended = f" and signal {-code}" if code < 0 else ""
    print(f"{name}: {time.perf_counter() - begin:.0f} s{ended}\n", file=sys.stderr)
    return max(code, 1) if code else 0


def measured_here(name: str, rounds: int, results: Path) -> int:
    """Measures one benchmark, prints its table and stores its JSON."""
    try:
        params = read_params(Path.cwd())
    except ConfigError as error:
        print(f"{error} [exit 2]", file=sys.stderr)
        return 2
    prepare_process(params)
    # Not before: it imports jax, which reads its thread count once.
    benchmark = importlib.import_module(SLOW.get(name, f"benchmarks.{name}.measure"))
    framework = MODELS.get(name, "jax")
    with on_device(params, framework):
        report = benchmark.measure(Path.cwd(), rounds)
    store(name, results_of(report, settings(params, framework), rounds), results)
    return 0


def store(name: str, results: Results, folder: Path) -> None:
    """Prints the table of a benchmark and writes its JSON."""
    machine, rounds = results.machine, f"{results.rounds} interleaved rounds"
    print(f"{name}: {machine.cpu}, {machine.backend}, {machine.threads} threads, {rounds}")
    print("", markdown_table(HEAD, map(cells, results.rows)), "", *results.notes, sep="\n")
    speed.write_results(folder / f"{name}.json", results)


# The page and the run in MLflow.


def publish(root: Path, folder: Path, names: Sequence[str] = tuple(COMMANDS)) -> int:
    """Writes the page of all results and records the measured benchmarks; prints the locations or
    the reason of a failure. Returns the exit code.
    """
    from benchmarks import page  # loads matplotlib, for which a wrong argument should not wait

    try:
        written = page.write(root, folder)
        shown = [os.path.relpath(path, root) for path in (written[0], written[0].with_suffix(""))]
        print(f"page: {shown[0]}; {len(written) - 1} pictures: {shown[1]}")
        stored = {name: each for name, each in claims.read(folder).items() if name in names}
        if stored:
            name = record(root, folder, stored, written)
            place = f"{console.shown(resolve_uri(root))} (`make ui`)"
            print(f"run {name} of the experiment `{EXPERIMENT}`: {place}")
    except (DataError, LockHeld, OSError) as error:
        why = console.redact(" ".join(described(error).split()))
        print(f"warning: publish: {why}; the results are kept in {folder}", file=sys.stderr)
        return 3
    return 0


def record(root: Path, folder: Path, stored: Mapping[str, Results], written: Sequence[Path]) -> str:
    """Records results, machine, files, page and figures as a run; returns its name.

    Equal results are the same run, however often they are recorded. Without a server they wait
    for `make sync`.
    """
    files = [folder / f"{name}.json" for name in stored]
    key = digest_of({path.name: file_digest(path) for path in files})
    header = header_of(root, key, stored)
    with Run.start(root, path_of(root, EXPERIMENT, key), header) as run:
        run.metrics((name, 0, value) for name, value in metrics(claims.named(stored)).items())
        for path in files:
            run.artifact(path, "results")
        for path in written:
            run.artifact(path, "" if path.suffix == ".md" else "benchmarks")
    return header.run_name


def header_of(root: Path, key: str, stored: Mapping[str, Results]) -> Header:
    """Returns machine and versions as params; device, commit, counts and missed goals as tags."""
    params = claims.settings(stored) | {"benchmarks": " ".join(stored)}
    rows = claims.named(stored)
    counts = ", ".join(f"{name} {count:g}" for name, count in totals(rows).items())
    missed = [
        f"* missed: {row.title}: {speed.asked(row)}: {speed.reached(row)}"
        for _, row, _ in rows
        if row.goal_reached is False
    ]
    shared = ("benchmarks", "device", "backend", "cpu", "threads")
    tags = {
        **{f"quatrain.{name}": params[name] for name in shared},
        **code_tags(root),
        "mlflow.source.name": "make bench",
        "mlflow.note.content": "\n".join([counts, "", *missed]),
    }
    name = f"bench-{next(iter(stored)) if len(stored) == 1 else 'all'}-{key[:8]}"
    return Header(key, EXPERIMENT, name, params, tags)


def metrics(rows: Sequence[Named]) -> dict[str, float]:
    """Returns `allo/ROW`, the speed-up over the reference; `allo.of_limit/ROW` and its like for
    main rows; counts.
    """
    result: dict[str, float] = {}
    names: set[tuple[str, str]] = set()
    for item in rows:
        name = re.sub(r"[^A-Za-z0-9.-]+", "_", item.key).strip("_.")[:LONGEST]
        while (item.benchmark, name) in names:
            name += "_"
        names.add((item.benchmark, name))
        for ratio, (median, _, _) in item.row.ratios.items():
            if ratio == PLAIN:
                result[f"{item.benchmark}/{name}"] = median
            elif not item.row.part_of:
                result[f"{item.benchmark}.{KINDS[ratio]}/{name}"] = median
    return result | totals(rows)


def totals(rows: Sequence[Named]) -> dict[str, float]:
    """Returns counts of reached and missed goals, and of claims by verdict."""
    goals = [item.row.goal_reached for item in rows if item.row.goal]
    verdicts = [item for name in PROPOSALS for item in claims.verdicts(name, rows) if item.rows]
    words = Counter(item.word for item in verdicts)
    counts = {"goals/met": goals.count(True), "goals/missed": goals.count(False)}
    counts |= {f"claims/{word.replace(' ', '_')}": count for word, count in words.items()}
    return {name: float(count) for name, count in counts.items()}


if __name__ == "__main__":
    sys.exit(main())
