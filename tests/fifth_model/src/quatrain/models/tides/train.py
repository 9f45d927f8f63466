"""readings -> weights: gradient descent on random batches, `record_every` steps in one compiled program."""

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
    """Everything that changes while learning."""

    params: network.Params
    base_key: Key[Array, "*seeds"]
    step: Int[Array, "*seeds"]


class Batch(NamedTuple):
    """Readings on the device: all of them, or those of a step."""

    time: Float[Array, " readings"]
    height: Float[Array, " readings"]


def objective(
    params: network.Params, config: TidesConfig, batch: Batch
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """L and its terms."""
    predicted = network.apply(config.network, params, batch.time)
    found = losses.terms(predicted, batch.height, params["weights"])
    weights = {"error": 1.0, "penalty": config.train.ridge}
    assert found.keys() == weights.keys()
    return sum((weights[name] * found[name] for name in found), jnp.zeros(())), found


def update(config: TidesConfig, data: Batch, state: State) -> tuple[State, dict[str, Array]]:
    """One step down the gradient of a batch."""
    key = jax.random.fold_in(state.base_key, state.step)
    drawn = jax.random.randint(key, (config.train.batch_size,), 0, len(data.time))
    batch = Batch(data.time[drawn], data.height[drawn])
    (loss, found), gradient = jax.value_and_grad(objective, has_aux=True)(
        state.params, config, batch
    )
    params = jax.tree.map(
        lambda one, slope: one - config.train.learning_rate * slope, state.params, gradient
    )
    return state._replace(params=params, step=state.step + 1), {"loss": loss, **found}


@partial(jax.jit, static_argnums=0)
def run_chunk(config: TidesConfig, learners: State, data: Batch) -> tuple[State, dict[str, Array]]:
    """`record_every` updates of all learners; recorded values are (record_every, seeds)."""
    act = jax.vmap(partial(update, config, data))
    return jax.lax.scan(lambda carry, _: act(carry), learners, length=config.train.record_every)


@partial(jax.jit, static_argnums=0)
def init_state(config: TidesConfig, seed: Array | int) -> State:
    """`seeds` fresh learners; learner i draws all its randomness from fold_in(key(seed), i)."""

    def one(index: Array) -> State:
        base_key = jax.random.fold_in(jax.random.key(seed), index)
        return State(
            network.init(config.network, jax.random.fold_in(base_key, INIT)), base_key, jnp.int32(0)
        )

    return jax.vmap(one)(jnp.arange(config.seeds))


def train(
    config: TidesConfig, dataset: Dataset, seed: int, state: State | None = None
) -> Iterator[Progress]:
    """Learn, or continue with a saved learner.

    Raises:
        TrainingDiverged: a term of the loss is not finite.
        DataError: the dataset is of another config.
    """
    check(config, dataset)
    learners = init_state(config, np.uint32(seed)) if state is None else state
    data = Batch(*(jnp.asarray(column, jnp.float32) for column in dataset.train))
    for step in range(int(learners.step[0]), config.train.steps, config.train.record_every):
        learners, recorded = run_chunk(config, learners, data)
        metrics = {name: np.asarray(values) for name, values in recorded.items()}
        refuse_the_infinite(metrics, step)
        yield Progress(step + config.train.record_every, learners, by_seed(metrics))


def refuse_the_infinite(metrics: dict[str, np.ndarray], step: int) -> None:
    """Raise TrainingDiverged at the first term that is not finite."""
    for name in losses.TERMS:
        broken = ~np.isfinite(metrics[name]).all(axis=1)
        if broken.any():
            at = step + 1 + int(broken.argmax())
            raise TrainingDiverged(
                f"tides: {name} is not finite at step {at:,}; lower tides.train.learning_rate"
            )


to_arrays = packing.to_arrays


def from_arrays(config: TidesConfig, dataset: Dataset, arrays: dict[str, np.ndarray]) -> State:
    """The inverse of `pack`.

    Raises:
        ValueError: the arrays are of another config.
    """
    return packing.from_arrays(jax.eval_shape(lambda: init_state(config, 0)), arrays)
