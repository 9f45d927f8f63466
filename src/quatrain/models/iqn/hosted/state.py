"""a dataset -> everything that changes while agents learn on hosted environments"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float32, Int32, Key

from quatrain.envs.host.spaces import Interface
from quatrain.frameworks.arrays import ArraySpec, verify
from quatrain.frameworks.jax import packing
from quatrain.frameworks.jax.seeds import over_seeds
from quatrain.models.iqn import network
from quatrain.models.iqn.cycle.updating import Agent, optimizer
from quatrain.models.iqn.hosted.collect import Dataset, Scale, scale_of, scaled
from quatrain.models.iqn.hosted.config import HostedIqnConfig
from quatrain.models.iqn.hosted.playing import PlayState, by_seed, init_play_state
from quatrain.models.iqn.train import INIT, base_keys
from quatrain.replay.frames.ring import FrameRing, Transitions, from_transitions

# Stands for the greedy return where nothing was evaluated.
NOT_EVALUATED = float(np.finfo(np.float32).min)


class Best(NamedTuple):
    """Holds the parameters of the best greedy evaluation of each seed, and its mean return over
    agents; the first parameters, and NOT_EVALUATED, before any.
    """

    params: network.Params
    greedy_return: Float32[Array, "*seed"]


class Learner(NamedTuple):
    """Holds the part of the state that compiled programs change."""

    agents: Agent
    ring: FrameRing
    base_key: Key[Array, "*seed"]
    updates: Int32[Array, "*seed"]


class State(NamedTuple):
    """Holds everything that changes while learning, and the scale of observations that the networks
    expect; leaves begin with seed, then agent if any.
    """

    params: network.Params
    target_params: network.Params
    best: Best
    scale: Scale
    optimizer: Any
    play_state: PlayState
    ring: FrameRing
    base_key: Key[Array, " seed"]
    updates: Int32[Array, " seed"]

    @property
    def learner(self) -> Learner:
        agents = Agent(self.params, self.target_params, self.optimizer)
        return Learner(agents, self.ring, self.base_key, self.updates)

    def after(self, learner: Learner, play_state: PlayState) -> "State":
        """Returns the state with these parts."""
        return self._replace(
            **learner.agents._asdict(),
            play_state=play_state,
            ring=learner.ring,
            base_key=learner.base_key,
            updates=learner.updates,
        )


def init_state(config: HostedIqnConfig, dataset: Dataset, seed: int) -> State:
    """Returns untrained agents, envs before their first episode, and replays with the prefill."""
    scale = scale_of(config, dataset.train)
    frames = [
        scaled(of_seed, frames)
        for of_seed, frames in zip(by_seed(scale), dataset.train.frames, strict=True)
    ]
    learner = _init_learner(
        config,
        dataset.interface.restored,
        base_keys(config, seed),
        dataset.train._replace(frames=np.stack(frames)),
    )
    params = learner.agents.params
    return State(
        params=params,
        target_params=learner.agents.target_params,
        best=Best(params, jnp.full(config.seeds, NOT_EVALUATED, jnp.float32)),
        scale=scale,
        optimizer=learner.agents.optimizer,
        play_state=init_play_state(config, dataset),
        ring=learner.ring,
        base_key=learner.base_key,
        updates=learner.updates,
    )


def init_params(
    config: HostedIqnConfig, sizes: Interface, base_key: Key[Array, ""]
) -> network.Params:
    """Draws the first parameters of all agents of a seed."""
    keys = jax.random.split(jax.random.fold_in(base_key, INIT), len(sizes.agents))
    inputs = config.network.frames * sizes.observation_size
    return network.init_agents(config.network, keys, inputs, sizes.action_count)


@partial(jax.jit, static_argnums=(0, 1))
def _init_learner(
    config: HostedIqnConfig,
    sizes: Interface,
    base_key: Key[Array, " seed"],
    prefill: Transitions,
) -> Learner:
    def init_seed(seed: tuple[Array, Transitions]) -> Learner:
        key, transitions = seed
        params = init_params(config, sizes, key)
        return Learner(
            agents=Agent(params, params, jax.vmap(optimizer(config.train).init)(params)),
            ring=from_transitions(config.slots, transitions),
            base_key=key,
            updates=jnp.int32(0),
        )

    return over_seeds(init_seed, config.train.seed_parallelism)((base_key, prefill))


def from_arrays(config: HostedIqnConfig, dataset: Dataset, arrays: dict[str, np.ndarray]) -> State:
    """Returns the state that these arrays hold, the inverse of `to_arrays`.

    Raises:
        ValueError: names, shapes or dtypes are not those of a state of this config.
    """
    empty = init_play_state(config, dataset)
    on_host = packing.to_arrays({"play_state": empty})
    verify(
        {name: array for name, array in arrays.items() if name.startswith("play_state/")},
        {name: ArraySpec(array.dtype, array.shape) for name, array in on_host.items()},
    )
    # JAX would store the counters of the environments in 32 bits.
    play_state = jax.tree.unflatten(jax.tree.structure(empty), [arrays[name] for name in on_host])
    others = {name: array for name, array in arrays.items() if name not in on_host}
    template: Any = jax.eval_shape(partial(init_state, config, dataset, seed=0))
    state = packing.from_arrays(template._replace(play_state=()), others)
    return state._replace(play_state=play_state)
