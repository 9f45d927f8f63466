"""state -> constants for inference; observations -> the policy's actions and their values"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quatrain.envs.host.spaces import Interface, to_box
from quatrain.envs.host.user_code import AGENT
from quatrain.frameworks.torch import generator_from_seed
from quatrain.models.actor_critic.config import ActorCriticUserEnvConfig
from quatrain.models.actor_critic.network import Actor
from quatrain.models.actor_critic.train import State
from quatrain.models.actor_critic.user_env import Dataset, spec_in, to_graphs
from quatrain.replay.rollouts import Spec
from quatrain.serving import Input


def constants(state: State, dataset: Dataset) -> dict[str, Tensor]:
    """Returns the bounds of actions that are vectors, and what else of rows and actions the weights
    do not tell, so that answers need no environment.
    """
    return _sizes(dataset.interface.restored)


def _sizes(space: Interface) -> dict[str, Tensor]:
    dtype = torch.int32 if space.has_integers else torch.float32
    bounds = {"action_low": space.action_low, "action_high": space.action_high}
    sizes = {name: torch.tensor(bound, dtype=dtype) for name, bound in bounds.items()}
    others = {"image": space.image, "mask": space.has_mask * space.action_counts}
    if len(space.action_counts) > 1:
        others["action_counts"] = space.action_counts
    return sizes | {name: torch.tensor(each) for name, each in others.items() if each}


def request(config: ActorCriticUserEnvConfig, dataset: Dataset) -> dict[str, np.ndarray]:
    """Returns the observations in which the first held-out episodes begin."""
    return {"observations": dataset.held_out.first_obs.copy()}


def template(
    config: ActorCriticUserEnvConfig, arrays: dict[str, np.ndarray]
) -> tuple[Spec, dict[str, Tensor]]:
    """Reads the sizes off the arrays; where one is missing, they will not fit."""
    raw = _size(arrays, f"params/actor.{2 * config.network.layers}.bias")
    low, high = (
        tuple(arrays.get(name, np.empty(0)).astype(float).tolist())
        for name in ("action_low", "action_high")
    )
    image, mask, counts = (
        tuple(arrays.get(name, np.empty(0, int)).tolist())
        for name in ("image", "mask", "action_counts")
    )
    pixels = int(np.prod(image)) if image else 0
    space = Interface(
        agents=(AGENT,),
        observation_size=pixels + _size(arrays, "params/obs_mean") + sum(mask),
        image=image,
        has_mask=bool(mask),
        action_counts=() if low or high else counts or mask or (raw,),
        action_low=low or high,
        action_high=high or low,
        has_integers="action_low" in arrays and arrays["action_low"].dtype.kind == "i",
        max_episode_steps=0,
    )
    return spec_in(space), _sizes(space)


def _size(arrays: dict[str, np.ndarray], name: str) -> int:
    return arrays[name].size if name in arrays else 1


def answering(
    config: ActorCriticUserEnvConfig, actor: Actor, weights: dict[str, Any]
) -> Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]:
    """Returns what tells the actions of the deterministic policy, values, and of indices
    probabilities, those of one index after the other.
    """
    low, high = (weights[name].numpy(force=True) for name in ("action_low", "action_high"))

    def answer(question: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        output = actor.outputs(to_graphs(question["observations"]))
        action, value = output.action.numpy(force=True), output.value.numpy(force=True)
        if low.size:
            return {"action": to_box(action, low, high), "value": value}
        (log_probs,) = output.params
        probabilities = log_probs.exp().numpy(force=True)
        return {"action": action.astype(np.int32), "value": value, "probabilities": probabilities}

    return answer


def sampling(
    actor: Actor, weights: dict[str, Any]
) -> Callable[[dict[str, np.ndarray], np.random.Generator], np.ndarray]:
    """Returns what draws actions from the distributions of the policy."""
    low, high = (weights[name].numpy(force=True) for name in ("action_low", "action_high"))

    def sample(question: dict[str, np.ndarray], draws: np.random.Generator) -> np.ndarray:
        generator = generator_from_seed(np.random.SeedSequence(int(draws.integers(2**63))))
        drawn = actor.draw(to_graphs(question["observations"]), generator).numpy(force=True)
        return to_box(drawn, low, high) if low.size else drawn.astype(np.int32)

    return sample


def inputs(config: ActorCriticUserEnvConfig, spec: Spec) -> dict[str, Input]:
    """Returns the inputs of a request."""
    if spec.graph_dtype == torch.uint8:
        return {"observations": Input(np.uint8, (spec.graph_features,), 0, 255)}
    most = float(np.finfo(np.float32).max)
    return {"observations": Input(np.float32, (spec.graph_features,), -most, most)}
