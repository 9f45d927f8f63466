"""a search space -> trials here or on a cluster, a page, and a preset if one is better.

Killed at any moment, the same command continues: trials that have ended are not run again, the
others go on from their checkpoints.
"""

import itertools
from collections.abc import Sequence
from pathlib import Path

from pipeline.runtime.processes import folder_lock
from pipeline.tracking.origin import flatten
from pipeline.trials import adoption, engine, page
from pipeline.trials.engine import Place, Record
from pipeline.trials.group import Group
from pipeline.trials.search import Row, Search, rank
from pipeline.trials.space import Space
from pipeline.trials.trial import make_trial
from pipeline.trials.verdict import Repeated, Result, decide
from quatrain.storage.folders import digest_of

# What may be changed while the results of earlier trials stay valid.
OPEN = {"trials", "confirm", "retries", "gpus"}
SWEEP_TAG = "quatrain.sweep"


def run(space: Space, place: Place) -> int:
    """Runs a sweep to its end, or continues it; returns the exit code: 1 if no trial has a score.

    Raises:
        CommandFailed: the cluster or the storage fails.
        LockHeld: another sweep of this name runs in this checkout.
        Interrupted: a signal was received; the same command continues.
    """
    sweeps = space.root / ".state" / "sweeps"
    key = sweep_key(space)
    params = flatten(space.sweep.model_dump(mode="json"))
    with (
        folder_lock(sweeps / space.name, patience_seconds=0),
        place,
        Group(space.root, f"sweep-{space.name}", key, params, {SWEEP_TAG: "true"}) as group,
    ):
        journal = sweeps / f"{space.name}-{key[:8]}" / "journal.log"
        search = Search(space, journal, group.ended)
        for row in search.rows():  # An earlier driver may not have recorded or delivered it.
            if row.state not in ("running", "refused"):
                group.ended(search.trial(row), row.name)
        engine.run(space.root, search, place)
        group.metrics(best_so_far(space, search.rows()))
        repeated = repeat(space, search, place, group.ended)
        result = decide(space, search.rows(), repeated)
        group.files += conclude(result, search)
    return 0 if rank(result.rows, space.is_higher_better) else 1


def sweep_key(space: Space) -> str:
    """Returns the digest of all that trials depend on: the file, the params, inputs and code."""
    sweep = space.sweep
    start = make_trial(space.root, sweep.model, space.trial_raw({}))
    content = sweep.model_dump(mode="json", exclude=OPEN)
    return digest_of({"name": space.name, "sweep": content, "start": start.key})


def best_so_far(space: Space, rows: Sequence[Row]) -> list[tuple[str, int, float]]:
    """Returns a metric: the best score of so many trials that have one."""
    scores = [row.score for row in rows if row.score is not None]
    best = itertools.accumulate(scores, max if space.is_higher_better else min)
    return [("sweep/best", count, score) for count, score in enumerate(best, 1)]


def repeat(space: Space, search: Search, place: Place, record: Record) -> Repeated:
    """Runs the start and the best with other base seeds; returns the outcomes of each by seed.

    They are trainings of their own: the learners of one training share its data and worlds.
    """
    confirm = space.sweep.confirm
    sides = sides_of(space, search, confirm.top) if confirm else []
    if confirm is None or len(sides) < 2:
        return {}
    pairs = [(row, seed) for seed in confirm.base_seeds for row in sides]
    trials = [search.trial(*pair) for pair in pairs]
    labels = [f"{row.name}-seed-{seed}" for row, seed in pairs]
    outcomes = engine.run_all(space.root, trials, labels, place, record)
    return {row.number: outcomes[first :: len(sides)] for first, row in enumerate(sides)}


def sides_of(space: Space, search: Search, top: int) -> list[Row]:
    """Returns the start and the best others; equal trainings once."""
    start, *others = search.rows()
    sides: dict[str, Row] = {}
    for row in (start, *rank(others, space.is_higher_better)):
        if len(sides) <= top:
            sides.setdefault(search.trial(row).key, row)
    return list(sides.values())


def conclude(result: Result, search: Search) -> list[Path]:
    """Writes preset and page, and prints the table; returns the files for MLflow."""
    space, best = result.space, result.best
    if best is not None and best.number:
        adoption.write_preset(space, search.trial(best, result.seed), best.number)
    elif best is not None:
        adoption.remove_preset(space)
    folder = Path("reports") / "sweeps" / space.name
    files = page.write(space.root / folder, result, search.study)
    print(page.table(result))
    print(f"\npage     {folder}/sweep.html")
    if best is not None and best.number:
        chain = f"PRESET={space.name} MODELS={space.sweep.model}"
        print(f"preset   presets/{space.name}.yaml: `make repro {chain}`", flush=True)
    return files
