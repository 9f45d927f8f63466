"""a plan of trials -> their reports, by Ray Tune: places them, retries them, stops the hopeless."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from pipeline.runtime.errors import CommandFailed
from pipeline.scaling.datasets import dataset_key
from pipeline.scaling.plan import Ledger, Plan
from pipeline.scaling.progress import SweepProgress
from pipeline.scaling.records import Point, Trial
from pipeline.scaling.space import Space
from pipeline.scaling.trial import OUTCOME, RUNG_VALUE, Common, SweepTrial
from pipeline.scaling.work import SAVE_SECONDS

# How often the cluster is asked for its nodes.
CLUSTER_SECONDS = 3.0
# Reasons of a failure, at most.
REASON_CHARACTERS = 300


class Kept:
    """Keeps Tune from copying and pickling an object: it does both with all that it is given."""

    def __deepcopy__(self, _: Any) -> "Kept":
        return self

    def __reduce__(self) -> Any:
        return object, ()


class Events:
    """Turns what Tune reports into the ledger's trials and lines for a person."""

    def __init__(
        self,
        space: Space,
        ledger: Ledger,
        plan: Plan,
        progress: SweepProgress,
        on_ended: Callable[[Trial], None],
        is_interrupted: Callable[[], bool],
        shelf: Any,
    ) -> None:
        self.fault: Exception | None = None
        self._space = space
        self._ledger = ledger
        self._plan = plan
        self._progress = progress
        self._on_ended = on_ended
        self._is_interrupted = is_interrupted
        self._shelf = shelf
        self._running: set[int] = set()
        self._saving: dict[str, float] = {}
        """Names of trials that were stopped, and since when they store their work."""
        self._over_since: float | None = None
        self._is_waiting = False

    @property
    def is_over(self) -> bool:
        """Returns whether all trials are to stop now, to be continued by a later sweep."""
        return self.fault is not None or self._is_interrupted()

    def next(self) -> Trial | None:
        """Returns the next trial of the plan."""
        trial = self._plan.next()
        if trial is not None:
            self._running.add(trial.number)
            self._progress.begun(trial)
        return trial

    def has_room(self, slots: int) -> bool:
        if not slots and not self._running and not self._is_waiting:
            self._is_waiting = True
            sweep = self._space.sweep
            needs = f"{sweep.cpus} CPUs and {sweep.gpus:g} GPUs"
            self._progress.note(f"waits for a node with {needs}")
        return len(self._running) < slots

    def is_settled(self) -> bool:
        """Returns whether no trial runs or stores its work. After a fault or a signal it waits for
        SAVE_SECONDS at most.
        """
        now = time.monotonic()
        if self.is_over and self._over_since is None:
            self._over_since = now
        if self._over_since is not None and now - self._over_since > SAVE_SECONDS:
            return True
        if self._saving:
            left = ray.get(self._shelf.left.remote())
            self._saving = {
                name: since
                for name, since in self._saving.items()
                if name not in left and now - since < SAVE_SECONDS
            }
        return not self._running and not self._saving

    def guarded(self, work: Callable[[], None]) -> None:
        """Keeps the first error, to be raised after Tune has ended: it would make a traceback of it
        all.
        """
        try:
            work()
        except Exception as error:
            self.fault = self.fault or error

    def reported(self, number: int, result: Mapping[str, Any]) -> None:
        if "value" in result:
            point = Point(step=result["step"], value=result["value"])
            self._ledger.saw(number, point, result["seconds"])
        if "fault" in result and self.fault is None:
            self.fault = CommandFailed(result["fault"], result["exit_code"])
        self._progress.tick()

    def lost(self, number: int) -> None:
        """Says that Tune starts a trial again."""
        self._progress.note(f"trial {number} lost its process or node, and starts again")

    def ended(self, number: int, result: Mapping[str, Any] | None, reason: str | None) -> None:
        """Records the end of a trial; one that is to be continued stays `running`."""
        self._running.discard(number)
        if result and "fault" in result:  # Tune may not have passed this report on before.
            self.reported(number, result)
        outcome = (result or {}).get(OUTCOME)
        if outcome is None and reason is None:
            self._saving[self._ledger.trials[number].name] = time.monotonic()
        if outcome is not None:
            changes = self._outcome(json.loads(outcome))
        elif self.is_over:
            return
        elif reason is not None:
            changes = {"state": "failed", "reason": reason}
        else:
            changes = {"state": "stopped"}
        trial = self._ledger.update(number, **changes)
        self._plan.ended(trial)
        self._progress.ended(trial)
        self._on_ended(trial)

    def _outcome(self, outcome: Mapping[str, Any]) -> dict[str, Any]:
        judge = self._space.sweep.judge
        scores = outcome["scores"]
        changes = {
            "state": outcome["state"],
            "reason": outcome["reason"],
            "seconds": outcome["seconds"],
            "score": scores.get(judge),
            "low": scores.get(f"{judge}_low"),
            "high": scores.get(f"{judge}_high"),
        }
        if outcome["state"] == "finished" and changes["score"] is None:
            changes |= {"state": "failed", "reason": f"{judge} is not a finite number"}
        return changes


class PlanSearcher(Kept, Searcher):
    """Gives Tune the next trial when the cluster has room for it, so that it knows all scores."""

    def __init__(self, space: Space, events: Events) -> None:
        super().__init__()
        self._space = space
        self._events = events
        self._numbers: dict[str, int] = {}
        self._slots = 0
        self._asked_at = 0.0

    def suggest(self, trial_id: str) -> Any:
        if self._events.is_over:
            return self._last_answer()
        if time.monotonic() - self._asked_at > CLUSTER_SECONDS:
            self._slots = slots(self._space)
            self._asked_at = time.monotonic()
        if not self._events.has_room(self._slots):
            return None
        trial = self._events.next()
        if trial is None:
            return self._last_answer()
        self._numbers[trial_id] = trial.number
        return trial_config(self._space, trial)

    def _last_answer(self) -> Any:
        """Returns FINISHED when trials have settled: Tune ends with its searcher, and leaves those
        that were stopped little time.
        """
        return Searcher.FINISHED if self._events.is_settled() else None

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Leaves failures to the callback, which knows the reason."""
        if not error:
            number = self._numbers[trial_id]
            self._events.guarded(lambda: self._events.ended(number, result, None))

    def save(self, checkpoint_path: str) -> None:
        """Stores nothing: the ledger is stored."""

    def restore(self, checkpoint_path: str) -> None:
        raise NotImplementedError("a sweep continues from its ledger")


class EventCallback(Kept, tune.Callback):
    """Passes reports and failures of trials on."""

    def __init__(self, events: Events) -> None:
        self._events = events

    def on_trial_result(  # type: ignore[override]
        self, *_: Any, trial: Any, result: dict[str, Any], **__: Any
    ) -> None:
        number = int(trial.config["number"])
        self._events.guarded(lambda: self._events.reported(number, result))

    def on_trial_recover(self, *_: Any, trial: Any, **__: Any) -> None:  # type: ignore[override]
        self._events.lost(int(trial.config["number"]))

    def on_trial_error(self, *_: Any, trial: Any, **__: Any) -> None:  # type: ignore[override]
        lines = Path(trial.error_file).read_text(errors="replace").splitlines()
        # Below the lines of the traceback, which are indented.
        reasons = [line for line in lines if line.strip() and not line.startswith(" ")]
        reason = reasons[-1][:REASON_CHARACTERS]
        number = int(trial.config["number"])
        self._events.guarded(lambda: self._events.ended(number, None, reason))


class EndOfSweep(Kept, tune.Stopper):
    """Stops each trial at its next report after a fault or a signal; all, when they have saved."""

    def __init__(self, events: Events) -> None:
        self._events = events

    def __call__(self, *_: Any) -> bool:
        return self._events.is_over

    def stop_all(self) -> bool:
        return self._events.is_over and self._events.is_settled()


def trial_config(space: Space, trial: Trial) -> dict[str, Any]:
    """Returns what Tune sends to the node of a trial, beside what all share."""
    return {
        "number": trial.number,
        "name": trial.name,
        "params": space.raw_of(trial),
        "dataset": dataset_key(space.root, space.params_of(trial), space.sweep.model),
    }


def slots(space: Space) -> int:
    """Returns how many trials the nodes that are there now have room for."""
    count = 0
    for node in ray.nodes():
        resources = node["Resources"] if node["Alive"] else {}
        fitting = int(resources.get("CPU", 0) // space.sweep.cpus)
        if space.sweep.gpus:
            fitting = min(fitting, int(resources.get("GPU", 0) / space.sweep.gpus))
        count += fitting
    return count


def rungs(space: Space) -> tuple[int, ...]:
    """Returns the steps at which ASHA compares trials."""
    schedule = space.sweep.schedule
    if schedule.kind == "none":
        return ()
    steps_compared = []
    steps = getattr(space.params({}), space.sweep.model).train.steps
    rung = schedule.first
    while rung < steps:
        steps_compared.append(rung)
        rung *= schedule.factor
    return tuple(steps_compared)


def scheduler(space: Space, compared: tuple[int, ...]) -> TrialScheduler:
    schedule = space.sweep.schedule
    if schedule.kind == "none" or not compared:
        return FIFOScheduler()
    return ASHAScheduler(
        time_attr="step",
        metric=RUNG_VALUE,
        mode="max" if space.is_higher_better else "min",
        grace_period=schedule.first,
        reduction_factor=schedule.factor,
        max_t=compared[-1] * schedule.factor + 1,
    )


def tune_trials(space: Space, events: Events, common: Common) -> None:
    """Runs all trials of a plan.

    Raises:
        QuatrainError: a fault of the sweep, e.g. of its storage.
    """
    sweep = space.sweep
    storage = common.storage
    trainable: Any = tune.with_parameters(SweepTrial, common=common)
    resources = {"cpu": sweep.cpus, **({"gpu": sweep.gpus} if sweep.gpus else {})}
    tuner = tune.Tuner(
        tune.with_resources(trainable, resources),
        tune_config=tune.TuneConfig(
            search_alg=PlanSearcher(space, events),
            scheduler=scheduler(space, common.rungs),
            num_samples=-1,
            reuse_actors=False,
            trial_name_creator=lambda trial: str(trial.config["name"]),
            trial_dirname_creator=lambda trial: str(trial.config["name"]),
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=storage.path,
            storage_filesystem=storage.filesystem,
            failure_config=tune.FailureConfig(max_failures=sweep.retries),
            # Trials store their own, which hold no pickle.
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            callbacks=[EventCallback(events)],
            stop=EndOfSweep(events),
            verbose=0,
        ),
    )
    tuner.fit()
    if events.fault is not None:
        raise events.fault
