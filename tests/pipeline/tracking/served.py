"""Small models as MLflow serves them, untrained: its own server's app, asked without a socket."""

import asyncio
import json
import sys
import warnings
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pipeline.runtime.stage import Stage
from pipeline.tracking.export import Exported, export, pack
from pipeline.tracking.registry import built
from quatrain.devices import on_device
from quatrain.registry import MODELS, load
from quatrain.validation import overlaid
from tests.conftest import FORMS, SMALL, params_with, shapes_unchecked
from tests.pipeline.small_project import shared_folder


class Reply(NamedTuple):
    status: int
    text: str

    @property
    def message(self) -> str:
        return json.loads(self.text)["message"]


class Served(NamedTuple):
    """Holds a saved model, what MLflow loads from it, and an example."""

    stage: Stage
    folder: Path
    loaded: Any
    app: Any
    exported: Exported

    @property
    def example(self) -> dict[str, Any]:
        """Returns the example as JSON has it."""
        return {name: array.tolist() for name, array in self.exported.request.items()}

    def ask(self, body: bytes, content_type: str = "application/json") -> Reply:
        return asyncio.run(_post(self.app, body, content_type))


@cache
def served(form: str) -> Served:
    """Returns a model of a small config with its first weights."""
    model, changes = FORMS[form]
    params = params_with(overlaid({model: SMALL[model]}, {model: changes}))
    stage = Stage("train", model, Path.cwd(), params)
    with on_device(params, MODELS[model]), shapes_unchecked():
        modules = load(model)
        dataset = modules.collect.collect(stage.config, 1)
        state = modules.train.init_state(stage.config, dataset, 2)
        exported = export(stage, state, dataset)
        parts = shared_folder() / f"served-{form}"
        pack(stage, exported, parts)
        folder = built(parts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # mlflow's own, about type hints
        import mlflow
        from mlflow.pyfunc import scoring_server

        with pytest.MonkeyPatch.context() as patch:
            # Where mlflow adds the model's copy of the code, which other processes would then find.
            patch.setattr(sys, "path", [*sys.path])
            loaded = mlflow.pyfunc.load_model(str(folder))
    return Served(stage, folder, loaded, scoring_server.init(loaded), exported)


async def _post(app: Any, body: bytes, content_type: str) -> Reply:
    """Returns what an ASGI app answers to a POST to /invocations."""
    sent: list[dict[str, Any]] = []
    path = {"method": "POST", "path": "/invocations", "query_string": b"", "http_version": "1.1"}
    headers = {"headers": [(b"content-type", content_type.encode())]}
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        return messages.pop() if messages else {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app({"type": "http", "asgi": {"version": "3.0"}, **path, **headers}, receive, send)
    text = b"".join(message.get("body", b"") for message in sent).decode()
    return Reply(sent[0]["status"], text)


def first_number_replaced(values: Any, number: Any) -> Any:
    """Returns nested lists with another first entry."""
    if not isinstance(values, list):
        return number
    return [first_number_replaced(values[0], number), *values[1:]]
