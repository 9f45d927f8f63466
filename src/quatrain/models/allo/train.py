"""replay -> weights: samples pairs, takes gradient steps, compares with the truth now and then."""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jaxtyping import Float, Int, Key

from quatrain.errors import warn
from quatrain.frameworks.jax import WHOLE, from_template, lay_out, over_devices, over_seeds
from quatrain.frameworks.jax import to_arrays as to_arrays
from quatrain.models.allo import held_out, losses, network
from quatrain.models.allo.collect import Dataset, check
from quatrain.models.allo.config import AlloConfig, Train
from quatrain.models.allo.held_out import Pairs
from quatrain.models.allo.truth import Truth, known_truth, rayleigh, strict_cosine
from quatrain.progress import Progress, TrainingDiverged, by_seed
from quatrain.replay.episodes.trajectories import Batch, Episodes, sample

WEIGHTS = ("params/", "input_constants")
# Folded into a learner's base key for its initialisation; steps fold in their own number.
INIT = np.uint32(2**32 - 1)
CONSTRAINTS = {"two": losses.two_batches, "three": losses.three_batches}
# XLA option: Adam does not copy the weights of a step first.
#
# The bits are the same, in 93 % of the time. A GPU ignores the option.
IN_PLACE = {"xla_cpu_copy_insertion_use_region_analysis": True}
# Recorded value -> its name in messages, and the key of allo.train to lower if it is the first that
# is not finite.
REMEDY = {
    "graph": ("graph term", "learning_rate"),
    "dual": ("dual term", "lr_dual"),
    "barrier_term": ("barrier term", "lr_barrier"),
    "grad_norm": ("gradient", "learning_rate"),
}
# Records before which tables are kept for a film: 0, 1, ..., 8, 10, 12, 14, 16, 20, ..., 1792.
#
# Most of what it can show happens early. A longer training keeps the same ones, and more.
RECORDS = (*range(4), *(leading << zeros for zeros in range(9) for leading in range(4, 8)))
# Most numbers of a table that is kept.
LARGEST_SNAPSHOT = 20_000


class State(NamedTuple):
    """Holds everything that changes while learning, and the `input_constants` that the weights were
    trained with.

    snapshots: tables of the first learner at the RECORDS so far, 0 at later ones; None of a large
    map, without a map, and within a compiled program.
    """

    params: network.Params
    optimizer: Any
    duals: Float[Array, "*seeds d d"]
    barrier: Float[Array, "*seeds"]
    quadratic_average: Float[Array, "*seeds d d"]
    base_key: Key[Array, "*seeds"]
    step: Int[Array, "*seeds"]
    input_constants: Float[Array, "*seeds row column"]
    snapshots: Float[Array, "record states d"] | None


class Data(NamedTuple):
    """Holds the constant inputs of a step: encoder inputs, buffer, and each state's share of the
    starts of pairs.
    """

    inputs: Float[Array, "states inputs"]
    episodes: Episodes
    visits: Float[Array, " states"]


def headline(config: AlloConfig) -> tuple[str, str]:
    if config.knows_truth:
        return "cosine_mean", "cosine_min"
    return "autocorrelation", "held_out_orthogonality"


# Before the first step.


def schedule(config: Train) -> optax.Schedule:
    if config.lr_schedule == "constant":
        return optax.constant_schedule(config.learning_rate)
    return optax.cosine_decay_schedule(config.learning_rate, config.steps, alpha=config.lr_final)


def init_state(config: AlloConfig, dataset: Dataset, seed: int) -> State:
    constants = config.world.input_constants(config, dataset, seed)
    inputs = jnp.asarray(config.world.inputs(config, dataset, constants))
    learners = _init_learners(config, jax.random.key(seed), jnp.asarray(constants), inputs)
    states, d = len(inputs), config.network.d
    if config.brings_env or states * d > LARGEST_SNAPSHOT:
        return learners
    return learners._replace(snapshots=jnp.zeros((len(RECORDS), states, d)))


@partial(jax.jit, static_argnums=0)
def _init_learners(config: AlloConfig, key: Array, constants: Array, inputs: Array) -> State:
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
            input_constants=constants,
            snapshots=None,
        )

    return jax.vmap(init)(jnp.arange(config.seeds))


def from_arrays(config: AlloConfig, dataset: Dataset, arrays: dict[str, np.ndarray]) -> State:
    """Returns the state that these arrays hold.

    Raises:
        ValueError: names, shapes or dtypes are not those of a state of this config.
    """
    return from_template(jax.eval_shape(partial(init_state, config, dataset, seed=0)), arrays)


def inputs_for(config: AlloConfig, state: State, dataset: Dataset) -> Float[Array, "states inputs"]:
    return jnp.asarray(config.world.inputs(config, dataset, np.asarray(state.input_constants[0])))


def make_data(config: AlloConfig, state: State, dataset: Dataset) -> Data:
    inputs = inputs_for(config, state, dataset)
    starts = np.asarray(dataset.train.state)[np.asarray(dataset.train.horizon) > 0]
    visits = np.bincount(starts, minlength=len(inputs)) / len(starts)
    episodes = jax.tree.map(jnp.asarray, dataset.train)
    return Data(inputs, episodes, jnp.asarray(visits, jnp.float32))


# A gradient step.


def draw(config: Train, data: Data, base_key: Array, step: Array) -> Batch:
    """Draws the sample of a step."""
    return sample(
        jax.random.fold_in(base_key, step),
        data.episodes,
        config.batch_size,
        config.discounts,
        config.constraint_batches,
    )


def objective(
    params: network.Params, config: AlloConfig, state: State, data: Data, batch: Batch
) -> tuple[Float[Array, ""], tuple[dict[str, Array], losses.Constraints]]:
    """Computes L, its terms and the constraints for these encoder parameters."""
    encode = partial(network.apply, config.network, params)
    if config.train.encodes_table(len(data.inputs)):
        table = encode(data.inputs)
        features = losses.Features(*(table[states] for states in batch))
    else:
        features = losses.Features(*(encode(data.inputs[states]) for states in batch))
    if config.train.constraint == "visits":
        constraints = losses.visited_constraints(table, data.visits)
    else:
        constraints = CONSTRAINTS[config.train.constraint](features)
    graph = losses.graph_term(features.state, features.later_state)
    kappa = config.train.graph_coef
    terms = losses.lagrangian(graph, constraints, state.duals, state.barrier, kappa)
    return jax.tree.reduce(jnp.add, terms), (terms, constraints)


def update_duals(config: Train, state: State, constraints: losses.Constraints) -> State:
    """Returns the state after the dual and barrier step, with the constraints of the gradient.

    β ← clip(β + lr_dual·E, ±dual_clip);  b ← min(b + lr_barrier·h, b_max).
    h = |Q| (`abs`), or the mean of the positive part of a moving average of E1∘E2 (`positive_ema`,
    the paper's code).
    """
    clip = config.dual_clip or jnp.inf
    average = state.quadratic_average
    violation = jnp.abs(constraints.quadratic)
    if config.barrier_update == "positive_ema":
        product = constraints.first * constraints.second
        average = jnp.where(state.step == 0, product, average + 0.1 * (product - average))
        violation = jnp.maximum(average, 0).mean()
    return state._replace(
        duals=jnp.tril(jnp.clip(state.duals + config.lr_dual * constraints.error, -clip, clip)),
        barrier=jnp.minimum(state.barrier + config.lr_barrier * violation, config.b_max),
        quadratic_average=average,
    )


def gradient_step(
    config: AlloConfig, data: Data, state: State, batch: Batch
) -> tuple[State, dict[str, Array]]:
    """Returns one learner after a step: Adam on the encoder, then the duals and the barrier.

    Also returns the recorded values of the step.
    """
    gradient_of = jax.value_and_grad(objective, has_aux=True)
    (value, (terms, constraints)), gradients = gradient_of(state.params, config, state, data, batch)
    optimizer = optax.adam(schedule(config.train))
    updates, optimizer_state = optimizer.update(gradients, state.optimizer)
    recorded = {
        "loss": value,
        **terms,
        "grad_norm": optax.tree.norm(gradients),
        "total_error": jnp.abs(constraints.error).sum(),
        "norm_error": jnp.abs(jnp.diag(constraints.error)).sum(),
        "manifold_distance": jnp.square(constraints.error).sum(),
    }
    next_state = update_duals(config.train, state, constraints)._replace(
        params=optax.apply_updates(state.params, updates),
        optimizer=optimizer_state,
        step=state.step + 1,
    )
    return next_state, recorded


@partial(jax.jit, static_argnums=(0, 1), compiler_options=IN_PLACE)
def run_chunk(
    config: AlloConfig, steps: int, state: State, data: Data
) -> tuple[State, dict[str, Array]]:
    """Returns all learners after `steps` gradient steps; recorded values are (seeds, steps)."""

    def run(learner: State, data: Data) -> tuple[State, dict[str, Array]]:
        # All samples of the chunk at once: the same bits, in a quarter of the time on a CPU.
        batches = jax.vmap(partial(draw, config.train, data, learner.base_key))(
            learner.step + jnp.arange(steps)
        )
        return jax.lax.scan(partial(gradient_step, config, data), learner, batches, length=steps)

    return over_seeds(run, config.train.seed_parallelism)(state, data)


# A training.


def update(
    config: AlloConfig, dataset: Dataset, state: State
) -> tuple[State, dict[str, np.ndarray]]:
    """Returns the state after one gradient step of all learners, and what was measured in it.

    It is the step that `train` repeats, equal but for rounding: XLA fuses a loop of one step
    differently. Each metric is (seeds,).
    """
    run = over_devices(partial(run_chunk, config, 1), config.seeds)
    next_state, recorded = run(state._replace(snapshots=None), make_data(config, state, dataset))
    next_state = next_state._replace(snapshots=snapshots_with(config, state, dataset))
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
    truth = known_truth(config, dataset)
    state = init_state(config, dataset, seed) if state is None else state
    pairs = None
    if not config.knows_truth:
        pairs = held_out.draw(config, dataset, inputs_for(config, state, dataset), seed)
    data = lay_out(make_data(config, state, dataset), config.seeds, WHOLE)
    run = over_devices(partial(run_chunk, config, config.train.record_every), config.seeds)
    errors: list[float] = []
    step = int(state.step[0])
    while step < config.train.steps:
        barrier = float(state.barrier.max())
        next_state, stacked = run(state._replace(snapshots=None), data)
        state = next_state._replace(snapshots=snapshots_with(config, state, dataset))
        recorded = jax.device_get(stacked)
        check_finite(recorded, step, barrier)
        step += config.train.record_every
        errors.append(float(recorded["total_error"].mean()))
        measured = metrics(config, state, recorded)
        if pairs is not None:
            measured |= judgement(config, state, pairs)
        if truth is not None:
            measured |= comparison(config, state, dataset, truth)
        yield Progress(step, state, by_seed(measured))
    warn_if_errors_grew(errors)


def metrics(
    config: AlloConfig, state: State, recorded: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Returns name -> (1, seeds) + the metric's own axes."""
    duals = np.asarray(state.duals)
    means = {name: steps.mean(-1, dtype=np.float64) for name, steps in recorded.items()}
    values = means | {
        "duals_diag": np.diagonal(duals, axis1=1, axis2=2),
        "dual_offdiag_max": np.abs(np.tril(duals, -1)).max((1, 2)),
        "barrier": np.asarray(state.barrier),
        "eigenvalue_dual": dual_eigenvalues(config, state),
        "lr": np.full(config.seeds, float(schedule(config.train)(int(state.step[0]) - 1))),
    }
    return {name: value[None] for name, value in values.items()}


def is_due(config: AlloConfig, state: State) -> bool:
    """Returns whether the learned functions are evaluated after this step."""
    step = int(state.step[0])
    return step % config.train.evaluate_every == 0 or step == config.train.steps


def comparison(
    config: AlloConfig, state: State, dataset: Dataset, truth: Truth
) -> dict[str, np.ndarray]:
    """Returns the comparison with the truth: (1, seeds, ...), or (0, seeds, ...) if not due."""
    cosines = eigenvalues = np.zeros((0, config.seeds, config.network.d))
    if is_due(config, state):
        learned = tables(config, state, dataset)
        cosines = np.stack([strict_cosine(table, truth.spectrum) for table in learned])[None]
        eigenvalues = np.stack([rayleigh(table, truth.operator) for table in learned])[None]
    return {
        "eigenvalue": eigenvalues,
        "cosine": cosines,
        "cosine_mean": cosines.mean(-1),
        "cosine_min": cosines.min(-1),
    }


def judgement(config: AlloConfig, state: State, pairs: Pairs) -> dict[str, np.ndarray]:
    """Returns what held-out pairs tell: (1, seeds, ...), or (0, seeds, ...) if not due."""
    if is_due(config, state):
        measured = held_out.measure(*held_out.features(config, state.params, pairs))
        return {name: values[None] for name, values in measured.items()}
    d = config.network.d
    nothing = held_out.measure(*2 * [np.ones((config.seeds, d, d))])
    return {name: values[None][:0] for name, values in nothing.items()}


def check_finite(recorded: dict[str, np.ndarray], start: int, barrier: float) -> None:
    """Raises for the first step with a value that is not finite; names the first in REMEDY."""
    broken = np.stack([~np.isfinite(recorded[name]).all(0) for name in REMEDY])
    if not broken.any():
        return
    first = int(broken.any(0).argmax())
    label, key = list(REMEDY.values())[int(broken[:, first].argmax())]
    raise TrainingDiverged(
        f"allo step {start + first + 1:,}: {label} is not finite "
        f"(b={barrier:.3g}); lower allo.train.{key}"
    )


def warn_if_errors_grew(errors: list[float]) -> None:
    tenth = len(errors) // 10
    if tenth and np.mean(errors[-tenth:]) > 1.5 * np.mean(errors[-2 * tenth : -tenth]):
        warn(
            "allo: total_error grew by more than half over the last tenth of the steps; "
            "lower allo.train.learning_rate"
        )


# What was learned.


def tables(
    config: AlloConfig, state: State, dataset: Dataset
) -> Float[np.ndarray, "seeds states d"]:
    """Returns the learned features of every state, for each learner."""
    inputs = inputs_for(config, state, dataset)
    return np.asarray(network.of_learners(config, state.params, inputs))


def snapshots_with(
    config: AlloConfig, state: State, dataset: Dataset
) -> Float[Array, "record states d"] | None:
    """Returns the snapshots of a state, its own table among them if that is to be kept."""
    record = int(state.step[0]) / config.train.record_every
    if state.snapshots is None or record not in RECORDS:
        return state.snapshots
    table = tables(config, state, dataset)[0]
    return state.snapshots.at[RECORDS.index(record)].set(table)


def dual_eigenvalues(config: AlloConfig, state: State) -> Float[np.ndarray, "seeds d"]:
    """Computes −β_ii / (4κ), which is λ_i at the fixed point.

    Before it, and with a learning rate that ends too soon, the barrier carries a share, which
    `evaluate.corrected_eigenvalues` adds. The Rayleigh quotient of the learned vector does not
    depend on how they share, and is the estimate to use.
    """
    diagonal = np.diagonal(np.asarray(state.duals), axis1=1, axis2=2)
    return -diagonal / (4 * config.train.graph_coef)
