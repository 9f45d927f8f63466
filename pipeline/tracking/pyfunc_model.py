"""config.json, weights.safetensors -> answers: the script that MLflow runs to serve a model."""

import json
import os
from pathlib import Path
from typing import Any, cast

# Set before torch is imported: its threads must not spin while they wait.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
from mlflow.exceptions import INVALID_PARAMETER_VALUE, MlflowException
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel


class RequestRefused(MlflowException, ValueError):
    """Says what is wrong with a request; a server answers it with status 400 and this text."""


class ServedModel(PythonModel):
    """Answers requests by a trained model; the first axis of each array counts questions."""

    def load_context(self, context: Any) -> None:
        from safetensors.numpy import load_file

        from quatrain.params import read_section
        from quatrain.registry import load

        stored = json.loads(Path(context.artifacts["config"]).read_text())
        self.config = read_section(stored["model"], json.dumps(stored["config"]))
        self.arrays = load_file(context.artifacts["weights"])
        self.serve = load(stored["model"], self.config).serve

    def predict(
        self,
        context: Any,  # noqa: ARG002
        model_input: np.ndarray,
        params: Any = None,  # noqa: ARG002
    ) -> Any:
        """Answers a request, a dictionary of arrays.

        The type hint of `model_input` is the only one that makes MLflow neither convert nor warn.

        Raises:
            RequestRefused: it does not fit; the message names the array and what is right.
        """
        try:
            return self.serve.answer(self.config, self.arrays, dict(cast(Any, model_input)))
        except ValueError as error:
            raise RequestRefused(str(error), INVALID_PARAMETER_VALUE) from None


set_model(ServedModel())
