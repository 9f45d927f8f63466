"""walks -> learners: their state, and the step that descends the augmented Lagrangian"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jaxtyping import Float, Int, Key

from quatrain.frameworks.jax.seeds import over_devices, over_seeds
from quatrain.models.allo import losses, network
from quatrain.models.allo.collect import Dataset
from quatrain.models.allo.config import AlloConfig, Train
from quatrain.replay.episodes.trajectories import Batch, Episodes, sample

# Folded into a learner's base key for its initialisation; steps fold in their own number.
INIT = np.uint32(2**32 - 1)
CONSTRAINTS = {"two": losses.two_batches, "three": losses.three_batches}
# XLA option: Adam does not copy the weights of a step first.
#
# The bits are the same, in 93 % of the time. A GPU ignores the option.
IN_PLACE = {"xla_cpu_copy_insertion_use_region_analysis": True}


class State(NamedTuple):
    """Holds everything that changes while learning, and the `input_constants` that the weights were
    trained with.
    """

    params: network.Params
    optimizer: Any
    duals: Float[Array, "*seeds d d"]
    barrier: Float[Array, "*seeds"]
    quadratic_average: Float[Array, "*seeds d d"]
    base_key: Key[Array, "*seeds"]
    step: Int[Array, "*seeds"]
    input_constants: Float[Array, "*seeds row column"]


class Data(NamedTuple):
    """Holds the constant inputs of a step: encoder inputs, buffer, and each state's share of the
    starts of pairs.
    """

    inputs: Float[Array, "states inputs"]
    episodes: Episodes
    visits: Float[Array, " states"]


def schedule(config: Train) -> optax.Schedule:
    if config.lr_schedule == "constant":
        return optax.constant_schedule(config.learning_rate)
    return optax.cosine_decay_schedule(config.learning_rate, config.steps, alpha=config.lr_final)


def init_state(config: AlloConfig, dataset: Dataset, seed: int) -> State:
    constants = config.world.input_constants(config, dataset, seed)
    return _init_learners(
        config,
        jax.random.key(seed),
        jnp.asarray(constants),
        jnp.asarray(config.world.inputs(config, dataset, constants)),
    )


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
        )

    return jax.vmap(init)(jnp.arange(config.seeds))


def inputs_for(config: AlloConfig, state: State, dataset: Dataset) -> Float[Array, "states inputs"]:
    return jnp.asarray(config.world.inputs(config, dataset, np.asarray(state.input_constants[0])))


@partial(jax.jit, static_argnums=0)
def _tables(config: AlloConfig, params: network.Params, inputs: Array) -> Array:
    apply = partial(network.apply, config.network)
    return over_seeds(apply, config.train.seed_parallelism)(params, inputs)


def tables(
    config: AlloConfig, state: State, dataset: Dataset
) -> Float[np.ndarray, "seeds states d"]:
    """Returns the learned features of every state, for each learner."""
    program = over_devices(partial(_tables, config), config.seeds)
    return np.asarray(program(state.params, inputs_for(config, state, dataset)))


def make_data(config: AlloConfig, state: State, dataset: Dataset) -> Data:
    inputs = inputs_for(config, state, dataset)
    starts = np.asarray(dataset.train.state)[np.asarray(dataset.train.horizon) > 0]
    visits = np.bincount(starts, minlength=len(inputs)) / len(starts)
    episodes = jax.tree.map(jnp.asarray, dataset.train)
    return Data(inputs, episodes, jnp.asarray(visits, jnp.float32))


def encoder_is_table(config: Train, states: int) -> bool:
    """Returns whether every state is encoded once: where samples are not fewer, or all are needed.

    Gradients are equal.
    """
    samples = (2 + config.constraint_batches) * config.batch_size
    return config.constraint == "visits" or states <= samples


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
) -> tuple[Float[Array, ""], losses.Loss]:
    """Computes L and its parts for these encoder parameters."""
    encode = partial(network.apply, config.network, params)
    if encoder_is_table(config.train, len(data.inputs)):
        table = encode(data.inputs)
        features = losses.Features(*(table[states] for states in batch))
    else:
        features = losses.Features(*(encode(data.inputs[states]) for states in batch))
    if config.train.constraint == "visits":
        constraints = losses.visited_constraints(table, data.visits)
    else:
        constraints = CONSTRAINTS[config.train.constraint](features)
    loss = losses.lagrangian(
        losses.graph_term(features.state, features.later_state),
        constraints,
        state.duals,
        state.barrier,
        config.train.graph_coef,
    )
    return losses.total(loss), loss


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
