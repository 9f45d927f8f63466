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
    params: network.Params,
    config: AlloConfig,
    state: State,
    data: Data,
    batch: Batch,
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
        average = jnp.where(
            state.step == 0,
            product,
            average + 0.1 * (product - average),
        )
        violation = jnp.maximum(average, 0).mean()
    return state._replace(
        duals=jnp.tril(jnp.clip(state.duals + config.lr_dual * constraints.error, -clip, clip)),
        barrier=jnp.minimum(state.barrier + config.lr_barrier * violation, config.b_max),
        quadratic_average=average,
    )


def gradient_step(
    config: AlloConfig,
    data: Data,
    state: State,
    batch: Batch,
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
