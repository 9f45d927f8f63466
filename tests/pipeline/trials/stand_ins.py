"""Stages and a place that do as they are told, and trials without params."""

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

from pipeline.judging.scores import stored_scores, write_scores
from pipeline.runtime.errors import Interrupted
from pipeline.storage.trained_model import FILES
from pipeline.tracking.outbox import Outbox
from pipeline.trials.engine import Event
from pipeline.trials.group import Group
from pipeline.trials.stages import stage_environment
from pipeline.trials.trial import Outcome, Trial, folder_of, write_outcome
from quatrain.storage import folders
from quatrain.storage.folders import digest_of
from tests.pipeline.recorded_runs import header

# Each stage obeys ORDER_VERB: `wait` (until SIGTERM, then it saves and leaves), `deaf`, an exit
# code, or a negative signal that kills it; `once:ORDER` is obeyed by the first that runs. What it
# makes is a copy.
STAND_IN = """
import os, pathlib, shutil, signal, sys, time

verb = pathlib.Path(__file__).stem
templates = pathlib.Path(os.environ["TEMPLATES"])
print(verb, sys.argv[1], "at work", flush=True)
order = os.environ.get(f"ORDER_{verb}".upper(), "0")
mark = pathlib.Path(f"{verb}.was-here")
order = order.removeprefix("once:") if not (order.startswith("once:") and mark.exists()) else "0"
mark.touch()
outbox = pathlib.Path(".state/outbox/train@allo-1.sqlite")
def record(name):
    outbox.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(templates / name, outbox.with_suffix(".new"))
    os.replace(outbox.with_suffix(".new"), outbox)
if verb == "train":
    record("begun.sqlite")
if order in ("wait", "deaf"):
    leave = (lambda *_: (print("saved"), sys.exit(143))) if order == "wait" else signal.SIG_IGN
    signal.signal(signal.SIGTERM, leave)
    print("ready", flush=True)
    time.sleep(60)
if order.startswith("-"):
    os.kill(os.getpid(), -int(order))
if order == "0":
    shutil.copytree(templates / verb, ".", dirs_exist_ok=True)
    if verb == "train":
        record("ended.sqlite")
print("the reason", file=sys.stderr)
sys.exit(int(order))
"""


def environment(folder: Path, **orders: str) -> dict[str, str]:
    """Returns the variables of stages that are stand-ins, which lie in a folder."""
    package, templates = folder / "code" / "pipeline", folder / "code" / "templates"
    if not package.exists():
        package.mkdir(parents=True)
        for name in ("__init__", "collect", "train", "evaluate"):
            (package / f"{name}.py").write_text("" if name == "__init__" else STAND_IN)
        _make(templates)
    return {
        **stage_environment(1),
        "PYTHONPATH": str(package.parent),
        "TEMPLATES": str(templates),
        **{f"ORDER_{verb.upper()}": order for verb, order in orders.items()},
    }


def _make(folder: Path) -> None:
    """Writes what the stages leave."""
    folders.save(folder / "collect" / "data" / "allo", {"dataset.json": [1]}, {})
    contents = {name: "step" if name == "history.csv" else {} for name in FILES}
    folders.save(folder / "train" / "models" / "allo", contents, {})
    run, scores = {"run_key": "k1", "settings": {}}, {"cosine_mean": 0.5, "gap": None}
    write_scores(folder / "evaluate", stored_scores("allo", "default", {}, run, scores))
    for name, steps in (("begun", 2), ("ended", 3)):
        outbox = Outbox(folder / f"{name}.sqlite")
        outbox.begin(header("k1"))
        outbox.metrics([("train/loss", step, 1 / step) for step in range(1, steps + 1)])


def trial(key: str = "k1", data_key: str = "d1", **raw: Any) -> Trial:
    """Returns a trial of invented params, of which the stand-ins read none."""
    nothing: Any = None
    return Trial("allo", raw, nothing, {}, key, data_key)


def key_of(_root: Path, verb: str, *values: Any) -> str:
    """A key without code, whose reading takes longest."""
    return digest_of([verb, values[-1]])[:16]


class SilentGroup(Group):
    """A group whose methods only note their calls."""

    def __init__(self) -> None:
        self.files = []
        self.ended, self.metrics, self.conclude, self.finish = Mock(), Mock(), Mock(), Mock()


class InventedPlace(AbstractContextManager["InventedPlace"]):
    """A place of two slots, which it offers when it is asked again: what happens to a trial is said
    by `script`, and its outcome is stored below `root`. The driver dies when it has begun so many.
    """

    watch = ""

    def __init__(
        self, root: Path, script: Callable[[Trial], list[Event | Exception]], dies_at: int = 99
    ) -> None:
        self._root = root
        self._script = script
        self._dies_at = dies_at
        self._is_asked = False
        self.begun: list[str] = []
        self.running: dict[str, tuple[Trial, list[Event | Exception]]] = {}

    def __exit__(self, *_: object) -> None:
        pass

    def room(self) -> int:
        was_asked, self._is_asked = self._is_asked, True
        return 2 - len(self.running) if was_asked else 0

    def begin(self, trial: Trial) -> None:
        assert self.room() > 0
        self.begun.append(trial.key)
        events = self._script(trial)
        if len(self.begun) > self._dies_at:
            raise Interrupted(signal.SIGTERM)
        self.running[trial.key] = trial, events

    def events(self) -> Iterator[tuple[Trial, Event]]:
        for each, events in [*self.running.values()]:
            event = events.pop(0) if events else ""
            if isinstance(event, Exception):
                raise event
            if isinstance(event, Outcome):
                del self.running[each.key]
                if event.state != "stopped":
                    folder_of(self._root, each).mkdir(parents=True, exist_ok=True)
                    write_outcome(folder_of(self._root, each), event)
            if event:
                yield each, event

    def stop(self, trial: Trial) -> None:
        assert trial.key in self.running
        self.running[trial.key] = trial, [Outcome("stopped")]
