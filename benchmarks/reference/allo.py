"""replay rows -> weights, the slow way: two samples, three encoder calls, a step from Python.

Written from the descriptions of the original program, for its settings: two constraint batches, a
constant learning rate, the barrier's |Q|, unlimited duals. It shares only the encoder and the
initial state with the project, so that both do the same work. Each part also has the proposal's
variant.

Faster than the original, so that the comparison does not depend on it: the inputs of a batch are
gathered by NumPy, not by indexing JAX arrays.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from benchmarks.reference.allo_terms import Errors, einsum_errors
from benchmarks.reference.replay_loop import RowBuffer, sample_searching
from quatrain.models.allo import network, train
from quatrain.models.allo.config import AlloConfig

Inputs = tuple[Any, Any, Any]
"""Inputs of the states, of their later states, and of the independent states."""
Metrics = dict[str, Array]
Encode = Callable[[network.Params, Inputs], tuple[Array, Array, Array]]
Sample = Callable[[np.random.Generator, RowBuffer, int, float], tuple[np.ndarray, np.ndarray]]
Step = Callable[["State", Inputs], tuple["State", Metrics]]
Gather = Callable[[Any, Inputs], Inputs]
Fetch = Callable[[Metrics], dict[str, float]]


class State(NamedTuple):
    """Holds everything that changes while learning."""

    params: network.Params
    optimizer: Any
    duals: Array
    barrier: Array


def start(config: AlloConfig, state: train.State) -> State:
    """Returns the first of the project's learners, with a new optimiser."""
    params = jax.tree.map(lambda leaf: leaf[0], state.params)
    return State(
        params,
        optax.adam(config.train.learning_rate).init(params),
        state.duals[0],
        state.barrier[0],
    )


# The encoder.


def three_calls(config: AlloConfig) -> Encode:
    """Returns an encoder that is applied to each batch separately."""

    def encode(params: network.Params, inputs: Inputs) -> tuple[Array, Array, Array]:
        phi = network.apply(config.network, params, inputs[0])
        next_phi = network.apply(config.network, params, inputs[1])
        phi_2 = network.apply(config.network, params, inputs[2])
        return phi, next_phi, phi_2

    return encode


def one_call(config: AlloConfig) -> Encode:
    """Returns an encoder that is applied once to all batches: the proposal's way."""

    def encode(params: network.Params, inputs: Inputs) -> tuple[Array, Array, Array]:
        features = network.apply(config.network, params, jnp.concatenate(inputs))
        size = len(inputs[0])
        return features[:size], features[size : 2 * size], features[2 * size :]

    return encode


# A step.


def loss(
    params: network.Params,
    state: State,
    inputs: Inputs,
    config: AlloConfig,
    encode: Encode,
    errors: Errors = einsum_errors,
) -> tuple[Array, Metrics]:
    """Computes L, and the values for the dual step and the log."""
    phi, next_phi, phi_2 = encode(params, inputs)
    graph = config.train.graph_coef * ((phi - next_phi) ** 2).mean(0).sum()
    error_1, error_2 = errors(phi, phi_2)
    dual = (state.duals * error_1).sum()
    quadratic = (2 * error_1 * jax.lax.stop_gradient(error_2)).sum()
    value = graph + dual + state.barrier * quadratic
    return value, {"graph": graph, "dual": dual, "quadratic": quadratic, "error": error_1}


def step(
    state: State, inputs: Inputs, config: AlloConfig, encode: Encode, errors: Errors = einsum_errors
) -> tuple[State, Metrics]:
    """Returns the state after a gradient step and a dual step, and eight scalars for the log."""
    gradient_of = jax.value_and_grad(loss, has_aux=True)
    (value, parts), gradients = gradient_of(state.params, state, inputs, config, encode, errors)
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


# What surrounds a step in the loop.


def three_gathers(table: Any, states: Inputs) -> Inputs:
    """Gathers the inputs of each batch separately; NumPy and JAX arrays."""
    return table[states[0]], table[states[1]], table[states[2]]


def one_gather(table: Any, states: Inputs) -> Inputs:
    """Gathers the inputs of all batches at once, then splits them: the proposal's way."""
    together = table[table.__array_namespace__().concatenate(states)]
    size = len(states[0])
    return together[:size], together[size : 2 * size], together[2 * size :]


def one_by_one(metrics: Metrics) -> dict[str, float]:
    """Fetches each number separately."""
    return {name: float(value.item()) for name, value in metrics.items()}


def all_together(metrics: Metrics) -> dict[str, float]:
    """Fetches all numbers in one transfer: the proposal's way."""
    return {name: float(value) for name, value in jax.device_get(metrics).items()}


class Way(NamedTuple):
    """Holds the parts of the loop; `step` is compiled, the rest runs in Python."""

    step: Step
    sample: Sample = sample_searching
    gather: Gather = three_gathers
    fetch: Fetch = one_by_one


def learn(
    rng: np.random.Generator,
    state: State,
    buffer: RowBuffer,
    table: np.ndarray,
    config: AlloConfig,
    way: Way,
    steps: Iterable[int],
) -> tuple[State, list[dict[str, float]]]:
    """Trains: samples on the host, steps on the device, logs every `record_every` steps."""
    logged = []
    size, discount = config.train.batch_size, config.train.discounts[0]
    for number in steps:
        states, later_states = way.sample(rng, buffer, size, discount)
        other_states, _ = way.sample(rng, buffer, size, discount)
        state, metrics = way.step(state, way.gather(table, (states, later_states, other_states)))
        if number % config.train.record_every == 0:
            logged.append(way.fetch(metrics))
    return state, logged


def fill(buffer: RowBuffer, states: Array, next_states: Array, ended: Array) -> None:
    """Copies walks on the device into rows of the buffer, scalar by scalar; arrays are (env, step).

    Iterates over JAX arrays: a lookup by index takes about ten times as long.
    """
    for walk, next_walk, flags in zip(states, next_states, ended, strict=True):
        obs, terminals = [int(walk[0])], [0]
        for next_state, flag in zip(next_walk, flags, strict=True):
            obs.append(int(next_state))
            terminals.append(int(flag))
        buffer.add_episode(np.array(obs), np.array(terminals))
