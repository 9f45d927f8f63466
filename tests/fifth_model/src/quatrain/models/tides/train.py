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
to_arrays = packing.to_arrays


class State(NamedTuple):
    """Holds everything that changes while learning."""

    params: network.Params
    key: Key[Array, ""]
    step: Int[Array, ""]


def objective(
    params: network.Params,
    config: TidesConfig,
    time: Float[Array, "seeds batch"],
    height: Float[Array, "seeds batch"],
) -> tuple[Float[Array, ""], dict[str, Float[Array, " seeds"]]]:
    """Computes the sum of all learners' losses, and the loss and its terms of each."""
    features = network.features(config.network, time)
    terms = losses.compute(jnp.einsum("sbf,sf->sb", features, params["weights"]), height)
    return terms["error"].sum(), {"loss": terms["error"], **terms}


@partial(jax.jit, static_argnums=(0, 1))
def run_steps(
    config: TidesConfig, steps: int, readings: Float[Array, "2 readings"], state: State
) -> tuple[State, dict[str, Float[Array, "steps seeds"]]]:
    """Takes gradient steps of all learners, each on random batches of its own."""

    def run_step(state: State, _: None) -> tuple[State, dict[str, Array]]:
        key = jax.random.fold_in(state.key, state.step)
        shape = (config.seeds, config.train.batch_size)
        time, height = readings[:, jax.random.randint(key, shape, 0, readings.shape[1])]
        gradient_of = jax.grad(objective, has_aux=True)
        gradient, metrics = gradient_of(state.params, config, time, height)
        step = config.train.learning_rate * gradient["weights"]
        params = {"weights": state.params["weights"] - step}
        return State(params, state.key, state.step + 1), metrics

    return jax.lax.scan(run_step, state, length=steps)


def update(config: TidesConfig, dataset: Dataset, state: State) -> tuple[State, dict[str, Array]]:
    """Takes one gradient step of all learners; `train` takes many per call."""
    return run_steps(config, 1, jnp.asarray(dataset.train, jnp.float32), state)


def init_state(config: TidesConfig, dataset: Dataset, seed: int) -> State:
    """Returns `seeds` learners with small random weights."""
    init_key, key = jax.random.split(jax.random.key(seed))
    return State(network.init(config, init_key), key, jnp.int32(0))


def train(
    config: TidesConfig, dataset: Dataset, seed: int, state: State | None = None
) -> Iterator[Progress]:
    """Trains to the end, from `state` if given; yields once per `record_every` steps.

    Raises:
        DataError: the dataset was collected under another config.
        TrainingDiverged: a term of the loss is not finite.
    """
    check(config, dataset)
    readings = jnp.asarray(dataset.train, jnp.float32)
    state = init_state(config, dataset, seed) if state is None else state
    while int(state.step) < config.train.steps:
        state, values = run_steps(config, config.train.record_every, readings, state)
        step, metrics = int(state.step), {name: np.asarray(values[name]) for name in values}
        if not np.isfinite(metrics["loss"]).all():
            remedy = "lower tides.train.learning_rate"
            raise TrainingDiverged(f"tides: loss is not finite at step {step:,}; {remedy}")
        yield Progress(step, state, by_seed(metrics))


def from_arrays(config: TidesConfig, dataset: Dataset, arrays: dict[str, np.ndarray]) -> State:
    """Returns the state that `to_arrays` wrote; raises ValueError for that of another config."""
    expected = jax.eval_shape(lambda: init_state(config, dataset, 0))
    return packing.from_arrays(expected, arrays)
