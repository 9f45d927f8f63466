"""replay -> weights: samples pairs, takes gradient steps, compares with the truth now and then."""

from collections.abc import Iterator
from functools import partial

import jax
import numpy as np

from quatrain.frameworks.jax import packing
from quatrain.frameworks.jax.seeds import WHOLE, lay_out, over_devices
from quatrain.models.allo.collect import AnyDataset, Dataset, check
from quatrain.models.allo.config import AlloConfig
from quatrain.models.allo.learning import records
from quatrain.models.allo.learning.spectra.truth import true_spectrum
from quatrain.models.allo.learning.state import State, init_state, make_data
from quatrain.models.allo.learning.step import run_chunk
from quatrain.progress import Progress, by_seed

WEIGHTS = ("params/", "input_constants")


def headline(config: AlloConfig) -> tuple[str, str]:
    return "cosine_mean", "total_error"


def update(
    config: AlloConfig,
    dataset: AnyDataset,
    state: State,
) -> tuple[State, dict[str, np.ndarray]]:
    """Returns the state after one gradient step of all learners, and what was measured in it.

    It is the step that `train` repeats, equal but for rounding: XLA fuses a loop of one step
    differently. Each metric is (seeds,).
    """
    run = over_devices(partial(run_chunk, config, 1), config.seeds)
    next_state, recorded = run(state, make_data(config, state, dataset))
    return next_state, {name: values[:, 0] for name, values in jax.device_get(recorded).items()}


def train(
    config: AlloConfig,
    dataset: Dataset,
    seed: int,
    state: State | None = None,
) -> Iterator[Progress]:
    """Trains until `steps`, from `state` if given; yields once per `record_every` steps.

    Metrics are means over the steps of a yield, (1,), with several learners also (1, seeds) as
    `name/seed`; `duals_diag`, `eigenvalue`, `eigenvalue_dual` and `cosine` have one more axis d.

    Raises:
        DatasetMismatch: the dataset was collected on another map.
        TrainingDiverged: a term is not finite; no step since the last yield is yielded.
    """
    check(config, dataset)
    yield from train_on(config, dataset, seed, state)


def train_on(
    config: AlloConfig, dataset: AnyDataset, seed: int, state: State | None
) -> Iterator[Progress]:
    """Trains like `train`, on walks in any environment, which are not checked."""
    truth = true_spectrum(config, dataset)
    state = init_state(config, dataset, seed) if state is None else state
    data = lay_out(make_data(config, state, dataset), config.seeds, WHOLE)
    run = over_devices(partial(run_chunk, config, config.train.record_every), config.seeds)
    errors: list[float] = []
    step = int(state.step[0])
    while step < config.train.steps:
        barrier = float(state.barrier.max())
        state, stacked = run(state, data)
        recorded = jax.device_get(stacked)
        records.check_finite(recorded, step, barrier)
        step += config.train.record_every
        errors.append(float(recorded["total_error"].mean()))
        yield Progress(
            step,
            state,
            by_seed(
                records.metrics(config, state, recorded)
                | records.comparison(config, state, dataset, truth)
            ),
        )
    records.warn_if_errors_grew(errors)


to_arrays = packing.to_arrays


def from_arrays(config: AlloConfig, dataset: AnyDataset, arrays: dict[str, np.ndarray]) -> State:
    """Returns the state that these arrays hold.

    Raises:
        ValueError: names, shapes or dtypes are not those of a state of this config.
    """
    return packing.from_arrays(init_state(config, dataset, seed=0), arrays)
