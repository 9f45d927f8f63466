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
from quatrain.models.actor_critic.config import ActorCriticUserEnvConfig
from quatrain.models.actor_critic.ppo.learner import State, load_actor, make_network
from quatrain.models.actor_critic.worlds.user_env import Dataset, spec_in, to_graphs
from quatrain.requests import Input, validate_request


class Weights(NamedTuple):
    """Holds a network, and the bounds of actions that are vectors, so that answers need no
    environment.
    """

    params: dict[str, Tensor]
    action_low: Num[Tensor, " size"]
    action_high: Num[Tensor, " size"]


def export(
    config: ActorCriticUserEnvConfig, state: State, dataset: Dataset
) -> dict[str, np.ndarray]:
    """Returns the best network of the first seed, and the bounds of its actions."""
    bounds = _bounds(dataset.interface.restored)
    return packing.to_arrays(Weights(state.best[0].params, *bounds))


def _bounds(space: Interface) -> tuple[Num[Tensor, " size"], Num[Tensor, " size"]]:
    dtype = torch.int32 if space.has_integers else torch.float32
    return torch.tensor(space.action_low, dtype=dtype), torch.tensor(space.action_high, dtype=dtype)


def request(config: ActorCriticUserEnvConfig, dataset: Dataset) -> dict[str, np.ndarray]:
    """Returns the observations in which the first held-out episodes begin."""
    return {"observations": dataset.held_out.first_obs.copy()}


def answer(
    config: ActorCriticUserEnvConfig, arrays: dict[str, np.ndarray], request: Any
) -> dict[str, np.ndarray]:
    """Returns the actions of the deterministic policy, values, and of indices probabilities."""
    space = _interface(config, arrays)
    spec = spec_in(space)
    params = dict(seeded(lambda: make_network(config, spec), 0).state_dict())
    weights = packing.from_arrays(Weights(params, *_bounds(space)), arrays)
    question = validate_request("actor_critic", request, inputs(space.observation_size))
    actor = load_actor(config, spec, weights.params)
    graphs = to_graphs(question["observations"])
    action = actor.act(graphs).numpy(force=True)
    answers = {"action": action, "value": actor.value(graphs).numpy(force=True)}
    if space.action_count:
        (log_probs,) = actor.params(graphs)
        answers["action"] = action.astype(np.int32)
        answers["probabilities"] = log_probs.exp().numpy(force=True)
    else:
        answers["action"] = to_box(action, arrays["action_low"], arrays["action_high"])
    return answers


def _interface(config: ActorCriticUserEnvConfig, arrays: dict[str, np.ndarray]) -> Interface:
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
