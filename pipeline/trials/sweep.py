"""sweeps/NAME.yaml -> trials here or on a cluster, a page, and a preset if one is better.

Killed at any moment, the same command continues: trials that have ended are not run again, the
others go on from their checkpoints.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline.runtime import console
from pipeline.runtime.errors import Interrupted
from pipeline.runtime.processes import folder_lock
from pipeline.tracking.origin import flatten
from pipeline.trials import adoption, engine
from pipeline.trials.comparison import Row, Scores, decide, rank
from pipeline.trials.engine import ListPlan, Place
from pipeline.trials.group import Group
from pipeline.trials.local import Machine
from pipeline.trials.progress import Progress
from pipeline.trials.space import Space, json_text, read_space
from pipeline.trials.trial import Outcome, Trial, make_trial
from quatrain.seeds import SEEDS_OF_INTERVAL
from quatrain.storage.folders import digest_of

if TYPE_CHECKING:  # may not be installed
    from pipeline.trials.cluster import Cluster

# What may be changed while the results of earlier trials stay valid.
OPEN = {"trials", "confirm", "retries", "gpus"}
SWEEP_TAG = "quatrain.sweep"


class Options(NamedTuple):
    """Holds the command line: the cluster, the storage, and CPUs of this machine."""

    address: str | None
    storage: str | None
    cpus: int | None


def run(root: Path, path: Path, options: Options) -> int:
    """Runs a sweep to its end, or continues it; returns the exit code.

    Raises:
        ConfigError: the sweep's file cannot be used.
        CommandFailed: this machine or the cluster has no room for a trial, or the storage fails.
        LockHeld: another sweep of this name runs in this checkout.
        Interrupted: a signal was received; the same command continues.
    """
    space = read_space(root, path)
    adoption.check_preset(space)
    place = make_place(root, space, options)
    warn_of_few_seeds(space)
    with folder_lock(root / ".state" / "sweeps" / space.name, patience_seconds=0), place:
        return SweepRun(space, place).run()


def make_place(root: Path, space: Space, options: Options) -> "Machine | Cluster":
    """Returns what runs the trials: this machine, or the cluster at the address.

    Raises:
        CommandFailed: a trial needs more than this machine offers; Ray is not installed.
    """
    sweep = space.sweep
    settings: dict[str, Any] = {
        "cpus": sweep.cpus,
        "gpus": sweep.gpus,
        "watch": sweep.watch,
        "retries": sweep.retries,
    }
    if options.address is None:
        return Machine(root, cores=options.cpus, **settings)
    from pipeline.trials.cluster import Cluster

    return Cluster(root, options.address, options.storage, **settings)


def warn_of_few_seeds(space: Space) -> None:
    """Says before hours are spent that so few seeds decide nothing."""
    confirm = space.sweep.confirm
    file = f"warning: sweeps/{space.name}.yaml"
    if confirm is None:
        console.info(
            f"{file}: confirm = null: the best of many trials is adopted, and is partly luck"
        )
    elif confirm.seeds < SEEDS_OF_INTERVAL:
        console.info(
            f"{file}: confirm.seeds = {confirm.seeds}: fewer than {SEEDS_OF_INTERVAL} seeds give "
            "no interval, so that no preset will be written; raise confirm.seeds"
        )


def sweep_key(space: Space) -> str:
    """Returns the digest of all that trials depend on: the file, the params, inputs and code."""
    sweep = space.sweep
    start = make_trial(space.root, sweep.model, space.trial_raw({}))
    content = sweep.model_dump(mode="json", exclude=OPEN)
    return digest_of({"name": space.name, "sweep": content, "start": start.key})


class SweepRun:
    """Searches, repeats the best and the start, and writes the page and the preset."""

    def __init__(self, space: Space, place: Place) -> None:
        from pipeline.trials.search import Search  # loads Optuna

        key = sweep_key(space)
        folder = space.root / ".state" / "sweeps" / f"{space.name}-{key[:8]}"
        params = flatten(space.sweep.model_dump(mode="json"))
        self._space = space
        self._place = place
        self._search = Search(space, folder / "journal.log", self._ended)
        self._group = Group(space.root, f"sweep-{space.name}", key, params, {SWEEP_TAG: "true"})
        self._progress = Progress(space, self._search.rows)

    def run(self) -> int:
        """Returns the exit code: 1 if no trial has a score."""
        status, files = "FAILED", list[Path]()
        try:
            self._record_earlier()
            engine.run(self._space.root, self._search, self._place)
            files = self._conclude(self._repeat())
            status = "FINISHED"
        except Interrupted:
            status = "KILLED"
            raise
        finally:
            self._group.finish(status, files)
        return 0 if any(row.score is not None for row in self._search.rows()) else 1

    def _record_earlier(self) -> None:
        """Records trials that a driver may not have recorded before it was killed."""
        for row in self._search.rows():
            if row.state not in ("running", "refused"):
                self._group.ended(self._search.trial(row), row.name)

    def _ended(self, row: Row, trial: Trial | None) -> None:
        self._progress.ended(row)
        if trial is not None:
            self._group.ended(trial, row.name)
        rows = self._search.rows()
        ended = sum(each.state != "running" for each in rows)
        scores = [each.score for each in rows if each.score is not None]
        if scores:
            best = max(scores) if self._space.is_higher_better else min(scores)
            self._group.metrics([("sweep/best", ended, best)])

    def _repeat(self) -> dict[int, Scores]:
        """Runs the start and the best with other base seeds; returns the scores of each by seed.

        They are trainings of their own: the learners of one training share its data and worlds.
        """
        sweep = self._space.sweep
        sides = self._sides()
        if sweep.confirm is None or len(sides) == 1:
            return {}
        seeds = sweep.confirm.base_seeds
        trials = {
            (row.number, seed): self._search.trial(row, seed) for seed in seeds for row in sides
        }
        labels = [f"{number:04d}-seed-{seed}" for number, seed in trials]
        plan = Repetitions([*trials.values()], labels, self._group)
        engine.run(self._space.root, plan, self._place)
        outcomes = {pair: plan.outcomes[trial.key] for pair, trial in trials.items()}
        return {
            row.number: [outcomes[row.number, seed].scores.get(sweep.judge) for seed in seeds]
            for row in sides
        }

    def _sides(self) -> list[Row]:
        """Returns the start and the best others; those with equal values once."""
        start, *others = self._search.rows()
        sides: dict[str, Row] = {}
        for row in (start, *rank(others, self._space.is_higher_better)):
            sides.setdefault(json_text(row.values), row)
        top = self._space.sweep.confirm.top if self._space.sweep.confirm else 0
        return list(sides.values())[: top + 1]

    def _conclude(self, repeated: dict[int, Scores]) -> list[Path]:
        """Writes preset and page, and prints the table; returns the files for MLflow."""
        from pipeline.trials import page  # loads matplotlib

        space, rows = self._space, self._search.rows()
        verdict = decide(space, rows, repeated)
        if verdict.best is not None:
            seed = space.sweep.confirm.seed if space.sweep.confirm else None
            trial = self._search.trial(verdict.best, seed)
            adoption.write_preset(space, trial, verdict.best.number)
        elif verdict.keeps_start:
            adoption.remove_preset(space)
        result = page.Result(space, rows, repeated, verdict)
        files = page.write(
            space.root / "reports" / "sweeps" / space.name, result, self._search.study
        )
        print(page.table(result))
        print(f"\npage     reports/sweeps/{space.name}/sweep.html")
        if verdict.best is not None:
            chain = f"PRESET={space.name} MODELS={space.sweep.model}"
            print(f"preset   presets/{space.name}.yaml: `make repro {chain}`", flush=True)
        return files


class Repetitions(ListPlan):
    """Runs a list of trials, and records each that ends."""

    def __init__(self, trials: Sequence[Trial], labels: Sequence[str], group: Group) -> None:
        super().__init__(trials, labels)
        self._group = group

    def ended(self, trial: Trial, outcome: Outcome) -> None:
        super().ended(trial, outcome)
        self._group.ended(trial, self._labels[trial.key])
