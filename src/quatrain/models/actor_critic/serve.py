"""state -> arrays for inference; what is seen -> the policy's actions and values"""

from typing import Any

import numpy as np
import torch

from quatrain.frameworks.torch import from_template, seeded, to_arrays
from quatrain.models.actor_critic.config import Config
from quatrain.models.actor_critic.network import load_actor, make_network
from quatrain.models.actor_critic.train import State
from quatrain.serving import Served


def serving(config: Config) -> Any:
    """Returns the module that answers in the config's environment; only that one is loaded."""
    if config.brings_env:
        from quatrain.models.actor_critic import serve_user_env

        return serve_user_env
    from quatrain.models.actor_critic import serve_colony

    return serve_colony


def export(config: Config, state: State, dataset: Any) -> dict[str, np.ndarray]:
    """Returns the best network of the first seed, and the scale of what it sees or the bounds of
    its actions.
    """
    constants = serving(config).constants(state, dataset)
    return to_arrays({"params": state.best[0].params, **constants})


def request(config: Config, dataset: Any) -> dict[str, np.ndarray]:
    """Returns what the first held-out episodes begin with."""
    question: dict[str, np.ndarray] = serving(config).request(config, dataset)
    return question


def load(config: Config, arrays: dict[str, np.ndarray]) -> Served:
    """Returns what computes actions of the deterministic policy, as it is evaluated, and values.

    Of colonies, inputs: `positions` (n, max_nodes, 2), x and y of each cell in pixels; `cells`
    (n,), the number of cells: entries beyond it are ignored; `parents` (n, max_nodes), the slot of
    each cell's parent, which precedes the cell, or -1; `ages` (n, max_nodes), steps since each
    cell's birth; `left_moves` (n,), steps in a row that moved the centroid to the left; `stiffness`
    (n, width) of the plate at each pixel along x. A colony before its first step is a chain:
    parents -1, 0, 1, ..., ages 0, left_moves 0. Outputs (n,): the action, which is `delete_ratio`,
    the share of cells to remove from the left; `gamma`, pixels that children are thrown where the
    plate is stiff; `alpha`, the stiffness where it is half as far; `noise`, pixels added to that;
    `theta`, its direction in radians; and `value`, the expected discounted return.

    In an environment of a user, inputs: `observations` (n, size), flattened as the environment
    returns them; Discrete parts are one-hot vectors, an image comes first, with channels last, and
    a mask of actions last. Outputs: `action` (n,), the index of a Discrete action space from 0, or
    (n, size), the indices of several, or a vector within its bounds, of integers if the space holds
    such; `value` (n,), the expected discounted return; and for indices `probabilities` (n,
    actions), of the policy that explores.

    Raises:
        ValueError: the arrays are of another config.
    """
    world = serving(config)
    spec, constants = world.template(config, arrays)
    params = dict(seeded(lambda: make_network(config, spec), 0).state_dict())
    weights = from_template({"params": params, **constants}, arrays)
    # Compilation pays only for repeated shapes.
    train = config.train.model_copy(update={"compile": False})
    config = config.model_copy(update={"train": train})
    actor = load_actor(config, spec, weights["params"])
    answer = world.answering(config, actor, weights)
    sample = world.sampling(actor, weights) if config.brings_env else None
    return Served(world.inputs(config, spec), torch.inference_mode()(answer), sample)
