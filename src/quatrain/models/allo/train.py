"""replay -> weights: sample pairs, descend the augmented Lagrangian, ascend its duals, in one compiled program."""

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
from quatrain.models.allo import losses, network, spectrum
from quatrain.models.allo.collect import Dataset, check, inputs_of
from quatrain.models.allo.config import AlloConfig, Train
from quatrain.progress import Progress, TrainingDiverged, by_seed
from quatrain.replay.episodes.trajectories import Batch, Episodes, sample

HEADLINE = ("cosine_mean", "total_error")
WEIGHTS = ("params/", "frequencies")
INIT = np.uint32(2**32 - 1)
"""Folded into a learner's base key for its initialisation; steps fold in their own number."""
REMEDY = {
    "graph": "learning_rate",
    "dual": "lr_dual",
    "barrier_term": "lr_barrier",
    "grad_norm": "learning_rate",
}
"""Which key of allo.train to lower when this is the first thing that is not finite."""
IN_PLACE = {"xla_cpu_copy_insertion_use_region_analysis": True}
"""To XLA: Adam need not copy the weights of a step first. The same bits in 93 % of the time; a GPU does not read it."""


class State(NamedTuple):
    """Everything that changes while learning (and the Fourier frequencies, without which the weights mean nothing)."""

    params: network.Params
    optimizer: Any
    duals: Float[Array, "*seeds d d"]
    barrier: Float[Array, "*seeds"]
    quadratic_average: Float[Array, "*seeds d d"]
    base_key: Key[Array, "*seeds"]
    step: Int[Array, "*seeds"]
    frequencies: Float[Array, "*seeds count 2"]


class Data(NamedTuple):
    """What a step reads and never changes: the table of inputs, the buffer, and in exact mode A and r of the buffer."""

    inputs: Float[Array, "states inputs"]
    episodes: Episodes
    laplacian: Float[Array, "states states"] | None
    starts: Float[Array, " states"] | None


def schedule(config: Train) -> optax.Schedule:
    """Step -> learning rate."""
    if config.lr_schedule == "constant":
        return optax.constant_schedule(config.learning_rate)
    return optax.cosine_decay_schedule(config.learning_rate, config.steps, alpha=config.lr_final)


def encoder_is_table(config: Train, states: int) -> bool:
    """Whether encoding every state once is no more rows than encoding each sample."""
    if config.encoder_rows != "auto":
        return config.encoder_rows == "table"
    return config.mode == "exact" or states <= (2 + config.constraint_batches) * config.batch_size


def encode(
    config: AlloConfig, params: network.Params, inputs: Array, batch: Batch
) -> losses.Features:
    """Features of the sampled states, out of a table of all states where that is fewer rows (gradients are equal)."""
    if encoder_is_table(config.train, len(inputs)):
        table = network.apply(config.network, params, inputs)
        return losses.Features(*(table[states] for states in batch))
    return losses.Features(
        *(network.apply(config.network, params, inputs[states]) for states in batch)
    )


def draw(config: Train, data: Data, base_key: Array, step: Array) -> Batch | None:
    """The sample of a step; None in exact mode, which takes its expectation."""
    if config.mode == "exact":
        return None
    key = jax.random.fold_in(base_key, step)
    return sample(
        key, data.episodes, config.batch_size, config.discounts, config.constraint_batches
    )


def objective(
    params: network.Params, config: AlloConfig, state: State, data: Data, batch: Batch | None
) -> tuple[Float[Array, ""], losses.Loss]:
    """L and its parts at these encoder parameters."""
    if batch is None:
        assert data.laplacian is not None
        assert data.starts is not None
        table = network.apply(config.network, params, data.inputs)
        graph = losses.exact_graph_term(table, data.laplacian)
        constraints = losses.exact_constraints(table, data.starts)
    else:
        features = encode(config, params, data.inputs, batch)
        graph = losses.graph_term(features.state, features.later_state)
        constraints = (
            losses.two_batches if config.train.constraint == "two" else losses.three_batches
        )(features)
    loss = losses.lagrangian(
        graph, constraints, state.duals, state.barrier, config.train.graph_coef
    )
    return losses.total(loss), loss


def ascend(config: Train, state: State, constraints: losses.Constraints) -> State:
    """Dual and barrier steps from the same forward pass as the gradient.

    β ← clip(β + lr_dual·E, ±dual_clip);  b ← clip(b + lr_barrier·h, b_min, b_max) with h = |Q| (`abs`), or the mean
    of the positive part of a moving average of E1∘E2 (`positive_ema`, the paper's code).
    """
    clip = jnp.inf if config.dual_clip is None else config.dual_clip
    duals = jnp.tril(jnp.clip(state.duals + config.lr_dual * constraints.error, -clip, clip))
    average = state.quadratic_average
    violation = jnp.abs(constraints.quadratic)
    if config.barrier_update == "positive_ema":
        product = constraints.first * constraints.second
        average = jnp.where(state.step == 0, product, average + 0.1 * (product - average))
        violation = jnp.maximum(average, 0).mean()
    barrier = jnp.clip(state.barrier + config.lr_barrier * violation, config.b_min, config.b_max)
    return state._replace(duals=duals, barrier=barrier, quadratic_average=average)


def update(
    config: AlloConfig, data: Data, state: State, batch: Batch | None
) -> tuple[State, dict[str, Array]]:
    """One step: gradient of L, Adam on the encoder, ascent of duals and barrier, and what is recorded of it."""
    gradient_of = jax.value_and_grad(objective, has_aux=True)
    (value, loss), gradients = gradient_of(state.params, config, state, data, batch)
    updates, optimizer = optax.adam(schedule(config.train)).update(gradients, state.optimizer)
    params = optax.apply_updates(state.params, updates)
    ascended = ascend(config.train, state, loss.constraints)
    error = loss.constraints.error
    recorded = {
        "loss": value,
        **loss.terms,
        "grad_norm": optax.tree.norm(gradients),
        "total_error": jnp.abs(error).sum(),
        "norm_error": jnp.abs(jnp.diag(error)).sum(),
        "manifold_distance": jnp.square(error).sum(),
    }
    return ascended._replace(params=params, optimizer=optimizer, step=state.step + 1), recorded


@partial(jax.jit, static_argnums=0, compiler_options=IN_PLACE)
def run_chunk(config: AlloConfig, learners: State, data: Data) -> tuple[State, dict[str, Array]]:
    """`record_every` updates of all learners; recorded values are (record_every, seeds)."""
    single = config.seeds == 1
    act, pick = partial(update, config, data), partial(draw, config.train, data)
    body, picks = (act, pick) if single else (jax.vmap(act), jax.vmap(pick))
    carry = jax.tree.map(lambda leaf: leaf[0], learners) if single else learners
    # All samples of the chunk at once: the same bits as one by one, in a quarter of the time on a CPU.
    numbers = jnp.arange(config.train.record_every)
    batches = jax.vmap(lambda number: picks(carry.base_key, carry.step + number))(numbers)
    carry, recorded = jax.lax.scan(body, carry, batches, length=config.train.record_every)
    if single:
        carry = jax.tree.map(lambda leaf: leaf[None], carry)
        recorded = {name: values[:, None] for name, values in recorded.items()}
    return carry, recorded


def init_state(config: AlloConfig, dataset: Dataset, seed: int) -> State:
    """`seeds` fresh learners; learner i draws all its randomness from fold_in(key(seed), i)."""
    frequencies, inputs = map(jnp.asarray, inputs_of(config.env, dataset.grid, seed))
    return _fresh(config, jax.random.key(seed), frequencies, inputs)


@partial(jax.jit, static_argnums=0)
def _fresh(config: AlloConfig, key: Array, frequencies: Array, inputs: Array) -> State:
    d, chosen = config.network.d, config.train

    def one(index: Array) -> State:
        base_key = jax.random.fold_in(key, index)
        params = network.init(config.network, jax.random.fold_in(base_key, INIT), inputs)
        return State(
            params=params,
            optimizer=optax.adam(schedule(chosen)).init(params),
            duals=chosen.dual_init
            * (jnp.tril(jnp.ones((d, d))) if chosen.dual_init_mask == "lower" else jnp.eye(d)),
            barrier=jnp.float32(chosen.b_init),
            quadratic_average=jnp.zeros((d, d)),
            base_key=base_key,
            step=jnp.int32(0),
            frequencies=frequencies,
        )

    return jax.vmap(one)(jnp.arange(config.seeds))


def inputs_for(config: AlloConfig, state: State, dataset: Dataset) -> Float[Array, "states inputs"]:
    """The encoder's table of inputs that this learner was trained on."""
    return jnp.asarray(
        inputs_of(config.env, dataset.grid, frequencies=np.asarray(state.frequencies[0]))[1]
    )


@partial(jax.jit, static_argnums=0)
def _tables(config: AlloConfig, params: network.Params, inputs: Array) -> Array:
    return jax.vmap(lambda one: network.apply(config.network, one, inputs))(params)


def tables(
    config: AlloConfig, state: State, dataset: Dataset
) -> Float[np.ndarray, "seeds states d"]:
    """The learned features of every state, for each learner."""
    return np.asarray(_tables(config, state.params, inputs_for(config, state, dataset)))


def train(
    config: AlloConfig, dataset: Dataset, seed: int, state: State | None = None
) -> Iterator[Progress]:
    """Learn until `steps`, from `learner` if one is given, yielding once per `record_every` steps.

    Metrics are means over the steps of a yield, (1,), with several learners also (1, seeds) as `name/seed`;
    `duals_diag`, `eigenvalue_dual` and `cosine` have one more axis d.

    Raises:
        DatasetMismatch: the dataset was collected for another map.
        TrainingDiverged: a term is not finite; nothing is yielded of the steps since the last yield.
    """
    check(config, dataset)
    operator = spectrum.operator(dataset.train, len(dataset.grid.coords), config.train.discounts)
    truth = spectrum.spectrum(operator, config.network.d, config.evaluate.degeneracy_tol)
    state = init_state(config, dataset, seed) if state is None else state
    data = _data(config, dataset, inputs_for(config, state, dataset))
    errors: list[float] = []
    step = int(state.step[0])
    while step < config.train.steps:
        barrier = float(state.barrier.max())
        state, stacked = run_chunk(config, state, data)
        recorded = jax.device_get(stacked)
        _refuse_divergence(recorded, step, barrier)
        step += config.train.record_every
        errors.append(float(recorded["total_error"].mean()))
        yield Progress(step, state, _metrics(config, state, dataset, truth, recorded))
    _warn_if_errors_grew(errors)


def _data(config: AlloConfig, dataset: Dataset, inputs: Array) -> Data:
    episodes = jax.tree.map(jnp.asarray, dataset.train)
    if config.train.mode == "stochastic":
        return Data(inputs, episodes, None, None)
    exact = spectrum.expectation(dataset.train, len(inputs), config.train.discounts)
    return Data(
        inputs,
        episodes,
        jnp.asarray(exact.laplacian, jnp.float32),
        jnp.asarray(exact.starts, jnp.float32),
    )


def _metrics(
    config: AlloConfig,
    state: State,
    dataset: Dataset,
    truth: spectrum.Spectrum,
    recorded: dict[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """Name -> (n,) + the metric's own axes, for their mean and for each learner."""
    duals = np.asarray(state.duals)
    diagonal = np.diagonal(duals, axis1=1, axis2=2)
    step = int(state.step[0])
    metrics = {name: values.mean(0, dtype=np.float64) for name, values in recorded.items()} | {
        "duals_diag": diagonal,
        "dual_offdiag_max": np.abs(np.tril(duals, -1)).max((1, 2)),
        "barrier": np.asarray(state.barrier),
        "eigenvalue_dual": -diagonal / (4 * config.train.graph_coef),
        "lr": np.full(config.seeds, float(schedule(config.train)(step - 1))),
    }
    found = {name: values[None] for name, values in metrics.items()}
    if step % config.train.evaluate_every:
        cosines = np.zeros((0, config.seeds, config.network.d))
    else:
        cosines = np.stack(
            [spectrum.cosine(table, truth) for table in tables(config, state, dataset)]
        )[None]
    return by_seed(
        found | {"cosine": cosines, "cosine_mean": cosines.mean(-1), "cosine_min": cosines.min(-1)}
    )


def _refuse_divergence(recorded: dict[str, np.ndarray], start: int, barrier: float) -> None:
    """Raise for the first step with a term that is not finite, naming the first such term in the order of REMEDY."""
    broken = np.stack([~np.isfinite(recorded[name]).all(-1) for name in REMEDY])
    if not broken.any():
        return
    first = int(broken.any(0).argmax())
    term = list(REMEDY)[int(broken[:, first].argmax())]
    what = {"barrier_term": "barrier term", "grad_norm": "gradient"}.get(term, f"{term} term")
    raise TrainingDiverged(
        f"allo step {start + first + 1:,}: {what} is not finite (b={barrier:.3g}); lower allo.train.{REMEDY[term]}"
    )


def _warn_if_errors_grew(errors: list[float]) -> None:
    tenth = len(errors) // 10
    if tenth and np.mean(errors[-tenth:]) > 1.5 * np.mean(errors[-2 * tenth : -tenth]):
        warnings.warn(
            "allo: total_error grew by more than half over the last tenth of the steps; lower allo.train.learning_rate",
            stacklevel=2,
        )


to_arrays = packing.to_arrays


def from_arrays(config: AlloConfig, dataset: Dataset, arrays: dict[str, np.ndarray]) -> State:
    """The learner whose packed arrays these are.

    Raises:
        ValueError: names, shapes or dtypes are not those of a learner of this config.
    """
    return packing.from_arrays(init_state(config, dataset, seed=0), arrays)
