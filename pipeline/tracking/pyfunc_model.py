"""config.json, weights.safetensors -> answers: the script that MLflow stores with each model and runs to serve it."""

import json
import os
from importlib import import_module
from pathlib import Path
from typing import Any, cast

os.environ.setdefault(
    "OMP_WAIT_POLICY", "PASSIVE"
)  # before torch is loaded: spinning threads starve their neighbours

import numpy as np
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel


class Served(PythonModel):
    """A trained model that answers requests: named arrays whose first axis counts questions, and so are its answers."""

    def load_context(self, context: Any) -> None:
        """Read what was stored, with the code that was stored beside it; nothing in it is pickled."""
        from safetensors.numpy import load_file

        from quatrain.params import Params

        stored = json.loads(Path(context.artifacts["config"]).read_text())
        section: Any = Params.model_fields[stored["model"]].annotation
        self.config = section.model_validate_json(json.dumps(stored["config"]))
        self.arrays = load_file(context.artifacts["weights"])
        self.room = import_module(f"quatrain.models.{stored['model']}.serve")

    def predict(self, context: Any, model_input: np.ndarray, params: Any = None) -> Any:  # noqa: ARG002, MLflow's own
        """Answers by name. The hint is for MLflow, which warns of any that it would convert to; arrays come by name.

        Raises:
            ValueError: the request does not fit; one line says which of its arrays, and what is right.
        """
        return self.room.answer(self.config, self.arrays, dict(cast(Any, model_input)))


set_model(Served())
