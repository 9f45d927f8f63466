"""state -> arrays that answer without it; observations -> action values and the greedy action"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from quatrain.frameworks.jax import packing
from quatrain.models.iqn import network
from quatrain.models.iqn.hosted.collect import Dataset, Scale, scale_of, scaled
from quatrain.models.iqn.hosted.config import HostedIqnConfig
from quatrain.models.iqn.hosted.playing import by_seed
from quatrain.models.iqn.hosted.state import State
from quatrain.models.iqn.hosted.train import evaluation_params
from quatrain.models.iqn.serve import action_values
from quatrain.requests import Input, validate_request

EXAMPLES = 2
# Arrays that tell the numbers of agents, inputs and actions.
SIZED = ("params/hidden/kernel", "params/advantage/bias")
LARGEST = float(np.finfo(np.float32).max)


def export(config: HostedIqnConfig, state: State, dataset: Dataset) -> dict[str, np.ndarray]:
    """Returns the networks of all agents of the first seed that are judged, and the scale of their
    observations.
    """
    params = jax.tree.map(lambda leaf: leaf[0], evaluation_params(config, state))
    return packing.to_arrays({"params": params, "scale": by_seed(state.scale)[0]})


def request(config: HostedIqnConfig, dataset: Dataset) -> dict[str, np.ndarray]:
    """Returns what the first and the last agent see at the start of two held-out episodes."""
    obs = dataset.held_out.obs[:EXAMPLES]
    agents = np.array([0, obs.shape[1] - 1], np.int32)
    stacks = np.tile(scale_of(config, dataset.train).mean[0], (EXAMPLES, config.network.frames, 1))
    stacks[:, -1] = obs[np.arange(EXAMPLES), agents]
    return {"observations": stacks, "agents": agents}


def answer(
    config: HostedIqnConfig,
    arrays: dict[str, np.ndarray],
    request: Any,
) -> dict[str, np.ndarray]:
    """Computes what each agent's own network expects of its actions.

    Inputs: `observations` (n, frames, size), flattened as Gymnasium's `flatten` does, oldest first
    and the mean of `scale` before the episode. `agents` (n,), the number of the agent, from 0.
    Outputs: `action` (n,), the greedy one, counted from 0; `values` (n, actions), the expected
    discounted return of each, a mean over `quantiles` (n, G, actions), its distribution at the
    levels (g + 1/2) / G.

    Raises:
        ValueError: other inputs or another shape, a number that is not finite, no such agent;
            arrays of another config.
    """
    weights = _restore(config, arrays)
    agents, inputs, _ = weights["params"]["hidden"]["kernel"].shape
    frames = config.network.frames
    question = validate_request(
        "iqn",
        request,
        {
            "observations": Input(np.float32, (frames, inputs // frames), -LARGEST, LARGEST),
            "agents": Input(np.int32, (), 0, agents - 1),
        },
    )
    scale = Scale(*map(np.asarray, weights["scale"]))
    stacks = np.asarray(scaled(scale, question["observations"])).reshape(-1, inputs)
    return action_values(config, weights["params"], stacks, question["agents"])._asdict()


def _restore(config: HostedIqnConfig, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Returns the networks and the scale, without an environment: sizes are those of the arrays.

    Raises:
        ValueError: they are not the arrays of this config.
    """
    missing = [name for name in SIZED if name not in arrays]
    if missing:
        raise ValueError(f"not a learner of this config: differing arrays {missing}")
    agents, inputs, _ = arrays[SIZED[0]].shape
    actions = arrays[SIZED[1]].shape[-1]
    keys = jax.random.split(jax.random.key(0), agents)

    def init() -> dict[str, Any]:
        size = jnp.zeros(inputs // config.network.frames)
        params = network.init_agents(config.network, keys, inputs, actions)
        return {"params": params, "scale": Scale(size, size)}

    return packing.from_arrays(jax.eval_shape(init), arrays)
