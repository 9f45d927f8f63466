"""readings -> weights: gradient descent on random batches, many steps in one compiled program."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int, Key

from quatrain.frameworks.jax import packing
from quatrain.models.tides import losses, network
from quatrain.models.tides.collect import Dataset, check
from quatrain.models.tides.config import TidesConfig
from quatrain.progress import Progress, TrainingDiverged, by_seed

HEADLINE = ("error", "loss")
WEIGHTS = ("params/",)
INIT = np.uint32(2**32 - 1)
"""Folded into a learner's base key for its initialisation; steps fold in their own number."""


class State(NamedTuple):
    """Holds everything that changes while learning."""

    params: network.Params
    base_key: Key[Array, "*seeds"]
    step: Int[Array, "*seeds"]


class Batch(NamedTuple):
    """Holds readings on the device: all of them, or those of a step."""

    time: Float[Array, " readings"]
    height: Float[Array, " readings"]


def objective(
    params: network.Params, config: TidesConfig, batch: Batch
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """Computes the loss and its terms."""
    predicted = network.apply(config.network, params, batch.time)
    values = losses.compute(predicted, batch.height, params["weights"])
    weights = {"error": 1.0, "penalty": config.train.ridge}
    assert values.keys() == weights.keys()
    loss = sum((weights[name] * values[name] for name in values), jnp.zeros(()))
    return loss, values


def update_seed(config: TidesConfig, data: Batch, state: State) -> tuple[State, dict[str, Array]]:
    """Takes one gradient step of one learner, on a random batch."""
    key = jax.random.fold_in(state.base_key, state.step)
    index = jax.random.randint(key, (config.train.batch_size,), 0, len(data.time))
    batch = Batch(data.time[index], data.height[index])
    gradient_of = jax.value_and_grad(objective, has_aux=True)
    (loss, values), gradient = gradient_of(state.params, config, batch)
    params = jax.tree.map(
        lambda leaf, slope: leaf - config.train.learning_rate * slope, state.params, gradient
    )
    return state._replace(params=params, step=state.step + 1), {"loss": loss, **values}


@partial(jax.jit, static_argnums=(0, 1))
def run_steps(
    config: TidesConfig, steps: int, data: Batch, state: State
) -> tuple[State, dict[str, Array]]:
    """Takes `steps` gradient steps of all learners; the metrics are (steps, seeds)."""
    update_seeds = jax.vmap(partial(update_seed, config, data))
    return jax.lax.scan(lambda carry, _: update_seeds(carry), state, length=steps)


def on_device(dataset: Dataset) -> Batch:
    """Returns the readings to learn from, in single precision."""
    return Batch(*(jnp.asarray(column, jnp.float32) for column in dataset.train))


def update(config: TidesConfig, dataset: Dataset, state: State) -> tuple[State, dict[str, Array]]:
    """Takes one gradient step of all learners; `train` takes many per call."""
    return run_steps(config, 1, on_device(dataset), state)


def init_state(config: TidesConfig, dataset: Dataset, seed: int) -> State:
    """Returns `seeds` learners; learner i draws all its randomness from fold_in(key(seed), i)."""
    return _init_seeds(config, np.uint32(seed))


@partial(jax.jit, static_argnums=0)
def _init_seeds(config: TidesConfig, seed: Array) -> State:
    def init_seed(index: Array) -> State:
        base_key = jax.random.fold_in(jax.random.key(seed), index)
        params = network.init(config.network, jax.random.fold_in(base_key, INIT))
        return State(params, base_key, jnp.int32(0))

    return jax.vmap(init_seed)(jnp.arange(config.seeds))


def train(
    config: TidesConfig, dataset: Dataset, seed: int, state: State | None = None
) -> Iterator[Progress]:
    """Trains to the end, from `state` if given; yields once per `record_every` steps.

    Raises:
        DataError: the dataset was collected under another config.
        TrainingDiverged: a term of the loss is not finite.
    """
    check(config, dataset)
    data = on_device(dataset)
    if state is None:
        state = init_state(config, dataset, seed)
    record_every = config.train.record_every
    for step in range(int(state.step[0]), config.train.steps, record_every):
        state, values = run_steps(config, record_every, data, state)
        metrics = {name: np.asarray(value) for name, value in values.items()}
        check_finite(metrics, step)
        yield Progress(step + record_every, state, by_seed(metrics))


def check_finite(metrics: dict[str, np.ndarray], step: int) -> None:
    """Raises TrainingDiverged at the first term that is not finite."""
    for name in losses.TERMS:
        broken = ~np.isfinite(metrics[name]).all(axis=1)
        if broken.any():
            where = f"{name} is not finite at step {step + 1 + int(broken.argmax()):,}"
            raise TrainingDiverged(f"tides: {where}; lower tides.train.learning_rate")


to_arrays = packing.to_arrays


def from_arrays(config: TidesConfig, dataset: Dataset, arrays: dict[str, np.ndarray]) -> State:
    """Returns the state that `to_arrays` wrote.

    Raises:
        ValueError: the arrays are of another config.
    """
    expected = jax.eval_shape(lambda: init_state(config, dataset, 0))
    return packing.from_arrays(expected, arrays)
