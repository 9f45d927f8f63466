"""replay rows -> weights, the slow way: two samples, three encoder calls, a step from Python

Written from the descriptions of the original program: two constraint batches, the barrier's |Q|,
unlimited duals. The proposal's way differs in the samples and in one call of the encoder; its
smaller items changed no time of a step. Only the encoder and the initial state are the project's.
Faster than the original: NumPy gathers the inputs, JAX arrays are not indexed.
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

from benchmarks.reference.replay_loop import RowBuffer, sample_searching, sample_with_terminal_table
from quatrain.models.allo import network, train
from quatrain.models.allo.config import AlloConfig, Network

Inputs = tuple[Any, Any, Any]
"""Inputs of the states, of their later states, and of the independent states."""
Metrics = dict[str, Array]
Encode = Callable[[Network, network.Params, Inputs], Any]


class State(NamedTuple):
    """Holds everything that changes while learning."""

    params: network.Params
    optimizer: Any
    duals: Array
    barrier: Array


def start(config: AlloConfig, state: train.State) -> State:
    """Returns the first of the project's learners, with a new optimiser."""
    params = jax.tree.map(lambda leaf: leaf[0], state.params)
    optimizer = optax.adam(config.train.learning_rate).init(params)
    return State(params, optimizer, state.duals[0], state.barrier[0])


def three_calls(config: Network, params: network.Params, inputs: Inputs) -> list[Array]:
    """Encodes each batch separately."""
    return [network.apply(config, params, batch) for batch in inputs]


def one_call(config: Network, params: network.Params, inputs: Inputs) -> list[Array]:
    """Encodes all batches in one call: the proposal's way."""
    return jnp.split(network.apply(config, params, jnp.concatenate(inputs)), 3)


def error(phi: Array) -> Array:
    """Computes how far features are from orthonormal."""
    product = jnp.einsum("ij,ik->jk", phi, stop_gradient(phi)) / len(phi)
    return jnp.tril(product - jnp.eye(phi.shape[1]))


@partial(jax.jit, static_argnums=(2, 3))
def gradient(state: State, inputs: Inputs, config: AlloConfig, encode: Encode) -> Any:
    """Returns L, the values for the dual step and the log, and the gradient of L."""

    def loss(params: network.Params) -> tuple[Array, Metrics]:
        phi, next_phi, phi_2 = encode(config.network, params, inputs)
        graph = config.train.graph_coef * ((phi - next_phi) ** 2).mean(0).sum()
        error_1, error_2 = error(phi), error(phi_2)
        dual = (state.duals * error_1).sum()
        quadratic = (2 * error_1 * stop_gradient(error_2)).sum()
        value = graph + dual + state.barrier * quadratic
        return value, {"graph": graph, "dual": dual, "quadratic": quadratic, "error": error_1}

    return jax.value_and_grad(loss, has_aux=True)(state.params)


@partial(jax.jit, static_argnums=(2, 3))
def step(state: State, inputs: Inputs, config: AlloConfig, encode: Encode) -> tuple[State, Metrics]:
    """Returns the state after a gradient step and a dual step, and eight scalars for the log."""
    (value, parts), gradients = gradient(state, inputs, config, encode)
    keys, error, quadratic = config.train, parts["error"], parts["quadratic"]
    updates, optimizer = optax.adam(keys.learning_rate).update(gradients, state.optimizer)
    params = optax.apply_updates(state.params, updates)
    duals = jnp.tril(state.duals + keys.lr_dual * error)
    barrier = jnp.minimum(state.barrier + keys.lr_barrier * jnp.abs(quadratic), keys.b_max)
    metrics = {
        "loss": value,
        "graph": parts["graph"],
        "dual": parts["dual"],
        "barrier_term": state.barrier * quadratic,
        "grad_norm": optax.tree.norm(gradients),
        "total_error": jnp.abs(error).sum(),
        "norm_error": jnp.abs(jnp.diag(error)).sum(),
        "manifold_distance": (error**2).sum(),
    }
    return State(params, optimizer, duals, barrier), metrics


class Way(NamedTuple):
    """Holds how a step is made; as in the original, if not named."""

    encode: Encode = three_calls
    sample: Callable[..., tuple[np.ndarray, np.ndarray]] = sample_searching


ORIGINAL = Way()
PROPOSED = Way(one_call, sample_with_terminal_table)


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
        inputs = table[states], table[later_states], table[other_states]
        state, metrics = step(state, inputs, config, way.encode)
        if number % config.train.record_every == 0:
            logged.append({name: float(value.item()) for name, value in metrics.items()})
    return state, logged
