"""replay rows -> weights, the slow way: two calls of the buffer, three of the encoder, a step called from Python.

Written from the descriptions of the original program, for its own settings: two constraint batches, a constant
learning rate, the barrier's |Q|, unlimited duals. It shares with the project only the encoder and the start, so
that both do the same work. The seed's way differs in the buffer's `sample` and in `one_call`.

What was made faster than the original, so that the comparison is not won on it: the inputs of a batch are gathered
by NumPy, not by indexing JAX arrays.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from benchmarks.reference.replay_loop import RowBuffer
from quatrain.models.allo import network
from quatrain.models.allo.config import AlloConfig
from quatrain.models.allo.train import Learner

Inputs = tuple[Any, Any, Any]
"""Of the states, their later states and the independent states."""
Encode = Callable[[network.Params, Inputs], tuple[Array, Array, Array]]
Sample = Callable[[np.random.Generator, RowBuffer, int, float], tuple[np.ndarray, np.ndarray]]
Step = Callable[["State", Inputs], tuple["State", dict[str, Array]]]


class State(NamedTuple):
    """What changes while learning."""

    params: network.Params
    optimizer: Any
    duals: Array
    barrier: Array


def start(config: AlloConfig, learner: Learner) -> State:
    """Where the first of the project's learners stands, with a fresh optimiser."""
    params = jax.tree.map(lambda leaf: leaf[0], learner.params)
    return State(params, optax.adam(config.train.learning_rate).init(params), learner.duals[0], learner.barrier[0])


def three_calls(config: AlloConfig) -> Encode:
    """One application of the encoder for each batch."""

    def encode(params: network.Params, inputs: Inputs) -> tuple[Array, Array, Array]:
        phi = network.apply(config.network, params, inputs[0])
        next_phi = network.apply(config.network, params, inputs[1])
        phi_2 = network.apply(config.network, params, inputs[2])
        return phi, next_phi, phi_2

    return encode


def one_call(config: AlloConfig) -> Encode:
    """The batches one after the other in one application (seed 000, item 2)."""

    def encode(params: network.Params, inputs: Inputs) -> tuple[Array, Array, Array]:
        features = network.apply(config.network, params, jnp.concatenate(inputs))
        size = len(inputs[0])
        return features[:size], features[size : 2 * size], features[2 * size :]

    return encode


def one_hot_of_table(config: AlloConfig, table: Array) -> Encode:
    """All states encoded once and picked by a product with one-hot rows; its inputs are states."""

    def encode(params: network.Params, states: Inputs) -> tuple[Array, Array, Array]:
        features = network.apply(config.network, params, table)
        chosen = jax.nn.one_hot(jnp.concatenate(states), len(table)) @ features
        phi, next_phi, phi_2 = jnp.split(chosen, 3)
        return phi, next_phi, phi_2

    return encode


def loss(
    params: network.Params, state: State, inputs: Inputs, config: AlloConfig, encode: Encode
) -> tuple[Array, dict[str, Array]]:
    """L, and what the dual step and the log need."""
    phi, next_phi, phi_2 = encode(params, inputs)
    n, d = phi.shape
    graph = config.train.graph_coef * ((phi - next_phi) ** 2).mean(0).sum()
    inner_product_1 = jnp.einsum("ij,ik->jk", phi, jax.lax.stop_gradient(phi)) / n
    inner_product_2 = jnp.einsum("ij,ik->jk", phi_2, jax.lax.stop_gradient(phi_2)) / n
    error_1 = jnp.tril(inner_product_1 - jnp.eye(d))
    error_2 = jnp.tril(inner_product_2 - jnp.eye(d))
    dual = (state.duals * error_1).sum()
    quadratic = (2 * error_1 * jax.lax.stop_gradient(error_2)).sum()
    value = graph + dual + state.barrier * quadratic
    return value, {"graph": graph, "dual": dual, "quadratic": quadratic, "error": error_1}


def step(state: State, inputs: Inputs, config: AlloConfig, encode: Encode) -> tuple[State, dict[str, Array]]:
    """One gradient step on the encoder, one ascent of duals and barrier, and eight scalars for the log."""
    (value, parts), gradients = jax.value_and_grad(loss, has_aux=True)(state.params, state, inputs, config, encode)
    updates, optimizer = optax.adam(config.train.learning_rate).update(gradients, state.optimizer)
    error = parts["error"]
    duals = jnp.tril(state.duals + config.train.lr_dual * error)
    barrier = state.barrier + config.train.lr_barrier * jnp.abs(parts["quadratic"])
    barrier = jnp.clip(barrier, config.train.b_min, config.train.b_max)
    metrics = {
        "loss": value,
        "graph": parts["graph"],
        "dual": parts["dual"],
        "barrier_term": state.barrier * parts["quadratic"],
        "grad_norm": optax.tree.norm(gradients),
        "total_error": jnp.abs(error).sum(),
        "norm_error": jnp.abs(jnp.diag(error)).sum(),
        "manifold_distance": (error**2).sum(),
    }
    return State(optax.apply_updates(state.params, updates), optimizer, duals, barrier), metrics


def learn(
    rng: np.random.Generator,
    state: State,
    buffer: RowBuffer,
    table: np.ndarray,
    config: AlloConfig,
    sample: Sample,
    jitted_step: Step,
    steps: Iterable[int],
) -> tuple[State, list[dict[str, float]]]:
    """The training loop: sample on the host, step on the device, a log every `record_every` steps."""
    logged = []
    size, discount = config.train.batch_size, config.train.discounts[0]
    for number in steps:
        states, later_states = sample(rng, buffer, size, discount)
        other_states, _ = sample(rng, buffer, size, discount)
        state, metrics = jitted_step(state, (table[states], table[later_states], table[other_states]))
        if number % config.train.record_every == 0:
            logged.append({name: float(value.item()) for name, value in metrics.items()})
    return state, logged


def fill(buffer: RowBuffer, states: Array, next_states: Array, ended: Array) -> None:
    """Walks on the device -> rows of the buffer, a scalar at a time; arrays are (walkers, steps).

    Goes through JAX arrays as an iterator: a lookup by index takes about ten times as long.
    """
    for walk, next_walk, flags in zip(states, next_states, ended, strict=True):
        obs, terminals = [int(walk[0])], [0]
        for next_state, flag in zip(next_walk, flags, strict=True):
            obs.append(int(next_state))
            terminals.append(int(flag))
        buffer.add_episode(np.array(obs), np.array(terminals))
