"""the tracking store -> the page of MLflow's UI that lists the runs of the pipeline."""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from pipeline.runtime.console import shown
from pipeline.tracking.records import EXPERIMENT
from pipeline.tracking.store import (
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


def runs_page(root: Path, port: int = PORT) -> str:
    """Returns the address of the page: of `make ui` on this machine, or of a tracking server.

    It is the list of experiments if the store has no run yet, or does not answer.
    """
    uri = resolve_uri(root)
    server = shown(uri).rstrip("/") if is_server(uri) else f"http://127.0.0.1:{port}"
    number = experiment_id(uri)
    runs = "" if number is None else f"/{number}/runs"
    return f"{server}/#/experiments{runs}?{VIEW}"


def experiment_id(uri: str) -> str | None:
    """Returns the ID that the store gave the experiment; None if there is none, or no answer.

    An sqlite store is read without mlflow, which takes seconds to import.
    """
    database = database_of(uri)
    with suppress(Exception):  # a page is not worth a failure of what links to it
        if database is not None:
            with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
                (number,) = connection.execute(QUERY, (EXPERIMENT,)).fetchone()
            return str(number)
        check_reachable(uri)
        return str(open_client(uri).get_experiment_by_name(EXPERIMENT).experiment_id)
    return None
