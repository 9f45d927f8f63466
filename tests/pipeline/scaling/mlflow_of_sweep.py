"""What MLflow holds of a sweep that was recorded in its checkout."""

from collections import Counter
from pathlib import Path
from typing import Any

from tests.pipeline.recorded_runs import client_of


def recorded(root: Path) -> tuple[Any, list[Any]]:
    """The sweep's run and those below it; no metric has a step twice."""
    client = client_of(f"sqlite:///{root}/.mlflow/mlflow.db")
    experiment = client.get_experiment_by_name("quatrain").experiment_id
    runs = list(client.search_runs([experiment]))
    (parent,) = [run for run in runs if run.data.tags.get("quatrain.sweep") == "true"]
    children = [run for run in runs if run is not parent]
    assert {run.data.tags["mlflow.parentRunId"] for run in children} <= {parent.info.run_id}
    for run in runs:
        assert run.data.metrics or run.info.status != "FINISHED"
        for name in run.data.metrics:
            rows = client.get_metric_history(run.info.run_id, name)
            steps = Counter(row.step for row in rows)
            assert max(steps.values()) == 1, (run.info.run_name, name, steps.most_common(3))
    return parent, sorted(children, key=lambda run: run.data.tags["quatrain.trial"])
