"""results of benchmarks -> one MLflow run of the experiment `benchmarks`, written to a journal like
a stage's
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks import result_files, verdicts
from benchmarks.result_files import Named, Results
from benchmarks.verdicts import PROPOSED
from pipeline.reporting.speed import LIMIT, PLAIN, VARIANT
from pipeline.storage.artifacts import digest_of, file_digest
from pipeline.tracking.journal import Header
from pipeline.tracking.run import Run, commit, git

EXPERIMENT = "benchmarks"
SPREAD = {
    VARIANT: "over_proposal",
    PROPOSED: "proposal",
    LIMIT: "of_limit",
    "without/ours": "over_without",
}
"""Ratios of main rows, beside that to the reference -> what follows the benchmark's name in a
metric's.
"""
LONGEST = 200
"""Characters of a row's name in a metric's."""

Metric = tuple[str, int, float]


def record(root: Path, results: Path, names: Sequence[str], written: Sequence[Path]) -> str:
    """Records results, machine, files, page and figures as a run; returns its name.

    Equal results are the same run, however often they are recorded. Without a server they wait
    for `make sync`.
    """
    result = {
        name: item
        for name, item in result_files.read(results).items()
        if name in names and item is not None
    }
    files = [results / f"{name}.json" for name in result]
    key = digest_of({path.name: file_digest(path) for path in files})
    header = header_of(root, key, result)
    with Run.start(root, EXPERIMENT, key, header) as run:
        run.metrics(metrics(result))
        for path in files:
            run.artifact(path, "results")
        for path in written:
            run.artifact(path, "" if path.suffix == ".md" else "benchmarks")
    return header.run_name


def header_of(root: Path, key: str, result: Mapping[str, Results]) -> Header:
    """Returns machine and versions as params; device, commit and a summary as tags."""
    code = commit(root)
    tags = {
        "quatrain.benchmarks": " ".join(result),
        **{
            f"quatrain.{name}": values(result, name)
            for name in ("device", "backend", "cpu", "threads")
        },
        "git.commit": code,
        "git.dirty": str(bool(git(root, "status", "--porcelain", "--untracked-files=no"))).lower(),
        "mlflow.source.name": "make bench",
        **({} if code == "none" else {"mlflow.source.git.commit": code}),
        "mlflow.note.content": note(result_files.named(dict(result))),
    }
    name = f"bench-{next(iter(result)) if len(result) == 1 else 'all'}-{key[:8]}"
    return Header(
        key,
        EXPERIMENT,
        name,
        result_files.common(dict(result)) | {"benchmarks": " ".join(result)},
        tags,
    )


def values(result: Mapping[str, Results], name: str) -> str:
    """Returns a machine setting over all benchmarks: `cpu`, or `cpu, cuda` if they differ."""
    return ", ".join(dict.fromkeys(results.machine[name] for results in result.values()))


def note(rows: Sequence[Named]) -> str:
    """Goals and promises in two lines, and the goals that are missed."""
    counts = {
        name.split("/", 1)[1]: int(count)
        for name, _, count in total(rows)
        if name.startswith("claims/")
    }
    encountered = [item.row.is_reached for item in rows if item.row.goal]
    missed = [
        f"* missed: {item.name}: {item.row.goal}"
        for item in rows
        if item.row.goal and not item.row.is_reached
    ]
    promises = ", ".join(f"{count} {word.replace('_', ' ')}" for word, count in counts.items())
    return "\n".join(
        [
            f"Goals: {sum(map(bool, encountered))} of {len(encountered)} met.",
            "",
            f"Promises: {promises}.",
            "",
            *missed,
        ]
    )


def metrics(result: Mapping[str, Results]) -> Iterator[Metric]:
    """Yields `allo/ROW`, the speed-up over the reference; `allo.of_limit/ROW` and its like for main
    rows; counts.
    """
    rows, observed = result_files.named(dict(result)), set()
    for item in rows:
        row = key_of(item, observed)
        if PLAIN in item.row.ratios:
            yield f"{item.benchmark}/{row}", 0, item.row.ratios[PLAIN].median
        for name, kind in SPREAD.items():
            if name in item.row.ratios and not item.row.is_part:
                yield f"{item.benchmark}.{kind}/{row}", 0, item.row.ratios[name].median
    yield from total(rows)


def key_of(item: Named, observed: set[tuple[str, str]]) -> str:
    """Returns a row's name as a metric name, different from any `observed` of its benchmark."""
    plain = key = re.sub(r"[^A-Za-z0-9.-]+", "_", item.name).strip("_.")[:LONGEST]
    number = 1
    while (item.benchmark, key) in observed:
        number += 1
        key = f"{plain}_{number}"
    observed.add((item.benchmark, key))
    return key


def total(rows: Sequence[Named]) -> Iterator[Metric]:
    """Yields counts of reached and missed goals, and of claims by verdict."""
    encountered = [item.row.is_reached for item in rows if item.row.goal]
    yield "goals/met", 0, float(encountered.count(True))
    yield "goals/missed", 0, float(len(encountered) - encountered.count(True))
    words = [item.word for item in verdicts.claim_verdicts(rows) if item.rows]
    for word in dict.fromkeys(word for word in verdicts.WORDS if word in words):
        yield f"claims/{word.replace(' ', '_')}", 0, float(words.count(word))
