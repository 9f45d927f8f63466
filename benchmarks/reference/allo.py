"""replay rows -> weights, the slow way: two samples, three encoder calls, a step from Python

Written from the descriptions of the original program: two constraint batches, the barrier's |Q|,
unlimited duals. Each part also has the proposal's variant. Only the encoder and the initial state
are the project's. Faster than the original: NumPy gathers the inputs, JAX arrays are not indexed.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.lax import stop_gradient

from benchmarks.reference.replay_loop import (
    RowBuffer,
    sample_searching,
    sample_with_terminal_table,
)
from quatrain.models.allo import network, train
from quatrain.models.allo.config import Network, Train

Inputs = tuple[Any, Any, Any]
"""Inputs of the states, of their later states, and of the independent states."""
Metrics = dict[str, Array]
Encode = Callable[[Network, network.Params, Inputs], Any]
Errors = Callable[[Array, Array], tuple[Array, Array]]
"""Features of two batches -> E1 and E2: how far they are from orthonormal."""


class Settings(NamedTuple):
    """Holds what a step depends on, the same on every map; hashable."""

    network: Network
    train: Train


class State(NamedTuple):
    """Holds everything that changes while learning."""

    params: network.Params
    optimizer: Any
    duals: Array
    barrier: Array


def start(settings: Settings, state: train.State) -> State:
    """Returns the first of the project's learners, with a new optimiser."""
    params = jax.tree.map(lambda leaf: leaf[0], state.params)
    optimizer = optax.adam(settings.train.learning_rate).init(params)
    return State(params, optimizer, state.duals[0], state.barrier[0])


# The encoder.


def three_calls(config: Network, params: network.Params, inputs: Inputs) -> list[Array]:
    """Encodes each batch separately."""
    return [network.apply(config, params, batch) for batch in inputs]


def one_call(config: Network, params: network.Params, inputs: Inputs) -> list[Array]:
    """Encodes all batches in one call: the proposal's way."""
    return jnp.split(network.apply(config, params, jnp.concatenate(inputs)), 3)


# How far features are from orthonormal.


def einsum_errors(phi: Array, phi_2: Array) -> tuple[Array, Array]:
    """Computes E1 and E2 with einsum, and an identity matrix for each, as the original."""

    def error(phi: Array) -> Array:
        product = jnp.einsum("ij,ik->jk", phi, stop_gradient(phi)) / len(phi)
        return jnp.tril(product - jnp.eye(phi.shape[1]))

    return error(phi), error(phi_2)


def product_errors(phi: Array, phi_2: Array) -> tuple[Array, Array]:
    """Computes them with `@`, and one identity matrix: the proposal's way."""
    eye = jnp.eye(phi.shape[1])
    first, second = (each.T @ stop_gradient(each) / len(each) for each in (phi, phi_2))
    return jnp.tril(first - eye), jnp.tril(second - eye)


# A step.


def loss(
    params: network.Params,
    state: State,
    inputs: Inputs,
    settings: Settings,
    encode: Encode,
    errors: Errors,
) -> tuple[Array, Metrics]:
    """Computes L, and the values for the dual step and the log."""
    phi, next_phi, phi_2 = encode(settings.network, params, inputs)
    graph = settings.train.graph_coef * ((phi - next_phi) ** 2).mean(0).sum()
    error_1, error_2 = errors(phi, phi_2)
    dual = (state.duals * error_1).sum()
    quadratic = (2 * error_1 * stop_gradient(error_2)).sum()
    value = graph + dual + state.barrier * quadratic
    return value, {"graph": graph, "dual": dual, "quadratic": quadratic, "error": error_1}


@partial(jax.jit, static_argnums=(2, 3, 4))
def gradient(
    state: State, inputs: Inputs, settings: Settings, encode: Encode, errors: Errors
) -> tuple[Array, network.Params]:
    """Returns L and its gradient."""
    gradient_of = jax.value_and_grad(loss, has_aux=True)
    (value, _), gradients = gradient_of(state.params, state, inputs, settings, encode, errors)
    return value, gradients


@partial(jax.jit, static_argnums=(2, 3, 4))
def step(
    state: State, inputs: Inputs, settings: Settings, encode: Encode, errors: Errors
) -> tuple[State, Metrics]:
    """Returns the state after a gradient step and a dual step, and eight scalars for the log."""
    config = settings.train
    gradient_of = jax.value_and_grad(loss, has_aux=True)
    (value, parts), gradients = gradient_of(state.params, state, inputs, settings, encode, errors)
    updates, optimizer = optax.adam(config.learning_rate).update(gradients, state.optimizer)
    error = parts["error"]
    duals = jnp.tril(state.duals + config.lr_dual * error)
    barrier = state.barrier + config.lr_barrier * jnp.abs(parts["quadratic"])
    barrier = jnp.clip(barrier, config.b_min, config.b_max)
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
    """Gathers the inputs of each batch separately."""
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
    """Holds the parts of a step and of the loop around it; the original's, if not named."""

    encode: Encode = three_calls
    errors: Errors = einsum_errors
    sample: Callable[..., tuple[np.ndarray, np.ndarray]] = sample_searching
    gather: Callable[[Any, Inputs], Inputs] = three_gathers
    fetch: Callable[[Metrics], dict[str, float]] = one_by_one


ORIGINAL = Way()
PROPOSED = Way(one_call, product_errors, sample_with_terminal_table, one_gather, all_together)


def learn(
    rng: np.random.Generator,
    state: State,
    buffer: RowBuffer,
    table: np.ndarray,
    settings: Settings,
    way: Way,
    steps: Iterable[int],
) -> tuple[State, list[dict[str, float]]]:
    """Trains: samples on the host, steps on the device, logs every `record_every` steps."""
    logged = []
    size, discount = settings.train.batch_size, settings.train.discounts[0]
    for number in steps:
        states, later_states = way.sample(rng, buffer, size, discount)
        other_states, _ = way.sample(rng, buffer, size, discount)
        inputs = way.gather(table, (states, later_states, other_states))
        state, metrics = step(state, inputs, settings, way.encode, way.errors)
        if number % settings.train.record_every == 0:
            logged.append(way.fetch(metrics))
    return state, logged
