"""state, sampled pairs -> the next state: descends the augmented Lagrangian, ascends its duals."""

from functools import partial

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jaxtyping import Float

from quatrain.frameworks.jax.seeds import over_seeds
from quatrain.models.allo import losses, network
from quatrain.models.allo.config import AlloConfig, Train
from quatrain.models.allo.learning.state import Data, State, schedule
from quatrain.replay.episodes.trajectories import Batch, sample

CONSTRAINTS = {"two": losses.two_batches, "three": losses.three_batches}
# XLA option: Adam does not copy the weights of a step first.
#
# The bits are the same, in 93 % of the time. A GPU ignores the option.
IN_PLACE = {"xla_cpu_copy_insertion_use_region_analysis": True}


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
    """Returns all learners after `steps` gradient steps; recorded values are (seeds, steps)."""

    def run(learner: State, data: Data) -> tuple[State, dict[str, Array]]:
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

    return over_seeds(run, config.train.seed_parallelism)(state, data)
