"""model of a user's system -> arrays for inference; states and actions -> velocities"""

import numpy as np
import torch

from quatrain.frameworks.torch import from_template, to_arrays
from quatrain.models.active_dynamics.config import LARGEST, ActiveDynamicsUserEnvConfig
from quatrain.models.active_dynamics.user_env.data import Dataset
from quatrain.models.active_dynamics.user_env.learn import State
from quatrain.models.active_dynamics.user_env.regression import Model
from quatrain.serving import Input, Served

STATES, ACTIONS = "states", "actions"
EXAMPLES = 3
NO_AXES = np.zeros((0, 0))


def export(config: ActiveDynamicsUserEnvConfig, state: State) -> dict[str, np.ndarray]:
    """Returns the model of the first seed of the arm that is judged."""
    place = config.arms.index(config.shown_arm) * config.seeds
    return to_arrays(state.params[place].model)


def request(dataset: Dataset) -> dict[str, np.ndarray]:
    runs = dataset.held_out
    return {
        STATES: runs.obs[:EXAMPLES].astype(float),
        ACTIONS: runs.actions[:EXAMPLES].astype(float),
    }


def load(arrays: dict[str, np.ndarray]) -> Served:
    """Returns what computes dy/dt and its standard deviation, at any states and actions.

    Raises:
        ValueError: the arrays are no model.
    """
    d, obs = arrays.get("encoder", NO_AXES).shape
    features, columns = (len(arrays.get(name, NO_AXES)) for name in ("phase", "weight"))
    size = len(arrays.get("bound", NO_AXES))
    shapes = {
        "center": (obs,),
        "encoder": (d, obs),
        "decoder": (obs, d),
        "speed": (d,),
        "bound": (size,),
        "control": (d, size),
        "frequency": (features, d),
        "phase": (features,),
        "weight": (columns, d),
        "covariance": (columns, columns),
        "noise": (d,),
        "noise_error": (),
    }
    zeros = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in shapes.items()}
    model = from_template(Model(**zeros), arrays)

    @torch.inference_mode()
    def compute(question: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        y, actions = (
            torch.as_tensor(question[name], device=model.center.device)
            for name in (STATES, ACTIONS)
        )
        features = model.features(model.state(y), actions)
        spread = model.variance(features).clamp(min=0) * model.speed.square()
        return {
            "velocity": model.to_velocity(model.mean(features, actions)).numpy(force=True),
            "deviation": (spread @ model.decoder.square().mT).sqrt().numpy(force=True),
        }

    inputs = {STATES: obs, ACTIONS: size}
    return Served(
        {name: Input(np.float64, (count,), -LARGEST, LARGEST) for name, count in inputs.items()},
        compute,
    )
