"""the tracking store -> the page of MLflow's UI that lists the runs of the pipeline."""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from pipeline.runtime.redaction import shown
from pipeline.tracking.experiment import EXPERIMENT, find_or_create
from pipeline.tracking.origin import checkout_of
from pipeline.tracking.store import (
    artifacts_of,
    check_reachable,
    database_of,
    is_server,
    open_client,
    resolve_uri,
)

PORT = 5000
# Without it the UI opens with the traces of language models.
VIEW = "workflowType=machine_learning"
# The list of experiments of `make ui`, which a report without a store links to.
EXPERIMENTS_PAGE = f"http://127.0.0.1:{PORT}/#/experiments?{VIEW}"
QUERY = "SELECT experiment_id FROM experiments WHERE name = ? AND lifecycle_stage = 'active'"


def runs_page(root: Path, port: int = PORT, create: bool = False) -> str:
    """Returns the address of the page: of `make ui` on this machine, or of a tracking server.

    It is the list of experiments if the store has no run yet, unless `create`, or does not answer.
    """
    uri = resolve_uri(root)
    server = shown(uri).rstrip("/") if is_server(uri) else f"http://127.0.0.1:{port}"
    number = None
    with suppress(Exception):  # a page is not worth a failure of what links to it
        number = experiment_id(uri)
        if number is None and create:
            client = open_client(uri)
            call = lambda method, *arguments: getattr(client, method)(*arguments)  # noqa: E731
            number = find_or_create(call, EXPERIMENT, artifacts_of(uri, checkout_of(root)))
    runs = "" if number is None else f"/{number}/runs"
    return f"{server}/#/experiments{runs}?{VIEW}"


def experiment_id(uri: str) -> str | None:
    """Returns the ID that the store gave the experiment; None if there is none yet.

    An sqlite store is read without mlflow, which takes seconds to import.

    Raises:
        Exception: any error of mlflow and its libraries.
    """
    database = database_of(uri)
    if database is not None and not database.exists():
        return None
    if database is not None:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
            row = connection.execute(QUERY, (EXPERIMENT,)).fetchone()
        return None if row is None else str(row[0])
    check_reachable(uri)
    experiment = open_client(uri).get_experiment_by_name(EXPERIMENT)
    return None if experiment is None else str(experiment.experiment_id)
