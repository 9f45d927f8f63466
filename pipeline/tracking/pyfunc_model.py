"""config.json, weights.safetensors -> answers: the script that MLflow runs to serve a model."""

import json
import logging
import os
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

# Set before torch is imported: its threads must not spin while they wait.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
from mlflow.exceptions import INTERNAL_ERROR, INVALID_PARAMETER_VALUE, MlflowException
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel, scoring_server

# The example that MLflow saves beside a model, as a body.
EXAMPLE = "serving_input_example.json"


class RequestRefused(MlflowException, ValueError):
    """Says what is wrong with a request; a server answers it with status 400 and this text."""

    def __init__(self, reason: object) -> None:
        super().__init__(" ".join(str(reason).split()), INVALID_PARAMETER_VALUE)


class ServedModel(PythonModel):
    """Answers requests by a trained model; the first axis of each array counts questions."""

    def load_context(self, context: Any) -> None:
        from safetensors.numpy import load_file

        from quatrain.params import read_section
        from quatrain.registry import load

        stored = json.loads(Path(context.artifacts["config"]).read_text())
        self.name = stored["model"]
        config = read_section(self.name, json.dumps(stored["config"]))
        arrays = load_file(context.artifacts["weights"])
        self.served = load(self.name).serve.load(config, arrays)
        example = Path(context.artifacts["config"]).parents[1] / EXAMPLE
        if scoring_server._SERVER_MODEL_PATH in os.environ and example.is_file():
            document(lambda: self.operation(json.loads(example.read_text())))

    def predict(
        self,
        context: Any,  # noqa: ARG002
        model_input: np.ndarray,
        params: Any = None,
    ) -> Any:
        """Answers a request, a mapping of names to arrays or nested lists.

        The type hint of `model_input` is the only one that makes MLflow neither convert nor warn.

        Raises:
            RequestRefused: it does not fit; the message names the array and what is right.
        """
        from quatrain.serving import answer

        if params:
            raise RequestRefused(f"{self.name}: the model has no params; leave them out")
        try:
            request = dict(model_input) if hasattr(model_input, "keys") else model_input
            return answer(self.name, self.served, request)
        except ValueError as error:
            raise RequestRefused(error) from None

    def operation(self, example: dict[str, Any]) -> dict[str, Any]:
        """Returns what OpenAPI tells of /invocations: schema and example of request and answer."""
        from quatrain.serving import KEY, MEDIA_TYPE, MOST_QUESTIONS, answer

        answers = answer(self.name, self.served, example[KEY])
        limits = {name: _limits(spec) for name, spec in self.served.inputs.items()}
        asked = {
            name: _array(spec.shape, limits[name], MOST_QUESTIONS)
            for name, spec in self.served.inputs.items()
        }
        answered = {
            name: _array(each.shape[1:], _number(each.dtype)) for name, each in answers.items()
        }
        reply = {"predictions": {name: each.tolist() for name, each in answers.items()}}
        refusal = {"type": "object", "properties": {"message": {"type": "string"}}}
        return {
            "summary": f"Answers questions by {self.name}",
            "requestBody": {"required": True, "content": {MEDIA_TYPE: _body(KEY, asked, example)}},
            "responses": {
                "200": _response("Answers", _body("predictions", answered, reply)),
                "400": _response("The request does not fit: one line", {"schema": refusal}),
            },
        }

    def answer_body(self, model: Any, content_type: str | None, body: bytes) -> Any:
        """Answers the body of a POST to /invocations.

        model: MLflow's wrapper of this one.

        Raises:
            RequestRefused: it does not fit.
            MlflowException: the model failed; the reason is in the server's log.
        """
        from quatrain.serving import read_body

        try:
            answer = model.predict(read_body(content_type, body))
        except MlflowException:
            raise
        except ValueError as error:
            raise RequestRefused(f"{self.name}: {error}") from None
        except Exception:
            logging.getLogger(__name__).exception("%s failed to answer", self.name)
            raise MlflowException(f"{self.name}: the model failed", INTERNAL_ERROR) from None
        text = StringIO()
        scoring_server.predictions_to_json(answer, text)
        return scoring_server.InvocationsResponse(text.getvalue(), 200, "application/json")


def _number(dtype: Any) -> dict[str, Any]:
    return {"type": "integer" if np.issubdtype(dtype, np.integer) else "number"}


def _limits(spec: Any) -> dict[str, Any]:
    """Returns the kind of an input's numbers, and their range: the widest of all its numbers."""
    least, most = spec.limits
    range_ = {"minimum": least.min().item(), "maximum": most.max().item()}
    return _number(spec.dtype) | range_


def _array(shape: tuple[int, ...], number: dict[str, Any], most: int | None = None) -> Any:
    """Returns the schema of questions, at most so many, each an array of this shape."""
    schema = number
    for size in reversed(shape):
        schema = {"type": "array", "items": schema, "minItems": size, "maxItems": size}
    return {"type": "array", "items": schema} | ({"minItems": 1, "maxItems": most} if most else {})


def _body(key: str, arrays: dict[str, Any], example: Any) -> dict[str, Any]:
    """Returns schema and example of a body that has arrays by name below a key."""
    named = {"type": "object", "properties": arrays, "required": [*arrays]}
    schema = {"type": "object", "properties": {key: named}, "required": [key]}
    return {"schema": schema | {"additionalProperties": False}, "example": example}


def _response(description: str, content: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": content}}


def document(operation: Callable[[], dict[str, Any]]) -> None:
    """Lets /openapi.json of MLflow's server, which /docs shows, tell what the model is asked.

    The server makes its app after it has loaded the model, and describes no request.
    """
    from fastapi import FastAPI

    plain = getattr(FastAPI.openapi, "plain", FastAPI.openapi)

    def openapi(app: FastAPI) -> dict[str, Any]:
        schema: dict[str, Any] = plain(app)
        if post := schema["paths"].get("/invocations", {}).get("post"):
            post |= operation()
        return schema

    vars(openapi)["plain"] = plain
    setattr(FastAPI, "openapi", openapi)  # noqa: B010  mypy forbids a plain assignment


def check_bodies() -> None:
    """Lets MLflow's server pass the bodies of requests to these models as they came.

    It would drop what it does not know, convert what it can, and answer all else with a trace.
    Other models that the process serves are answered as before.
    """
    plain = getattr(scoring_server.invocations, "plain", scoring_server.invocations)

    def invocations(data: bytes, content_type: str, model: Any, input_schema: Any) -> Any:
        served: Any = getattr(model._model_impl, "python_model", None)
        if not hasattr(served, "answer_body"):
            return plain(data, content_type, model, input_schema)
        return served.answer_body(model, content_type, data)

    vars(invocations)["plain"] = plain
    scoring_server.invocations = invocations


check_bodies()
set_model(ServedModel())
