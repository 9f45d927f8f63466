"""name -> the ID of the experiment in a store, which is created by whoever needs it first."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.tracking.store import Unreachable

# The experiment of the pipeline's runs.
EXPERIMENT = "quatrain"
# Makes the UI open with runs and metrics, not with traces of language models.
TAGS = {"mlflow.experimentKind": "custom_model_development"}


def find_or_create(call: Callable[..., Any], name: str, artifacts: Path | None) -> str:
    """Returns the ID of an experiment; artifacts is the folder of its files, None for a server's.

    Raises:
        Unreachable: it was deleted there, or the store lacks what it says it has.
        Exception: any error of mlflow and its libraries.
    """
    experiment = call("get_experiment_by_name", name)
    if experiment is None:
        failure: Exception = Unreachable("the store has no experiment that it acknowledged")
        try:
            call("create_experiment", name, artifacts and str(artifacts), TAGS)
        except Exception as error:
            failure = error
        # Another process may have created it meanwhile.
        experiment = call("get_experiment_by_name", name)
        if experiment is None:
            raise failure
    if experiment.name != name:
        raise Unreachable(f"the store has no experiment {name!r} and says it has")
    if experiment.lifecycle_stage != "active":
        raise Unreachable(f"experiment {name!r} is deleted there; restore it in the UI")
    return str(experiment.experiment_id)
