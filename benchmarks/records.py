"""what benchmarks kept -> one MLflow run of the experiment `benchmarks`, written to a journal as any stage's."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks import kept, verdicts
from benchmarks.kept import Named, Results
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
"""Ratios of main rows, beside that to the reference -> what follows the benchmark's name in a metric's."""
LONGEST = 200
"""Characters of a row's name in a metric's."""

Metric = tuple[str, int, float]


def record(root: Path, results: Path, names: Sequence[str], written: Sequence[Path]) -> str:
    """The name of the run: what these benchmarks found, on which machine, with their files, the page and its pictures.

    The same results are the same run, however often they are recorded. Without a server they wait for `make sync`.
    """
    found = {
        name: one for name, one in kept.read(results).items() if name in names and one is not None
    }
    files = [results / f"{name}.json" for name in found]
    key = digest_of({path.name: file_digest(path) for path in files})
    header = header_of(root, key, found)
    with Run.begun(root, EXPERIMENT, key, header) as run:
        run.metrics(metrics(found))
        for path in files:
            run.artifact(path, "results")
        for path in written:
            run.artifact(path, "" if path.suffix == ".md" else "benchmarks")
    return header.run_name


def header_of(root: Path, key: str, found: Mapping[str, Results]) -> Header:
    """Machine and versions as params; device, commit and a summary where the UI shows them."""
    code = commit(root)
    tags = {
        "quatrain.benchmarks": " ".join(found),
        **{
            f"quatrain.{name}": values(found, name)
            for name in ("device", "backend", "cpu", "threads")
        },
        "git.commit": code,
        "git.dirty": str(bool(git(root, "status", "--porcelain", "--untracked-files=no"))).lower(),
        "mlflow.source.name": "make bench",
        **({} if code == "none" else {"mlflow.source.git.commit": code}),
        "mlflow.note.content": note(kept.named(dict(found))),
    }
    name = f"bench-{next(iter(found)) if len(found) == 1 else 'all'}-{key[:8]}"
    return Header(
        key, EXPERIMENT, name, kept.common(dict(found)) | {"benchmarks": " ".join(found)}, tags
    )


def values(found: Mapping[str, Results], name: str) -> str:
    """Of the machine, over all benchmarks: `cpu`, or `cpu, cuda` where they differ."""
    return ", ".join(dict.fromkeys(results.machine[name] for results in found.values()))


def note(rows: Sequence[Named]) -> str:
    """Goals and promises in two lines, and the goals that are missed."""
    counts = {
        name.split("/", 1)[1]: int(count)
        for name, _, count in counted(rows)
        if name.startswith("claims/")
    }
    met = [one.row.met for one in rows if one.row.goal]
    missed = [
        f"* missed: {one.name}: {one.row.goal}" for one in rows if one.row.goal and not one.row.met
    ]
    promises = ", ".join(f"{count} {word.replace('_', ' ')}" for word, count in counts.items())
    return "\n".join(
        [
            f"Goals: {sum(map(bool, met))} of {len(met)} met.",
            "",
            f"Promises: {promises}.",
            "",
            *missed,
        ]
    )


def metrics(found: Mapping[str, Results]) -> Iterator[Metric]:
    """`allo/ROW` is how many times as fast as the reference; `allo.of_limit/ROW` and its like, of main rows; counts."""
    rows, seen = kept.named(dict(found)), set()
    for one in rows:
        row = key_of(one, seen)
        if PLAIN in one.row.ratios:
            yield f"{one.benchmark}/{row}", 0, one.row.ratios[PLAIN].median
        for name, kind in SPREAD.items():
            if name in one.row.ratios and not one.row.is_part:
                yield f"{one.benchmark}.{kind}/{row}", 0, one.row.ratios[name].median
    yield from counted(rows)


def key_of(one: Named, seen: set[tuple[str, str]]) -> str:
    """A row's name of letters that a metric may have, unlike any that was `seen` of its benchmark."""
    plain = key = re.sub(r"[^A-Za-z0-9.-]+", "_", one.name).strip("_.")[:LONGEST]
    number = 1
    while (one.benchmark, key) in seen:
        number += 1
        key = f"{plain}_{number}"
    seen.add((one.benchmark, key))
    return key


def counted(rows: Sequence[Named]) -> Iterator[Metric]:
    """How many goals are met and missed, and how many promises of these rows have which verdict."""
    met = [one.row.met for one in rows if one.row.goal]
    yield "goals/met", 0, float(met.count(True))
    yield "goals/missed", 0, float(len(met) - met.count(True))
    words = [one.word for one in verdicts.judged(rows) if one.rows]
    for word in dict.fromkeys(word for word in verdicts.WORDS if word in words):
        yield f"claims/{word.replace(' ', '_')}", 0, float(words.count(word))
