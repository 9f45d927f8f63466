"""Journals with every kind of line, and what a store must hold of them."""

import math
import time
from collections.abc import Callable
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from typing import Any

from pipeline.tracking.delivery import Delivery
from pipeline.tracking.journal import DatasetInput, Header, Journal, Parent
from pipeline.tracking.store import quieten

LARGEST = 1.7976931348623157e308
"""Value that MLflow stores for an infinity."""
Arrived = dict[str, list[tuple[int, str, int]]]


def until(condition: Callable[[], bool]) -> None:
    """Waits until the condition holds, at most two minutes."""
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it never came true")


def client_of(uri: str) -> Any:
    quieten()
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri)


def header(run_key: str, **changes: Any) -> Header:
    defaults = Header(
        run_key=run_key,
        experiment="quatrain",
        run_name=f"allo-{run_key}",
        params={f"train.number_{i}": str(i) for i in range(130)} | {"env.layout": "#." * 4000},
        tags={"quatrain.model": "allo"},
        inputs=(DatasetInput("allo", "0" * 64, "training", "data/allo"),),
    )
    return defaults._replace(**changes)


def recorded(folder: Path, run_key: str, end: str = "FINISHED") -> Journal:
    """Records every kind of line; 1,480 metrics in batches of unequal size."""
    journal = Journal(folder)
    journal.begin(header(run_key))
    journal.metrics([("train/loss", step, 1 / (step + 3)) for step in range(1400)])
    odd = enumerate([math.nan, math.inf, -math.inf])
    journal.metrics([("train/odd", step, value) for step, value in odd])
    for step in range(7):
        journal.metrics([(f"train/cosine/{k}", step, step / 7 + k) for k in range(11)])
    (folder.parent / "curve.png").write_bytes(b"picture")
    journal.artifact(folder.parent / "curve.png", "plots")
    journal.end(end)
    return journal


def recorded_model(folder: Path, run_key: str, parent: Parent | None = None) -> Journal:
    """Records a picture and a folder in the form of a model, without a model."""
    model = folder.parent / "servable"
    (model / "code").mkdir(parents=True, exist_ok=True)
    (model / "MLmodel").write_text("flavors: {}\n")
    (model / "code" / "answer.py").write_text("ANSWER = 42\n")
    (folder.parent / "picture.png").write_bytes(b"picture")
    journal = Journal(folder)
    journal.begin(header(run_key, parent=parent))
    journal.artifact(folder.parent / "picture.png", "plots")
    card = f"## What it is\n\n{run_key}\n\n## Scores\n\nnone\n\n## Limits\n\nmany"
    journal.model(model, "quatrain-allo", card)
    journal.end("FINISHED")
    return journal


def expected(*journals: Journal) -> Arrived:
    rows: Arrived = {}
    for journal in journals:
        for _, line in journal.lines():
            for name, step, value in line.get("rows", ()):
                number = float(value)
                shown = "nan" if math.isnan(number) else repr(max(-LARGEST, min(LARGEST, number)))
                rows.setdefault(name, []).append((step, shown, line["time"]))
    return {name: sorted(points) for name, points in rows.items()}


def runs_of(client: Any, run_key: str) -> list[Any]:
    experiments = [client.get_experiment_by_name("quatrain").experiment_id]
    return list(client.search_runs(experiments, f"tags.`quatrain.run_key` = '{run_key}'"))


def arrived(client: Any, run_key: str) -> Arrived:
    (run,) = runs_of(client, run_key)
    return {
        name: sorted(
            (m.step, repr(m.value), m.timestamp)
            for m in client.get_metric_history(run.info.run_id, name)
        )
        for name in run.data.metrics
    }


def deliver(journal: Journal, uri: str, attempts: int = 1) -> None:
    with closing(Delivery(journal, uri)) as delivery:
        for left in reversed(range(attempts)):
            with suppress(Exception) if left else nullcontext():
                while delivery.step():
                    pass
                return
