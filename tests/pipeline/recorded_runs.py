"""Outboxes with every kind of record, and what a store must hold of them."""

import math
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.tracking.delivery import Delivery
from pipeline.tracking.outbox import Outbox
from pipeline.tracking.records import SEED, DatasetInput, Header, Parent, drawn_as
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


def recorded(path: Path, run_key: str, end: str = "FINISHED") -> Outbox:
    """Records every kind of record but a model; 1,480 metrics in batches of unequal size."""
    outbox = Outbox(path)
    outbox.begin(header(run_key))
    outbox.metrics([("train/loss", step, 1 / (step + 3)) for step in range(1400)])
    odd = enumerate([math.nan, math.inf, -math.inf])
    outbox.metrics([("train/odd", step, value) for step, value in odd])
    for step in range(7):
        outbox.metrics([(f"train/cosine/{k}", step, step / 7 + k) for k in range(11)])
    learner = f"train/loss{SEED}0"
    outbox.metrics([(learner, step, step / 3) for step in range(5)], hidden={learner})
    outbox.put("artifact", "plots/curve.png", data=b"picture")
    outbox.put("tag", "mlflow.note.content", "all hold")
    outbox.end(end)
    return outbox


def recorded_model(path: Path, run_key: str, parent: Parent | None = None, time: int = 1) -> Outbox:
    """Records a folder in the form of a model, without a model."""
    folder = path.with_suffix(".model")
    (folder / "code").mkdir(parents=True, exist_ok=True)
    (folder / "MLmodel").write_text("flavors: {}\n")
    (folder / "code" / "answer.py").write_text("ANSWER = 42\n")
    archive = Path(shutil.make_archive(str(folder), "zip", folder))
    outbox = Outbox(path)
    outbox.begin(header(run_key, parent=parent))
    card = f"## What it is\n\n{run_key}\n\n## Scores\n\nnone\n\n## Limits\n\nmany"
    outbox.put("model", "quatrain-allo", card, data=archive.read_bytes(), time=time)
    outbox.end("FINISHED")
    return outbox


def expected(*outboxes: Outbox) -> Arrived:
    rows: Arrived = {}
    for point in (point for outbox in outboxes for point in outbox.points()):
        number = max(-LARGEST, min(LARGEST, point.value))
        shown = "nan" if math.isnan(point.value) else repr(number)
        if SEED not in point.name:
            rows.setdefault(drawn_as(point.name), []).append((point.step, shown, point.time))
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


def deliver(outbox: Outbox, uri: str, attempts: int = 1, **modes: bool) -> Delivery:
    """Delivers an outbox in at most so many attempts; raises what the last one met."""
    delivery = Delivery(outbox, uri, **modes)
    for left in reversed(range(attempts)):
        error = delivery.send()
        if error is not None and not left:
            raise error
    return delivery
