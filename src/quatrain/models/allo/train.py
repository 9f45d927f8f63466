"""replay -> weights: samples pairs, descends the augmented Lagrangian, ascends its duals."""

import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jaxtyping import Float, Int, Key

from quatrain.frameworks.jax import packing
from quatrain.models.allo import losses, network
from quatrain.models.allo.collect import Dataset, check, draw_frequencies, encoder_inputs
from quatrain.models.allo.config import AlloConfig, Train
from quatrain.models.allo.spectra import fit, spectrum
from quatrain.models.allo.spectra.truth import Truth, true_spectrum
from quatrain.progress import Progress, TrainingDiverged, by_seed
from quatrain.replay.episodes.trajectories import Batch, Episodes, sample

HEADLINE = ("cosine_mean", "total_error")
WEIGHTS = ("params/", "frequencies")
CONSTRAINTS = {"two": losses.two_batches, "three": losses.three_batches}
# Folded into a learner's base key for its initialisation; steps fold in their own number.
INIT = np.uint32(2**32 - 1)
# The key of allo.train to lower if this is the first value that is not finite.
REMEDY = {
    "graph": "learning_rate",
    "dual": "lr_dual",
    "barrier_term": "lr_barrier",
    "grad_norm": "learning_rate",
}
# XLA option: Adam does not copy the weights of a step first.
#
# The bits are the same, in 93 % of the time. A GPU ignores the option.
IN_PLACE = {"xla_cpu_copy_insertion_use_region_analysis": True}


class State(NamedTuple):
    """Holds everything that changes while learning, and the Fourier frequencies of the weights."""

    params: network.Params
    optimizer: Any
    duals: Float[Array, "*seeds d d"]
    barrier: Float[Array, "*seeds"]
    quadratic_average: Float[Array, "*seeds d d"]
    base_key: Key[Array, "*seeds"]
    step: Int[Array, "*seeds"]
    frequencies: Float[Array, "*seeds count 2"]


class Data(NamedTuple):
    """Holds the constant inputs of a step: encoder inputs, buffer, and A and r where needed."""

    inputs: Float[Array, "states inputs"]
    episodes: Episodes
    laplacian: Float[Array, "states states"] | None
    starts: Float[Array, " states"] | None


def schedule(config: Train) -> optax.Schedule:
    if config.lr_schedule == "constant":
        return optax.constant_schedule(config.learning_rate)
    return optax.cosine_decay_schedule(config.learning_rate, config.steps, alpha=config.lr_final)


def encoder_is_table(config: Train, states: int) -> bool:
    """Returns whether every state is encoded once, which `auto` does if samples are not fewer."""
    if config.encoder_rows != "auto":
        return config.encoder_rows == "table"
    return config.needs_all_states or states <= (2 + config.constraint_batches) * config.batch_size


def encode(
    config: AlloConfig,
    params: network.Params,
    inputs: Array,
    batch: Batch,
) -> losses.Features:
    """Returns the features of the sampled states.

    They are taken from a table of all states where that is less work; gradients are equal.
    """
    if encoder_is_table(config.train, len(inputs)):
        table = network.apply(config.network, params, inputs)
        return losses.Features(*(table[states] for states in batch))
    return losses.Features(
        *(network.apply(config.network, params, inputs[states]) for states in batch)
    )


def draw(
    config: Train,
    data: Data,
    base_key: Array,
    step: Array,
) -> Batch | None:
    """Draws the sample of a step; None in exact mode, which uses its expectation."""
    if config.mode == "exact":
        return None
    return sample(
        jax.random.fold_in(base_key, step),
        data.episodes,
        config.batch_size,
        config.discounts,
        config.constraint_batches,
    )


def graph_over(
    table: Float[Array, "states d"],
    data: Data,
    batch: Batch | None,
) -> Float[Array, ""]:
    """Computes the graph term of the sampled pairs, or without a sample its expectation."""
    if batch is not None:
        return losses.graph_term(table[batch.state], table[batch.later_state])
    assert data.laplacian is not None
    return losses.exact_graph_term(table, data.laplacian)


def objective(
    params: network.Params,
    config: AlloConfig,
    state: State,
    data: Data,
    batch: Batch | None,
) -> tuple[Float[Array, ""], losses.Loss]:
    """Computes L and its parts for these encoder parameters."""
    if config.train.needs_all_states:
        assert data.starts is not None
        table = network.apply(config.network, params, data.inputs)
        constraints = losses.exact_constraints(table, data.starts)
        graph = graph_over(table, data, batch)
    else:
        assert batch is not None
        features = encode(config, params, data.inputs, batch)
        graph = losses.graph_term(features.state, features.later_state)
        constraints = CONSTRAINTS[config.train.constraint](features)
    loss = losses.lagrangian(
        graph,
        constraints,
        state.duals,
        state.barrier,
        config.train.graph_coef,
    )
    return losses.total(loss), loss


def update_duals(config: Train, state: State, constraints: losses.Constraints) -> State:
    """Returns the state after the dual and barrier step, with the constraints of the gradient.

    β ← clip(β + lr_dual·E, ±dual_clip);  b ← clip(b + lr_barrier·h, b_min, b_max).
    h = |Q| (`abs`), or the mean of the positive part of a moving average of E1∘E2 (`positive_ema`,
    the paper's code).
    """
    clip = config.dual_clip or jnp.inf
    average = state.quadratic_average
    violation = jnp.abs(constraints.quadratic)
    if config.barrier_update == "positive_ema":
        product = constraints.first * constraints.second
        average = jnp.where(
            state.step == 0,
            product,
            average + 0.1 * (product - average),
        )
        violation = jnp.maximum(average, 0).mean()
    return state._replace(
        duals=jnp.tril(jnp.clip(state.duals + config.lr_dual * constraints.error, -clip, clip)),
        barrier=jnp.clip(state.barrier + config.lr_barrier * violation, config.b_min, config.b_max),
        quadratic_average=average,
    )


def gradient_step(
    config: AlloConfig,
    data: Data,
    state: State,
    batch: Batch | None,
) -> tuple[State, dict[str, Array]]:
    """Returns one learner after a step: Adam on the encoder, then the duals and the barrier.

    Also returns the recorded values of the step.
    """
    gradient_of = jax.value_and_grad(objective, has_aux=True)
    (value, loss), gradients = gradient_of(state.params, config, state, data, batch)
    optimizer = optax.adam(schedule(config.train))
    updates, optimizer_state = optimizer.update(gradients, state.optimizer)
    error = loss.constraints.error
    recorded = {
        "loss": value,
        **loss.terms,
        "grad_norm": optax.tree.norm(gradients),
        "total_error": jnp.abs(error).sum(),
        "norm_error": jnp.abs(jnp.diag(error)).sum(),
        "manifold_distance": jnp.square(error).sum(),
    }
    next_state = update_duals(config.train, state, loss.constraints)._replace(
        params=optax.apply_updates(state.params, updates),
        optimizer=optimizer_state,
        step=state.step + 1,
    )
    return next_state, recorded


@partial(jax.jit, static_argnums=(0, 1), compiler_options=IN_PLACE)
def run_chunk(
    config: AlloConfig,
    steps: int,
    state: State,
    data: Data,
) -> tuple[State, dict[str, Array]]:
    """Returns all learners after `steps` gradient steps; recorded values are (steps, seeds)."""

    def run(learner: State) -> tuple[State, dict[str, Array]]:
        # All samples of the chunk at once: the same bits, in a quarter of the time on a CPU.
        batches = jax.vmap(partial(draw, config.train, data, learner.base_key))(
            learner.step + jnp.arange(steps)
        )
        return jax.lax.scan(
            partial(gradient_step, config, data),
            learner,
            batches,
            length=steps,
        )

    if config.seeds > 1:
        return jax.vmap(run, out_axes=(0, 1))(state)
    learner, recorded = run(jax.tree.map(lambda leaf: leaf[0], state))
    return (
        jax.tree.map(lambda leaf: leaf[None], learner),
        {name: values[:, None] for name, values in recorded.items()},
    )


def init_state(config: AlloConfig, dataset: Dataset, seed: int) -> State:
    frequencies = draw_frequencies(config.env, seed)
    return _init_learners(
        config,
        jax.random.key(seed),
        jnp.asarray(frequencies),
        jnp.asarray(encoder_inputs(config.env, dataset.grid, frequencies)),
    )


@partial(jax.jit, static_argnums=0)
def _init_learners(
    config: AlloConfig,
    key: Array,
    frequencies: Array,
    inputs: Array,
) -> State:
    d = config.network.d
    dual_mask = jnp.tril(jnp.ones((d, d))) if config.train.dual_init_mask == "lower" else jnp.eye(d)

    def init(index: Array) -> State:
        base_key = jax.random.fold_in(key, index)
        params = network.init(config.network, jax.random.fold_in(base_key, INIT), inputs)
        return State(
            params=params,
            optimizer=optax.adam(schedule(config.train)).init(params),
            duals=config.train.dual_init * dual_mask,
            barrier=jnp.float32(config.train.b_init),
            quadratic_average=jnp.zeros((d, d)),
            base_key=base_key,
            step=jnp.int32(0),
            frequencies=frequencies,
        )

    return jax.vmap(init)(jnp.arange(config.seeds))


def inputs_for(config: AlloConfig, state: State, dataset: Dataset) -> Float[Array, "states inputs"]:
    return jnp.asarray(encoder_inputs(config.env, dataset.grid, np.asarray(state.frequencies[0])))


@partial(jax.jit, static_argnums=0)
def _tables(config: AlloConfig, params: network.Params, inputs: Array) -> Array:
    return jax.vmap(partial(network.apply, config.network, inputs=inputs))(params)


def tables(
    config: AlloConfig,
    state: State,
    dataset: Dataset,
) -> Float[np.ndarray, "seeds states d"]:
    """Returns the learned features of every state, for each learner."""
    return np.asarray(_tables(config, state.params, inputs_for(config, state, dataset)))


def update(
    config: AlloConfig,
    dataset: Dataset,
    state: State,
) -> tuple[State, dict[str, np.ndarray]]:
    """Returns the state after one gradient step of all learners, and what was measured in it.

    It is the step that `train` repeats, equal but for rounding: XLA fuses a loop of one step
    differently. Each metric is (seeds,).
    """
    next_state, recorded = run_chunk(config, 1, state, make_data(config, state, dataset))
    return next_state, {name: values[0] for name, values in jax.device_get(recorded).items()}


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
    truth = true_spectrum(config, dataset)
    state = init_state(config, dataset, seed) if state is None else state
    data = make_data(config, state, dataset)
    errors: list[float] = []
    step = int(state.step[0])
    while step < config.train.steps:
        barrier = float(state.barrier.max())
        state, stacked = run_chunk(config, config.train.record_every, state, data)
        recorded = jax.device_get(stacked)
        _check_finite(recorded, step, barrier)
        step += config.train.record_every
        errors.append(float(recorded["total_error"].mean()))
        yield Progress(
            step,
            state,
            by_seed(_metrics(config, state, recorded) | _comparison(config, state, dataset, truth)),
        )
    _warn_if_errors_grew(errors)


def make_data(config: AlloConfig, state: State, dataset: Dataset) -> Data:
    inputs = inputs_for(config, state, dataset)
    episodes = jax.tree.map(jnp.asarray, dataset.train)
    if config.train.mode == "stochastic":
        starts = visits(dataset, len(inputs)) if config.train.needs_all_states else None
        return Data(inputs, episodes, laplacian=None, starts=starts)
    exact = spectrum.expectation(dataset.train, len(inputs), config.train.discounts)
    return Data(
        inputs,
        episodes,
        laplacian=jnp.asarray(exact.laplacian, jnp.float32),
        starts=jnp.asarray(exact.starts, jnp.float32),
    )


def visits(dataset: Dataset, states: int) -> Float[Array, " states"]:
    """Returns how often each state starts a pair, as a share of all starts."""
    starts = np.asarray(dataset.train.state)[np.asarray(dataset.train.horizon) > 0]
    return jnp.asarray(np.bincount(starts, minlength=states) / len(starts), jnp.float32)


def _metrics(
    config: AlloConfig,
    state: State,
    recorded: dict[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """Returns name -> (1, seeds) + the metric's own axes."""
    duals = np.asarray(state.duals)
    diagonal = np.diagonal(duals, axis1=1, axis2=2)
    means = {name: values.mean(0, dtype=np.float64) for name, values in recorded.items()}
    metrics = means | {
        "duals_diag": diagonal,
        "dual_offdiag_max": np.abs(np.tril(duals, -1)).max((1, 2)),
        "barrier": np.asarray(state.barrier),
        "eigenvalue_dual": dual_eigenvalues(config, state),
        "lr": np.full(config.seeds, float(schedule(config.train)(int(state.step[0]) - 1))),
    }
    return {name: values[None] for name, values in metrics.items()}


def dual_eigenvalues(config: AlloConfig, state: State) -> Float[np.ndarray, "seeds d"]:
    """Computes −β_ii / (4κ), which is λ_i at the fixed point.

    Before it, and with a learning rate that ends too soon, the barrier carries a share:
    λ_i = −(β_ii + 2 b E_ii) / (4κ) on average. The Rayleigh quotient of the learned vector does not
    depend on how they share, and is the estimate to use.
    """
    diagonal = np.diagonal(np.asarray(state.duals), axis1=1, axis2=2)
    return -diagonal / (4 * config.train.graph_coef)


def _comparison(
    config: AlloConfig,
    state: State,
    dataset: Dataset,
    truth: Truth,
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


def _check_finite(recorded: dict[str, np.ndarray], start: int, barrier: float) -> None:
    """Raises for the first step with a value that is not finite; names the first in REMEDY."""
    broken = np.stack([~np.isfinite(recorded[name]).all(-1) for name in REMEDY])
    if not broken.any():
        return
    first = int(broken.any(0).argmax())
    term = list(REMEDY)[int(broken[:, first].argmax())]
    labels = {"barrier_term": "barrier term", "grad_norm": "gradient"}
    raise TrainingDiverged(
        f"allo step {start + first + 1:,}: {labels.get(term, f'{term} term')} is not finite "
        f"(b={barrier:.3g}); lower allo.train.{REMEDY[term]}"
    )


def _warn_if_errors_grew(errors: list[float]) -> None:
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
