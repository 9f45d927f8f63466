"""Until a training's first yield a stage loads what it needs, and delivers nothing."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from pipeline.tracking import shipper
from pipeline.tracking.shipper import Shipper
from quatrain.registry import MODELS
from tests.pipeline.small_project import Project

HEAVY = {"mlflow", "dvc", "pandas", "sqlalchemy", "sklearn", "requests", "flask"}
DRAWING = {"matplotlib", "PIL"}
OTHERS: dict[str, set[str]] = {"jax": {"torch"}, "torch": {"jax", "jaxlib", "flax", "optax"}}
VERBS = """
import os, sys
from pipeline import collect, train
from pipeline.runtime import stage
from pipeline.tracking import run
run.LATEST_SECONDS = 1e6
def loaded(verb):
    print(verb, *sorted({name.partition(".")[0] for name in sys.modules}))
model = sys.argv[1]
assert stage.main("collect", "", collect.collect, [model]) == 0
loaded("collect")
def first_yield(*_):
    loaded("train")
    from pipeline import evaluate
    from quatrain.registry import load
    load(model).evaluate
    loaded("evaluate")
    sys.stdout.flush()
    os._exit(0)
train.rows = first_yield  # which is called before anything is recorded
stage.main("train", "", train.train, [model])
"""


def imported(project: Project) -> dict[str, set[str]]:
    """By verb, the packages that its process has loaded: collect's at its end, train's at the first
    yield.
    """
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "DVC_"))
    }
    environment |= {
        "PYTHONPATH": "src",
        "MLFLOW_TRACKING_URI": f"sqlite:///{project.root}/mlflow.db",
    }
    command = [sys.executable, "-c", VERBS, project.model]
    done = subprocess.run(
        command, cwd=project.root, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    lines = [
        line.split()
        for line in done.stdout.splitlines()
        if line.split()[0] in ("collect", "train", "evaluate")
    ]
    return {verb: set(packages) for verb, *packages in lines}


EACH = [pytest.param(model, marks=pytest.mark.slow if model == "iqn" else ()) for model in MODELS]
"""iqn takes half a minute to compile, and is wired as allo is."""


@pytest.mark.parametrize("model", EACH)
def test_a_stage_loads_no_more_than_it_needs(model: str, tmp_path: Path) -> None:
    result = imported(Project.create(tmp_path / "project", model, code=True))
    assert set(result) == {"collect", "train", "evaluate"}
    others = OTHERS[MODELS[model]]
    for verb in ("collect", "train"):
        assert not result[verb] & (HEAVY | DRAWING | others), verb
    assert not result["evaluate"] & (HEAVY | others)


class FakeDelivery:
    """In place of a delivery: notes that it was asked to deliver."""

    def __init__(self, *_: Any) -> None:
        self.asked, self.patient_until = threading.Event(), 0.0

    def step(self) -> bool:
        self.asked.set()
        return False

    def close(self) -> None:
        pass


@pytest.mark.parametrize("call", ["wake", "finish"])
def test_a_run_is_delivered_from_its_first_record_on(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery = FakeDelivery()
    monkeypatch.setattr(shipper, "Delivery", lambda *_: delivery)
    sender = Shipper(Any, "sqlite:///nowhere", latest_seconds=1e6)  # type: ignore[arg-type]
    assert not delivery.asked.wait(0.05)
    getattr(sender, call)()
    assert delivery.asked.wait(10)
    assert sender.finish()


def test_a_run_without_a_record_is_delivered_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    delivery = FakeDelivery()
    monkeypatch.setattr(shipper, "Delivery", lambda *_: delivery)
    sender = Shipper(Any, "sqlite:///nowhere", latest_seconds=0.01)  # type: ignore[arg-type]
    assert delivery.asked.wait(10)
    assert sender.finish()
