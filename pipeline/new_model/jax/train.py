"""samples -> weights: Adam on random batches, many steps in one compiled program."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jaxtyping import Float, Int, Key

from quatrain.frameworks.jax import from_template
from quatrain.frameworks.jax import to_arrays as to_arrays
from quatrain.models.sketch import losses, network
from quatrain.models.sketch.collect import Dataset, Samples, check
from quatrain.models.sketch.config import SketchConfig
from quatrain.progress import Progress, TrainingDiverged, by_seed

WEIGHTS = ("params/",)


class State(NamedTuple):
    """Holds everything that changes while learning."""

    params: dict[str, Array]
    optimizer: optax.OptState
    key: Key[Array, ""]
    step: Int[Array, ""]


# name of a metric -> its value at each step, of each learner.
Recorded = dict[str, Float[Array, "step seed"]]


def headline(config: SketchConfig) -> tuple[str, str]:
    return "error", "grad_norm"


def init_state(config: SketchConfig, dataset: Dataset, seed: int) -> State:
    """Returns `seeds` learners before their first step."""
    params = {name: jnp.asarray(array) for name, array in network.init(config, seed).items()}
    return State(params, _optimizer(config).init(params), jax.random.key(seed), jnp.int32(0))


def update(config: SketchConfig, dataset: Dataset, state: State) -> tuple[State, Recorded]:
    """Takes one gradient step of all learners; `train` takes many per call."""
    return _run_steps(config, 1, dataset.train, state)


def train(
    config: SketchConfig, dataset: Dataset, seed: int, state: State | None = None
) -> Iterator[Progress]:
    """Trains to the end, from `state` if given; yields once per `record_every` steps.

    Raises:
        DatasetMismatch: the dataset was collected under another config.
        TrainingDiverged: a term of the loss is not finite.
    """
    check(config, dataset)
    state = init_state(config, dataset, seed) if state is None else state
    while (step := int(state.step)) < config.train.steps:
        state, recorded = _run_steps(config, config.train.record_every, dataset.train, state)
        metrics = {name: np.asarray(values) for name, values in recorded.items()}
        if not np.isfinite(metrics["error"]).all():
            raise TrainingDiverged(
                f"sketch: error not finite after step {step:,}",
                remedy="lower sketch.train.learning_rate",
            )
        yield Progress(int(state.step), state, by_seed(metrics))


def from_arrays(config: SketchConfig, dataset: Dataset, arrays: dict[str, np.ndarray]) -> State:
    """Returns the state that `to_arrays` wrote.

    Raises:
        ValueError: it is that of another config.
    """
    return from_template(jax.eval_shape(lambda: init_state(config, dataset, 0)), arrays)


def _optimizer(config: SketchConfig) -> optax.GradientTransformation:
    return optax.adam(config.train.learning_rate)


@partial(jax.jit, static_argnums=(0, 1))
def _run_steps(
    config: SketchConfig, steps: int, samples: Samples, state: State
) -> tuple[State, Recorded]:
    """Takes gradient steps of all learners, each on random batches."""
    inputs, targets = (jnp.asarray(array) for array in samples)

    def objective(params: dict[str, Array], batch: Array) -> tuple[Array, dict[str, Array]]:
        """Computes the sum of all learners' losses, whose gradients do not meet, and the terms."""
        terms = losses.compute(network.apply(params, inputs[batch]), targets[batch])
        return sum(term.sum() for term in terms.values()), terms

    def run_step(state: State, _: None) -> tuple[State, dict[str, Array]]:
        key = jax.random.fold_in(state.key, state.step)
        shape = (config.seeds, config.train.batch_size)
        batch = jax.random.randint(key, shape, 0, len(targets))
        gradients, terms = jax.grad(objective, has_aux=True)(state.params, batch)
        changes, optimizer = _optimizer(config).update(gradients, state.optimizer)
        params = optax.apply_updates(state.params, changes)
        metrics = terms | {"grad_norm": jax.vmap(optax.tree.norm)(gradients)}
        return State(params, optimizer, state.key, state.step + 1), metrics

    return jax.lax.scan(run_step, state, length=steps)
