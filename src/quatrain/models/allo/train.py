"""replay -> weights: samples pairs, takes gradient steps, compares with the truth now and then."""

import warnings
from collections.abc import Iterator
from functools import partial

import jax
import numpy as np

from quatrain.frameworks.jax import packing
from quatrain.frameworks.jax.seeds import WHOLE, lay_out, over_devices
from quatrain.models.allo.collect import Dataset, check
from quatrain.models.allo.config import AlloConfig
from quatrain.models.allo.learning import fit
from quatrain.models.allo.learning.learner import (
    State,
    init_state,
    make_data,
    run_chunk,
    schedule,
    tables,
)
from quatrain.models.allo.learning.truth import Truth, true_spectrum
from quatrain.progress import Progress, TrainingDiverged, by_seed

WEIGHTS = ("params/", "input_constants")
# The key of allo.train to lower if this is the first value that is not finite.
REMEDY = {
    "graph": "learning_rate",
    "dual": "lr_dual",
    "barrier_term": "lr_barrier",
    "grad_norm": "learning_rate",
}


def headline(config: AlloConfig) -> tuple[str, str]:
    return "cosine_mean", "total_error"


def update(
    config: AlloConfig, dataset: Dataset, state: State
) -> tuple[State, dict[str, np.ndarray]]:
    """Returns the state after one gradient step of all learners, and what was measured in it.

    It is the step that `train` repeats, equal but for rounding: XLA fuses a loop of one step
    differently. Each metric is (seeds,).
    """
    run = over_devices(partial(run_chunk, config, 1), config.seeds)
    next_state, recorded = run(state, make_data(config, state, dataset))
    return next_state, {name: values[:, 0] for name, values in jax.device_get(recorded).items()}


def train(
    config: AlloConfig, dataset: Dataset, seed: int, state: State | None = None
) -> Iterator[Progress]:
    """Trains until `steps`, from `state` if given; yields once per `record_every` steps.

    Metrics are means over the steps of a yield, (1,), with several learners also (1, seeds) as
    `name/seed`; `duals_diag`, `eigenvalue`, `eigenvalue_dual` and `cosine` have one more axis d.

    Raises:
        DatasetMismatch: the dataset was collected on another map, or in another environment.
        TrainingDiverged: a term is not finite; no step since the last yield is yielded.
    """
    check(config, dataset)
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
        check_finite(recorded, step, barrier)
        step += config.train.record_every
        errors.append(float(recorded["total_error"].mean()))
        measured = metrics(config, state, recorded) | comparison(config, state, dataset, truth)
        yield Progress(step, state, by_seed(measured))
    warn_if_errors_grew(errors)


def metrics(
    config: AlloConfig, state: State, recorded: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Returns name -> (1, seeds) + the metric's own axes."""
    duals = np.asarray(state.duals)
    diagonal = np.diagonal(duals, axis1=1, axis2=2)
    means = {name: steps.mean(-1, dtype=np.float64) for name, steps in recorded.items()}
    values = means | {
        "duals_diag": diagonal,
        "dual_offdiag_max": np.abs(np.tril(duals, -1)).max((1, 2)),
        "barrier": np.asarray(state.barrier),
        "eigenvalue_dual": fit.dual_eigenvalues(config, state),
        "lr": np.full(config.seeds, float(schedule(config.train)(int(state.step[0]) - 1))),
    }
    return {name: value[None] for name, value in values.items()}


def comparison(
    config: AlloConfig, state: State, dataset: Dataset, truth: Truth
) -> dict[str, np.ndarray]:
    """Returns the comparison with the truth: (1, seeds, ...), or (0, seeds, ...) if not due."""
    cosines = eigenvalues = np.zeros((0, config.seeds, config.network.d))
    if int(state.step[0]) % config.train.evaluate_every == 0:
        learned = tables(config, state, dataset)
        cosines = np.stack([fit.strict_cosine(table, truth.spectrum) for table in learned])[None]
        eigenvalues = np.stack([fit.rayleigh(table, truth.operator) for table in learned])[None]
    return {
        "eigenvalue": eigenvalues,
        "cosine": cosines,
        "cosine_mean": cosines.mean(-1),
        "cosine_min": cosines.min(-1),
    }


def check_finite(recorded: dict[str, np.ndarray], start: int, barrier: float) -> None:
    """Raises for the first step with a value that is not finite; names the first in REMEDY."""
    broken = np.stack([~np.isfinite(recorded[name]).all(0) for name in REMEDY])
    if not broken.any():
        return
    first = int(broken.any(0).argmax())
    term = list(REMEDY)[int(broken[:, first].argmax())]
    labels = {"barrier_term": "barrier term", "grad_norm": "gradient"}
    raise TrainingDiverged(
        f"allo step {start + first + 1:,}: {labels.get(term, f'{term} term')} is not finite "
        f"(b={barrier:.3g}); lower allo.train.{REMEDY[term]}"
    )


def warn_if_errors_grew(errors: list[float]) -> None:
    tenth = len(errors) // 10
    if tenth and np.mean(errors[-tenth:]) > 1.5 * np.mean(errors[-2 * tenth : -tenth]):
        warnings.warn(
            "allo: total_error grew by more than half over the last tenth of the steps; "
            "lower allo.train.learning_rate",
            stacklevel=2,
        )


to_arrays = packing.to_arrays


def from_arrays(config: AlloConfig, dataset: Dataset, arrays: dict[str, np.ndarray]) -> State:
    """Returns the state that these arrays hold.

    Raises:
        ValueError: names, shapes or dtypes are not those of a state of this config.
    """
    return packing.from_arrays(init_state(config, dataset, seed=0), arrays)
