"""map, data -> the state of learners, the constant inputs of their steps, and their tables."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jaxtyping import Float, Int, Key

from quatrain.frameworks.jax.seeds import over_devices, over_seeds
from quatrain.models.allo import network
from quatrain.models.allo.collect import (
    AnyDataset,
    dataset_inputs,
    input_constants,
)
from quatrain.models.allo.config import AlloConfig, Train
from quatrain.replay.episodes.trajectories import Episodes

# Folded into a learner's base key for its initialisation; steps fold in their own number.
INIT = np.uint32(2**32 - 1)


class State(NamedTuple):
    """Holds everything that changes while learning, and the `input_constants` that the weights were
    trained with.
    """

    params: network.Params
    optimizer: Any
    duals: Float[Array, "*seeds d d"]
    barrier: Float[Array, "*seeds"]
    quadratic_average: Float[Array, "*seeds d d"]
    base_key: Key[Array, "*seeds"]
    step: Int[Array, "*seeds"]
    input_constants: Float[Array, "*seeds row column"]


class Data(NamedTuple):
    """Holds the constant inputs of a step: encoder inputs, buffer, and each state's share of the
    starts of pairs.
    """

    inputs: Float[Array, "states inputs"]
    episodes: Episodes
    visits: Float[Array, " states"]


def schedule(config: Train) -> optax.Schedule:
    if config.lr_schedule == "constant":
        return optax.constant_schedule(config.learning_rate)
    return optax.cosine_decay_schedule(config.learning_rate, config.steps, alpha=config.lr_final)


def init_state(config: AlloConfig, dataset: AnyDataset, seed: int) -> State:
    constants = input_constants(config, dataset, seed)
    return _init_learners(
        config,
        jax.random.key(seed),
        jnp.asarray(constants),
        jnp.asarray(dataset_inputs(config, dataset, constants)),
    )


@partial(jax.jit, static_argnums=0)
def _init_learners(
    config: AlloConfig,
    key: Array,
    constants: Array,
    inputs: Array,
) -> State:
    d = config.network.d
    dual_mask = jnp.tril(jnp.ones((d, d))) if config.train.dual_init_mask == "lower" else jnp.eye(d)

    def init(index: Array) -> State:
        base_key = jax.random.fold_in(key, index)
        params = network.init(config.network, jax.random.fold_in(base_key, INIT), inputs)
        return State(
            params=params,
            optimizer=optax.adam(schedule(config.train)).init(params),
            duals=config.train.dual_init * dual_mask,
            barrier=jnp.float32(config.train.b_init),
            quadratic_average=jnp.zeros((d, d)),
            base_key=base_key,
            step=jnp.int32(0),
            input_constants=constants,
        )

    return jax.vmap(init)(jnp.arange(config.seeds))


def inputs_for(
    config: AlloConfig, state: State, dataset: AnyDataset
) -> Float[Array, "states inputs"]:
    return jnp.asarray(dataset_inputs(config, dataset, np.asarray(state.input_constants[0])))


@partial(jax.jit, static_argnums=0)
def _tables(config: AlloConfig, params: network.Params, inputs: Array) -> Array:
    apply = partial(network.apply, config.network)
    return over_seeds(apply, config.train.seed_parallelism)(params, inputs)


def tables(
    config: AlloConfig,
    state: State,
    dataset: AnyDataset,
) -> Float[np.ndarray, "seeds states d"]:
    """Returns the learned features of every state, for each learner."""
    program = over_devices(partial(_tables, config), config.seeds)
    return np.asarray(program(state.params, inputs_for(config, state, dataset)))


def make_data(config: AlloConfig, state: State, dataset: AnyDataset) -> Data:
    inputs = inputs_for(config, state, dataset)
    starts = np.asarray(dataset.train.state)[np.asarray(dataset.train.horizon) > 0]
    visits = np.bincount(starts, minlength=len(inputs)) / len(starts)
    episodes = jax.tree.map(jnp.asarray, dataset.train)
    return Data(inputs, episodes, jnp.asarray(visits, jnp.float32))
