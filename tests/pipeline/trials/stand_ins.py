"""Stages that do as they are told, and trials without params, for tests of what runs them."""

from pathlib import Path
from typing import Any

from pipeline.storage.run_key import CHECKOUT
from pipeline.trials.stages import stage_environment
from pipeline.trials.trial import Trial

# Each stage obeys ORDER_VERB: `wait` (until SIGTERM, then it saves and leaves), `deaf`, an exit
# code, or a negative signal that kills it; `once:ORDER` obeys when it runs for the first time.
STAND_IN = """
import os, pathlib, signal, sys, time
from pipeline.judging.scores import write_scores
from pipeline.tracking.outbox import Outbox
from pipeline.tracking.records import Header
from quatrain.storage import folders

verb = pathlib.Path(__file__).stem
print(verb, sys.argv[1], "at work", flush=True)
order = os.environ.get(f"ORDER_{verb}".upper(), "0")
mark = pathlib.Path(f"{verb}.was-here")
order = order.removeprefix("once:") if not (order.startswith("once:") and mark.exists()) else "0"
mark.touch()
if verb == "train":
    outbox = Outbox(pathlib.Path(".state/outbox/train@allo-1.sqlite"))
    outbox.begin(Header("k1", "quatrain", "allo", {}, {}))
    outbox.metrics([("train/loss", step, 1 / step) for step in (1, 2)])
if order in ("wait", "deaf"):
    leave = (lambda *_: (print("saved"), sys.exit(143))) if order == "wait" else signal.SIG_IGN
    signal.signal(signal.SIGTERM, leave)
    print("ready", flush=True)
    time.sleep(60)
if order.startswith("-"):
    os.kill(os.getpid(), -int(order))
if order == "0" and verb == "collect":
    folders.save(pathlib.Path("data/allo"), {"dataset.json": [1]}, {})
if order == "0" and verb == "train":
    outbox.metrics([("train/loss", 3, 1 / 3)])
    names = ("config.json", "history.csv", "state.safetensors", "weights.safetensors")
    contents = {"config.json": {}, "history.csv": "step", "state.safetensors": {}}
    folders.save(pathlib.Path("models/allo"), contents | {"weights.safetensors": {}}, {})
if order == "0" and verb == "evaluate":
    write_scores(pathlib.Path(), "allo", "default", {}, {"cosine_mean": 0.5, "gap": None})
print("the reason", file=sys.stderr)
sys.exit(int(order))
"""


def environment(folder: Path, **orders: str) -> dict[str, str]:
    """Returns the variables of stages of which three are stand-ins, made in a folder."""
    package = folder / "code" / "pipeline"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text(f"__path__.append({str(CHECKOUT / 'pipeline')!r})")
    for verb in ("collect", "train", "evaluate"):
        (package / f"{verb}.py").write_text(STAND_IN)
    variables = stage_environment(1)
    path = f"{package.parent}:{variables['PYTHONPATH']}"
    return variables | {
        "PYTHONPATH": path,
        **{f"ORDER_{verb.upper()}": order for verb, order in orders.items()},
    }


def trial(key: str = "k1", data_key: str = "d1", **raw: Any) -> Trial:
    """Returns a trial of invented params, of which the stand-ins read none."""
    nothing: Any = None
    return Trial("allo", raw, nothing, {}, key, data_key)
