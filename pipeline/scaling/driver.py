"""sweeps/NAME.yaml -> trials on a cluster, a page about them, and a preset of the best one.

The driver is the only writer of the ledger and the only client of MLflow. Killed at any moment, it
continues with the same command: trials that have ended are not run again, the others continue from
their archives.
"""

import os
import signal
from hashlib import sha256
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline.runtime import console, processes
from pipeline.runtime.errors import CommandFailed, Interrupted
from pipeline.runtime.processes import core_count, folder_lock
from pipeline.scaling import adoption, cluster, page, snapshots, work
from pipeline.scaling.outcomes import SweepRecord
from pipeline.scaling.plan import ConfirmPlan, Ledger, Plan, SearchPlan
from pipeline.scaling.progress import SweepProgress
from pipeline.scaling.records import Trial
from pipeline.scaling.result import Dimension, SweepResult, confirmation_of, winner_of
from pipeline.scaling.snapshots import Storage
from pipeline.scaling.space import Space, read_space
from pipeline.tracking.origin import TrialContext, code_tags, flatten
from pipeline.tracking.records import Parent
from pipeline.tracking.store import resolve_uri
from quatrain.seeds import SEEDS_OF_INTERVAL
from quatrain.storage.folders import digest_of

if TYPE_CHECKING:  # loads Ray
    from pipeline.scaling.trial import Common

# What may be changed while the results of earlier trials stay valid.
OPEN = {"trials", "confirm", "retries", "gpus"}
NO_GPUS = (
    "a trial needs {:g} GPUs, and this machine offers fewer; set `gpus: 0`, or name a cluster by "
    "--address"
)


class Options(NamedTuple):
    """Holds the command line: the cluster, the storage, and CPUs of this machine."""

    address: str | None
    storage: str | None
    cpus: int | None


def run(root: Path, path: Path, options: Options) -> int:
    """Runs a sweep to its end, or continues it; returns the exit code.

    Raises:
        ConfigError: the sweep's file cannot be used.
        CommandFailed: Ray is missing, refuses the token or does not answer; the storage fails.
        Interrupted: a signal was received; the same command continues.
    """
    space = read_space(root, path)
    cluster.check_installed()
    adoption.check_preset(space)
    check_room(space, options)
    warn_of_few_seeds(space)
    if options.address is not None:
        cluster.check_token()
    key = sweep_key(space)
    sweeps = root / ".state" / "sweeps"
    folder = sweeps / f"{space.name}-{key[:8]}"
    with folder_lock(sweeps / space.name, patience_seconds=0):
        place = (options.storage, folder.name) if options.storage else (str(folder), "storage")
        storage = snapshots.open_storage(*place)
        sweep = SweepRun(space, folder, storage, key)
        return sweep.run(options)


def check_room(space: Space, options: Options) -> None:
    """Raises CommandFailed if this machine alone has too few CPUs for one trial."""
    cores = options.cpus or core_count()
    if options.address is None and space.sweep.cpus > cores:
        raise CommandFailed(
            f"a trial needs {space.sweep.cpus} CPUs, and this machine offers {cores}; "
            "lower `cpus`, or name a cluster by --address"
        )


def warn_of_few_seeds(space: Space) -> None:
    """Says before hours are spent that so few learners decide nothing."""
    confirm = space.sweep.confirm
    seeds = space.sweep.seeds if confirm is None else confirm.seeds
    if seeds < SEEDS_OF_INTERVAL:
        key = "seeds" if confirm is None else "confirm.seeds"
        console.info(
            f"warning: sweeps/{space.name}.yaml: {key} = {seeds}: fewer than {SEEDS_OF_INTERVAL} "
            f"seeds give no interval, so the result cannot be told from chance; raise {key}"
        )


def sweep_key(space: Space) -> str:
    """Returns the digest of all that trials depend on: the file, the params and the code."""
    return digest_of(
        {
            "name": space.name,
            "sweep": space.sweep.model_dump(mode="json", exclude=OPEN),
            "params": space.trial_raw({}),
            "inputs": input_digests(space),
            "code": work.code_digest(),
        }
    )


class SweepRun:
    """Runs the phases of one sweep."""

    def __init__(self, space: Space, folder: Path, storage: Storage, key: str) -> None:
        self.space = space
        self.ledger = Ledger(folder / "trials", space.is_higher_better)
        self.storage = storage
        self.context = context_of(space, key)
        self.received: int | None = None
        self._folder = folder
        self._record: SweepRecord | None = None

    def run(self, options: Options) -> int:
        """Searches, confirms, then writes the pages and the preset."""
        with processes.on_signals(self._receive):
            status = "FAILED"
            self._record = SweepRecord(
                self._folder / "outbox",
                self.storage,
                self.context,
                flatten(self.space.sweep.model_dump(mode="json")),
                self.space.sweep.model,
                resolve_uri(self.space.root),
            )
            pages: list[Path] = []
            try:
                self._record.catch_up(self.ledger.trials.values())
                if self._is_open():
                    self._run_trials(options)
                pages = self._conclude()
                status = "FINISHED"
                if not self.ledger.ranked("start", "search"):
                    raise CommandFailed("no trial has a score; the table says why", exit_code=1)
            except Interrupted:
                status = "KILLED"
                raise
            finally:
                self._record.finish(status, pages)
        return 0

    def _is_open(self) -> bool:
        """Returns whether any trial is left to run."""
        searched = self.ledger.of_role("search")
        is_searched = len(searched) >= self.space.sweep.trials
        have_ended = all(trial.has_ended for trial in self.ledger.of_role("start", "search"))
        left = ConfirmPlan(self.space, self.ledger).left
        return not (is_searched and have_ended) or left > 0

    def _run_trials(self, options: Options) -> None:
        # Again, because Ray replaces the handlers when it connects.
        connection = cluster.connection(options.address, options.cpus)
        with connection as ray, processes.on_signals(self._receive):
            from pipeline.scaling import tuning

            if options.address is None and not tuning.slots(self.space):
                raise CommandFailed(NO_GPUS.format(self.space.sweep.gpus))
            common = self._common(ray)
            search = SearchPlan(self.space, self.ledger, self._ended)
            self._phase("search", search, common._replace(rungs=tuning.rungs(self.space)))
            confirm = ConfirmPlan(self.space, self.ledger)
            if self.ledger.ranked("search"):
                self._phase("confirm", confirm, common)

    def _common(self, ray: Any) -> "Common":
        from pipeline.scaling.trial import Common

        sweep = self.space.sweep
        files = trial_files(self.space)
        return Common(
            model=sweep.model,
            watch=sweep.watch,
            cpus=sweep.cpus,
            gpus=sweep.gpus,
            rungs=(),
            files=files,
            storage=self.storage,
            code=work.code_digest(),
            context=self.context,
            shelf=cluster.make_shelf(ray, sweep.model, files, sweep.cpus),
        )

    def _phase(self, title: str, plan: Plan, common: "Common") -> None:
        """Runs the trials of a plan.

        Raises:
            Interrupted: a signal was received; its trials have saved their work.
        """
        from pipeline.scaling import tuning

        name = f"{self.space.name} {title}"
        with SweepProgress(name, plan.total, self.ledger, plan.includes) as progress:
            events = tuning.Events(
                self.space,
                self.ledger,
                plan,
                progress,
                self._ended,
                lambda: bool(self.received),
                common.shelf,
            )
            try:
                tuning.tune_trials(self.space, events, common)
            finally:
                if self._record is not None:
                    self._record.phase_ended()
        self._check_signal()

    def _ended(self, trial: Trial) -> None:
        assert self._record is not None
        if trial.state != "refused":
            self._record.ended(trial)
        ranked = self.ledger.ranked("start", "search")
        if trial.role != "confirm" and ranked:
            ended = sum(each.has_ended for each in self.ledger.of_role("start", "search"))
            self._record.best(ended, ranked[0].score or 0.0)

    def _conclude(self) -> list[Path]:
        """Writes preset and pages, and prints the table; returns the files for MLflow."""
        result = result_of(self.space, self.ledger)
        winner = winner_of(result)
        reason = adoption.obstacle(self.space, result)
        if winner is not None and reason is None:
            adoption.write_preset(self.space, confirmation_of(result, winner) or winner)
            result = result._replace(adopted=self.space.name)
        elif winner is not None and reason == adoption.NOTHING_BETTER:
            adoption.remove_preset(self.space)
        reports = self.space.root / "reports" / "sweeps" / self.space.name
        page.write(reports, result)
        print(page.table(result))
        print(f"\npage     {(reports / 'sweep.html').relative_to(self.space.root)}")
        if reason is not None:
            print(f"preset   none: {reason}")
        else:
            chain = f"PRESET={result.adopted} MODELS={result.model}"
            print(f"preset   presets/{result.adopted}.yaml: `make repro {chain}`", flush=True)
        return [reports / "sweep.html", reports / "trials.json", *(reports / "plots").glob("*.png")]

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if self.received is not None and number == signal.SIGINT:
            os._exit(128 + number)
        if self.received is None:
            self.received = number
            name = signal.Signals(number).name
            console.info(f"{name}: trials save their work, then the sweep ends (Ctrl-C: at once)")

    def _check_signal(self) -> None:
        if self.received is not None:
            raise Interrupted(self.received)


def context_of(space: Space, key: str) -> TrialContext:
    """Returns what the runs of the sweep in MLflow are called; trials add their names."""
    name = f"sweep-{space.name}"
    parent = Parent(key, name, tag="quatrain.sweep", ends_with_child=False)
    return TrialContext(key[:16], space.name, parent, code_tags(space.root))


def input_digests(space: Space) -> dict[str, str]:
    """Returns the digests of the files that a config may name."""
    files = trial_files(space)
    return {
        name: sha256(data).hexdigest() for name, data in files.items() if name.startswith("inputs/")
    }


def trial_files(space: Space) -> dict[str, bytes]:
    """Returns the files that a trial reads beside params.yaml, by path."""
    root = space.root
    baseline = root / "baselines" / f"{space.sweep.model}.json"
    inputs = sorted((root / "inputs" / space.sweep.model).rglob("*"))
    paths = [path for path in (baseline, *inputs) if path.is_file()]
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def result_of(space: Space, ledger: Ledger) -> SweepResult:
    sweep = space.sweep
    confirm = ConfirmPlan(space, ledger)
    return SweepResult(
        name=space.name,
        model=sweep.model,
        preset=sweep.preset,
        judge=sweep.judge,
        higher_is_better=space.is_higher_better,
        watch=sweep.watch,
        search=sweep.search,
        space={
            key: Dimension(
                low=None if each.of else each.low,
                high=None if each.of else each.high,
                is_log=each.scale == "log",
                choices=tuple(each.choices) if each.of else None,
            )
            for key, each in sweep.space.items()
        },
        # Not those that an earlier form of the file confirmed, with other seeds.
        trials=[
            trial
            for trial in ledger.trials.values()
            if trial.role != "confirm" or confirm.includes(trial)
        ],
        adopted=None,
    )
