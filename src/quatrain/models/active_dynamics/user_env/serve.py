"""model of a user's system -> arrays for inference; states and actions -> velocities"""

import numpy as np
import torch

from quatrain.frameworks.torch import from_template, to_arrays
from quatrain.models.active_dynamics.config import ActiveDynamicsUserEnvConfig as Config
from quatrain.models.active_dynamics.user_env import regression
from quatrain.models.active_dynamics.user_env.data import Dataset
from quatrain.models.active_dynamics.user_env.learn import State, shown_learner
from quatrain.serving import Input, Served
from quatrain.storage.recordings import LARGEST

STATES, ACTIONS = "states", "actions"
EXAMPLES = 3
NOTHING = np.zeros(0)


def export(config: Config, state: State) -> dict[str, np.ndarray]:
    """Returns the model of the first seed of the arm that is judged."""
    return to_arrays(state.params[shown_learner(config)].model)


def request(dataset: Dataset) -> dict[str, np.ndarray]:
    obs, actions, *_ = (column[:EXAMPLES].astype(float) for column in dataset.held_out)
    return {STATES: obs, ACTIONS: actions}


def load(arrays: dict[str, np.ndarray]) -> Served:
    """Returns what computes dy/dt and its standard deviation, at any states and actions.

    Raises:
        ValueError: the arrays are no model.
    """
    d, size, features, columns = (
        len(arrays.get(name, NOTHING)) for name in ("center", "bound", "phase", "weight")
    )
    model = from_template(regression.empty_model(d, size, features, columns), arrays)

    device = model.center.device
    inputs = {
        name: Input(np.float64, (count,), -LARGEST, LARGEST)
        for name, count in ((STATES, d), (ACTIONS, size))
    }

    @torch.inference_mode()
    def compute(question: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        y, actions = (torch.as_tensor(question[name], device=device) for name in inputs)
        velocity, deviation = regression.velocities(model, y, actions)
        return {"velocity": velocity.numpy(force=True), "deviation": deviation.numpy(force=True)}

    return Served(inputs, compute)
