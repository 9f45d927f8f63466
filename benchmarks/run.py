"""names of benchmarks -> tables, benchmarks/results/*.json, the page and an MLflow run"""

import argparse
import importlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import claims
from benchmarks.claims import COMMANDS, PROPOSALS, WORDS, Named
from benchmarks.harness import render, results_of
from pipeline.reporting import speed
from pipeline.reporting.speed import LIMIT, PLAIN, PROPOSED, VARIANT, WITHOUT, Results
from pipeline.runtime.devices import on_device, settings
from pipeline.runtime.errors import ArtifactError, ConfigError, LockHeld
from pipeline.runtime.stage import prepare_process
from pipeline.storage.artifacts import digest_of, file_digest
from pipeline.storage.params_file import read_params
from pipeline.tracking.journal import Header, redact
from pipeline.tracking.run import Run, commit, git
from pipeline.tracking.store import resolve_uri
from quatrain.errors import DataError
from quatrain.registry import MODELS

RESULTS = Path("benchmarks/results")
BENCHMARKS = (*MODELS, "machine")
"""What has rows: `benchmarks/NAME/measure.py`."""
LEAST_ROUNDS = 5
EXPERIMENT = "benchmarks"
KINDS = {VARIANT: "over_proposal", PROPOSED: "proposal", LIMIT: "of_limit", WITHOUT: "over_without"}
"""Ratio of a main row -> what follows the benchmark's name in a metric's."""
LONGEST = 200
"""Characters of a row's name in a metric's."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    listed = ", ".join(BENCHMARKS)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {listed}; without any: all")
    parser.add_argument("--rounds", type=int, default=LEAST_ROUNDS, help="of each (default: 5)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the JSON")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)  # in this process
    selected = parser.parse_args(argv)
    names = list(dict.fromkeys(selected.names)) or list(BENCHMARKS)
    if unknown := sorted(set(names) - set(BENCHMARKS)):
        parser.error(f"{', '.join(unknown)}: there is no such benchmark; there are {listed}")
    if selected.rounds < LEAST_ROUNDS:
        few = f"medians of fewer than {LEAST_ROUNDS} rounds say nothing"
        parser.error(f"--rounds {selected.rounds}: {few}")
    if selected.here:
        return measured_here(names[0], selected.rounds, selected.results)
    code = max([measured(name, selected.rounds, selected.results) for name in names])
    publish(Path.cwd(), selected.results, names)
    return code


def measured(name: str, rounds: int, results: Path) -> int:
    """Measures in a new process: jax reads its thread count once, memory is not shared."""
    begin = time.perf_counter()
    options = ["--rounds", str(rounds), "--results", str(results), "--here"]
    code = subprocess.run([sys.executable, "-m", "benchmarks.run", name, *options]).returncode
    print(f"{name}: {time.perf_counter() - begin:.0f} s\n", file=sys.stderr)
    return code


def measured_here(name: str, rounds: int, results: Path, module: str = "") -> int:
    """Measures one benchmark, prints its table and stores its JSON. `module` defaults to the
    benchmark's own.
    """
    try:
        params = read_params(Path.cwd())
    except ConfigError as error:
        print(f"{error} [exit 2]", file=sys.stderr)
        return 2
    prepare_process(params)
    # Not before: it imports jax, which reads its thread count once.
    benchmark = importlib.import_module(module or f"benchmarks.{name}.measure")
    framework = MODELS.get(name, "jax")
    with on_device(params, framework):
        report = benchmark.measure(Path.cwd(), rounds)
    store(name, results_of(report, settings(params, framework), rounds), results)
    return 0


def store(name: str, results: Results, folder: Path) -> None:
    """Prints the table of a benchmark and writes its JSON."""
    machine, rounds = results.machine, f"{results.rounds} interleaved rounds"
    print(f"{name}: {machine.cpu}, {machine.backend}, {machine.threads} threads, {rounds}")
    print("", render(results.rows), "", *results.notes, sep="\n")
    speed.write_results(folder / f"{name}.json", results)


# The page and the run in MLflow.


def publish(root: Path, folder: Path, names: Sequence[str] = tuple(COMMANDS)) -> None:
    """Writes the page of all results and records the measured benchmarks; prints the locations or
    the reason of a failure.
    """
    from benchmarks import page  # loads matplotlib, for which a wrong argument should not wait

    try:
        written = page.write(root, folder)
        shown = [os.path.relpath(path, root) for path in (written[0], written[0].with_suffix(""))]
        print(f"page: {shown[0]}; {len(written) - 1} pictures: {shown[1]}")
        stored = {name: each for name, each in claims.read(folder).items() if name in names}
        if stored:
            name = record(root, folder, stored, written)
            place = f"{redact(resolve_uri(root))} (`make ui`)"
            print(f"run {name} of the experiment `{EXPERIMENT}`: {place}")
    except (ArtifactError, DataError, LockHeld, OSError) as error:
        why = " ".join(str(error).split())
        print(f"warning: publish: {why}; the results are kept in {folder}", file=sys.stderr)


def record(root: Path, folder: Path, stored: Mapping[str, Results], written: Sequence[Path]) -> str:
    """Records results, machine, files, page and figures as a run; returns its name.

    Equal results are the same run, however often they are recorded. Without a server they wait
    for `make sync`.
    """
    files = [folder / f"{name}.json" for name in stored]
    key = digest_of({path.name: file_digest(path) for path in files})
    header = header_of(root, key, stored)
    with Run.start(root, EXPERIMENT, key, header) as run:
        run.metrics((name, 0, value) for name, value in metrics(claims.named(stored)).items())
        for path in files:
            run.artifact(path, "results")
        for path in written:
            run.artifact(path, "" if path.suffix == ".md" else "benchmarks")
    return header.run_name


def header_of(root: Path, key: str, stored: Mapping[str, Results]) -> Header:
    """Returns machine and versions as params; device, commit and a summary as tags."""
    params = claims.settings(stored) | {"benchmarks": " ".join(stored)}
    code = commit(root)
    shared = ("benchmarks", "device", "backend", "cpu", "threads")
    tags = {
        **{f"quatrain.{name}": params[name] for name in shared},
        "git.commit": code,
        "git.dirty": str(bool(git(root, "status", "--porcelain", "--untracked-files=no"))).lower(),
        "mlflow.source.name": "make bench",
        **({} if code == "none" else {"mlflow.source.git.commit": code}),
        "mlflow.note.content": note(claims.named(stored)),
    }
    name = f"bench-{next(iter(stored)) if len(stored) == 1 else 'all'}-{key[:8]}"
    return Header(key, EXPERIMENT, name, params, tags)


def note(rows: Sequence[Named]) -> str:
    """Returns counts of goals and claims, and the goals that are missed."""
    counts = ", ".join(f"{name} {count:g}" for name, count in totals(rows).items())
    missed = [
        f"* missed: {item.row.title}: {speed.asked(item.row)}: {speed.reached(item.row)}"
        for item in rows
        if item.row.goal_reached is False
    ]
    return "\n".join([counts, "", *missed])


def metrics(rows: Sequence[Named]) -> dict[str, float]:
    """Returns `allo/ROW`, the speed-up over the reference; `allo.of_limit/ROW` and its like for
    main rows; counts.
    """
    result: dict[str, float] = {}
    names: set[str] = set()
    for item in rows:
        name = re.sub(r"[^A-Za-z0-9.-]+", "_", item.key).strip("_.")[:LONGEST]
        while f"{item.benchmark}/{name}" in names:
            name += "_"
        names.add(f"{item.benchmark}/{name}")
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
    words = [item.word for item in verdicts]
    counts = {"goals/met": goals.count(True), "goals/missed": goals.count(False)}
    for word in WORDS:
        if word in words:
            counts[f"claims/{word.replace(' ', '_')}"] = words.count(word)
    return {name: float(count) for name, count in counts.items()}


if __name__ == "__main__":
    sys.exit(main())
