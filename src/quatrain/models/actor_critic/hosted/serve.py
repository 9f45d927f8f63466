"""state -> arrays for inference; observations -> the policy's actions and their values"""

from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Num
from torch import Tensor

from quatrain.envs.host.parallel import AGENT
from quatrain.envs.host.spaces import Interface, to_box
from quatrain.frameworks.torch import packing
from quatrain.frameworks.torch.rng import seeded
from quatrain.models.actor_critic.hosted import network as networks
from quatrain.models.actor_critic.hosted.acting import make_policy, to_graphs
from quatrain.models.actor_critic.hosted.collect import Dataset
from quatrain.models.actor_critic.hosted.config import HostedActorCriticConfig
from quatrain.models.actor_critic.hosted.train import State
from quatrain.models.actor_critic.network import loaded
from quatrain.requests import Input, validate_request


class Weights(NamedTuple):
    """Holds a network, and the bounds of actions that are vectors, so that answers need no
    environment.
    """

    params: dict[str, Tensor]
    action_low: Num[Tensor, " size"]
    action_high: Num[Tensor, " size"]


def export(
    config: HostedActorCriticConfig, state: State, dataset: Dataset
) -> dict[str, np.ndarray]:
    """Returns the best network of the first seed, and the bounds of its actions."""
    bounds = _bounds(dataset.interface.restored)
    return packing.to_arrays(Weights(state.best[0].params, *bounds))


def _bounds(space: Interface) -> tuple[Num[Tensor, " size"], Num[Tensor, " size"]]:
    dtype = torch.int32 if space.has_integers else torch.float32
    return torch.tensor(space.action_low, dtype=dtype), torch.tensor(space.action_high, dtype=dtype)


def request(config: HostedActorCriticConfig, dataset: Dataset) -> dict[str, np.ndarray]:
    """Returns the observations in which the first held-out episodes begin."""
    return {"observations": dataset.held_out.first_obs.copy()}


def answer(
    config: HostedActorCriticConfig,
    arrays: dict[str, np.ndarray],
    request: Any,
) -> dict[str, np.ndarray]:
    """Returns the actions of the deterministic policy, as it is evaluated.

    Inputs: `observations` (n, size), flattened as the environment returns them; Discrete parts are
    one-hot vectors. Outputs: `action` (n,), the index of a Discrete action space from 0, or
    (n, size), a vector within its bounds, of integers if the space holds such; `value` (n,), the
    expected discounted return; and for indices `probabilities` (n, actions), of the policy that
    explores.

    Raises:
        ValueError: inputs, shapes or numbers differ from these; the arrays belong to another
            config.
    """
    space = _interface(config, arrays)
    network = seeded(lambda: networks.make(config, space), 0)
    template = Weights(dict(network.state_dict()), *_bounds(space))
    weights = packing.from_arrays(template, arrays)
    question = validate_request("actor_critic", request, inputs(space.observation_size))
    network = loaded(lambda: networks.make(config, space), weights.params)
    policy = make_policy(config, space)
    with torch.no_grad():
        output = network(to_graphs(question["observations"]))
        params = policy.distribution(output.raw)
        action = policy.action(policy.mean(params)).numpy(force=True)
    answers = {"action": action, "value": output.value.numpy(force=True)}
    if space.action_count:
        answers["action"] = action.astype(np.int32)
        answers["probabilities"] = params[0].exp().numpy(force=True)
    else:
        answers["action"] = to_box(action, arrays["action_low"], arrays["action_high"])
    return answers


def _interface(config: HostedActorCriticConfig, arrays: dict[str, np.ndarray]) -> Interface:
    """Reads the sizes off the arrays; where one is missing, they will not fit."""
    raw = _size(arrays, f"params/actor.{2 * config.network.layers}.bias")
    low, high = (
        tuple(arrays.get(name, np.empty(0)).astype(float).tolist())
        for name in ("action_low", "action_high")
    )
    return Interface(
        agents=(AGENT,),
        observation_size=_size(arrays, "params/obs_mean"),
        action_count=0 if low or high else raw,
        action_low=low or high,
        action_high=high or low,
        has_integers="action_low" in arrays and arrays["action_low"].dtype.kind == "i",
        max_episode_steps=0,
    )


def _size(arrays: dict[str, np.ndarray], name: str) -> int:
    return arrays[name].size if name in arrays else 1


def inputs(observation_size: int) -> dict[str, Input]:
    """Returns the inputs of a request."""
    most = float(np.finfo(np.float32).max)
    return {"observations": Input(np.float32, (observation_size,), -most, most)}
