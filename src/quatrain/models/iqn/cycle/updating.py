"""replay -> updated agents: the second half of a cycle"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jaxtyping import Float, Int, Key

from quatrain.models.iqn import losses, network
from quatrain.models.iqn.config import HardTarget, LearnerConfig, Train
from quatrain.models.iqn.cycle.axes import over_agents
from quatrain.replay.frames.ring import FrameRing
from quatrain.replay.frames.sampling import Batch, ValidStarts, Window, sample


class Agent(NamedTuple):
    """Holds the part of one agent that its updates change."""

    params: network.Params
    target_params: network.Params
    optimizer: Any


class Experience(NamedTuple):
    """Holds the replay that all updates of a cycle sample from."""

    ring: FrameRing
    starts: ValidStarts


def window(config: LearnerConfig) -> Window:
    return Window(
        config.network.frames,
        config.train.loss.n_step,
        config.train.loss.discount,
    )


def optimizer(config: Train) -> optax.GradientTransformation:
    """Returns Adam on one agent's clipped gradient."""
    return optax.chain(
        optax.clip_by_global_norm(config.max_grad_norm),
        optax.adam(config.learning_rate, eps=config.adam_eps),
    )


def targets(
    config: LearnerConfig, agent: Agent, batch: Batch, key: Key[Array, ""]
) -> Float[Array, "batch target_quantile"]:
    """Computes y, quantiles of the return after the best next action.

    The online network selects that action with double Q, else the target network.
    """
    loss = config.train.loss
    apply = partial(network.apply, config.network)
    select_key, target_key, select_noise, target_noise = jax.random.split(key, 4)
    taus = jax.random.uniform(target_key, (len(batch.action), loss.target_quantiles))
    values = apply(agent.target_params, batch.next_stack, taus, target_noise)
    selection_values = values
    if loss.double_q:
        taus = jax.random.uniform(select_key, (len(batch.action), loss.quantiles))
        selection_values = apply(agent.params, batch.next_stack, taus, select_noise)
    next_action = losses.greedy_action(selection_values)
    return losses.bootstrap_targets(
        batch.returns,
        batch.bootstrap,
        losses.index_by_action(values, next_action),
    )


def objective(
    params: network.Params,
    config: LearnerConfig,
    batch: Batch,
    targets_bp: Array,
    key: Key[Array, ""],
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """Computes the loss of these parameters, and its metrics."""
    loss_config = config.train.loss
    tau_key, noise_key = jax.random.split(key)
    taus = jax.random.uniform(tau_key, (len(batch.action), loss_config.quantiles))
    values = network.apply(config.network, params, batch.stack, taus, noise_key)
    action_values = losses.index_by_action(values, batch.action)
    errors = losses.td_errors(action_values, targets_bp)
    terms = {"quantile_huber": losses.quantile_huber(errors, taus, loss_config.kappa).mean()}
    coefs = {"quantile_huber": 1.0}
    assert terms.keys() == coefs.keys() == set(losses.TERMS)
    loss = jnp.stack([coefs[name] * terms[name] for name in losses.TERMS]).sum()
    return loss, terms | {
        "loss": loss,
        "td_error_abs": jnp.abs(errors).mean(),
        "q_mean": action_values.mean(),
        "quantile_spread": losses.quantile_spread(action_values, taus).mean(),
    }


def update_agents(
    config: LearnerConfig,
    agents: Agent,
    experience: Experience,
    key: Key[Array, ""],
    updates: Int[Array, ""],
) -> tuple[Agent, dict[str, Float[Array, "update agent"]]]:
    """Updates every agent `updates_per_cycle` times, independently of the others.

    agents: leaves begin with axis agent. updates: before this cycle.
    """
    numbers = updates + jnp.arange(config.train.updates_per_cycle)
    count = experience.ring.data.actions.shape[1]

    def update_repeatedly(
        agent_and_index: tuple[Agent, Array],
    ) -> tuple[Agent, dict[str, Array]]:
        first, index = agent_and_index

        def step(agent: Agent, number: Array) -> tuple[Agent, dict[str, Array]]:
            agent_key = jax.random.fold_in(jax.random.fold_in(key, number), index)
            return update_agent(config, experience, agent, index, agent_key)

        return jax.lax.scan(step, first, numbers)

    result, metrics = over_agents(config, update_repeatedly)((agents, jnp.arange(count)))
    return result, {name: values.T for name, values in metrics.items()}


def update_agent(
    config: LearnerConfig,
    experience: Experience,
    agent: Agent,
    index: Int[Array, ""],
    key: Key[Array, ""],
) -> tuple[Agent, dict[str, Array]]:
    """Updates one agent: samples, then targets, gradient, clipped Adam step, target network.

    No gradient flows through the targets.
    """
    sample_key, target_key, online_key = jax.random.split(key, 3)
    batch = sample(
        sample_key,
        *experience,
        index,
        window(config),
        config.train.batch_size,
    )
    gradients, metrics = jax.grad(objective, has_aux=True)(
        agent.params,
        config,
        batch,
        targets(config, agent, batch, target_key),
        online_key,
    )
    updates, adam = optimizer(config.train).update(gradients, agent.optimizer)
    params = optax.apply_updates(agent.params, updates)
    norm = optax.tree.norm(gradients)
    target_params = update_target(
        config.train,
        params,
        agent.target_params,
        optax.tree.get(adam, "count"),
    )
    return Agent(params, target_params, adam), metrics | {
        "grad_norm": norm,
        "clipped": (norm > config.train.max_grad_norm).astype(jnp.float32),
    }


def update_target(
    config: Train,
    params: network.Params,
    target_params: network.Params,
    updates: Array,
) -> network.Params:
    """Returns the target network after this number of updates."""
    if isinstance(config.target, HardTarget):
        select = partial(jnp.where, updates % config.target.copy_every == 0)
        return jax.tree.map(select, params, target_params)
    return optax.incremental_update(params, target_params, config.target.rate)
