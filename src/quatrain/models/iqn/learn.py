"""replay -> updated agents: what changes while learning, and the update that changes it"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jaxtyping import Float, Float32, Int, Key

from quatrain.frameworks.jax import over_seeds
from quatrain.models.iqn import losses, network
from quatrain.models.iqn.collect import NO_RETURN, Sizes
from quatrain.models.iqn.config import HardTarget, LearnerConfig, Train
from quatrain.replay.frames.ring import AnyArray, FrameRing, Transitions, from_transitions, write
from quatrain.replay.frames.sampling import (
    Batch,
    ValidStarts,
    Window,
    draw_starts,
    gather_transitions,
    valid_starts,
)

# Purposes of a seed's base key; turns and updates are folded in next, then agents.
INIT, WORLDS, PLAY, LEARN, EVALUATION_WORLDS, EVALUATION_PLAY = range(6)
# Folded into the key of a training to derive base keys; a dataset's own purposes are smaller.
LEARNERS = 2
# Largest number of hidden units at which vectorised agents learn faster on CPU than a loop.
NARROW = 64


class Agent(NamedTuple):
    """Holds what the updates of one agent change; `State` has fields of the same names."""

    params: network.Params
    target_params: network.Params
    optimizer: Any


class Best(NamedTuple):
    """Holds the parameters of the best greedy evaluation of each seed, and its mean return over
    agents; the first parameters, and NO_RETURN, before any.
    """

    params: network.Params
    greedy_return: Float32[Array, "*seed"]


class State(NamedTuple):
    """Holds everything that changes while learning; leaves begin with seed, then agent if any.

    play_state: of the world's own type (`PlayState`). scale, best: how observations become inputs
    and the parameters that are judged, in environments of users; else ().
    """

    params: network.Params
    target_params: network.Params
    optimizer: Any
    ring: FrameRing
    base_key: Key[Array, "*seed"]
    updates: Int[Array, "*seed"]
    play_state: Any = ()
    scale: Any = ()
    best: Any = ()

    @property
    def agents(self) -> Agent:
        return Agent(*(getattr(self, name) for name in Agent._fields))


class Experience(NamedTuple):
    """Holds the replay that all updates of a cycle sample from."""

    ring: FrameRing
    starts: ValidStarts


def base_keys(config: LearnerConfig, seed: int) -> Key[Array, " seed"]:
    """Returns the key of each seed, from which all its randomness is derived."""
    key = jax.random.fold_in(jax.random.key(seed), LEARNERS)
    return jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(config.seeds))


def purpose_keys(base_key: Key[Array, " seed"], purpose: int) -> Key[Array, " seed"]:
    """Returns the key of each seed for one purpose."""
    return jax.vmap(lambda key: jax.random.fold_in(key, purpose))(base_key)


@partial(jax.jit, static_argnums=(0, 1))
def init(
    config: LearnerConfig, sizes: Sizes, prefill: Transitions, base_key: Key[Array, " seed"]
) -> State:
    """Returns untrained agents, and replays with the prefill; the world's fields are empty."""

    def init_seed(prefill_and_key: tuple[Transitions, Array]) -> State:
        transitions, key = prefill_and_key
        params = init_params(config, sizes, key)
        return State(
            params=params,
            target_params=params,
            optimizer=jax.vmap(optimizer(config.train).init)(params),
            ring=from_transitions(config.slots, transitions),
            base_key=key,
            updates=jnp.int32(0),
        )

    return over_seeds(init_seed, config.train.seed_parallelism)((prefill, base_key))


def init_params(config: LearnerConfig, sizes: Sizes, base_key: Key[Array, ""]) -> network.Params:
    """Draws the first parameters of all agents of a seed."""
    keys = jax.random.split(jax.random.fold_in(base_key, INIT), sizes.agents)
    inputs = config.network.frames * sizes.frame
    return network.init_agents(config.network, keys, inputs, sizes.actions, sizes.layout)


def evaluation_params(config: LearnerConfig, state: State) -> network.Params:
    """Returns the parameters, of all seeds and agents, that are judged: those that act in
    evaluations or, where a state keeps the best of these and there was one, the best.
    """
    if isinstance(state.best, Best) and np.max(state.best.greedy_return) > NO_RETURN:
        return state.best.params
    return acting_params(config, state)


def acting_params(config: LearnerConfig, state: State) -> network.Params:
    """Returns the parameters that act in evaluations.

    Online networks may fall into loops for a while (into a wall, say); their average over updates,
    the Polyak target, does not.
    """
    is_target = config.train.acting.evaluation_network == "target"
    return state.target_params if is_target else state.params


def better(best: Best, new: Best) -> Best:
    """Returns the better of each seed; of equals the new one, which has learned more."""
    is_better = np.asarray(new.greedy_return) >= np.asarray(best.greedy_return)

    def select(new_leaf: AnyArray, leaf: AnyArray) -> Array:
        return jnp.where(is_better.reshape(-1, *(1,) * (leaf.ndim - 1)), new_leaf, leaf)

    return jax.tree.map(select, new, best)


def learn(config: LearnerConfig, state: State, turns: Transitions) -> tuple[State, dict[str, Any]]:
    """Stores the turns of a cycle and updates the agents, of one seed: the second half of a cycle.

    Returns:
        The next state, and columns of the cycle's record.
    """
    ring = write(state.ring, turns)
    experience = Experience(ring, valid_starts(ring, window(config)))
    key = jax.random.fold_in(state.base_key, LEARN)
    agents, metrics = update_agents(config, state.agents, experience, key, state.updates)
    updates = state.updates + config.train.updates_per_cycle
    state = state._replace(**agents._asdict(), ring=ring, updates=updates)
    return state, {"update_metrics": metrics, "replay_valid": experience.starts.total}


def window(config: LearnerConfig) -> Window:
    return Window(config.network.frames, config.train.loss.n_step, config.train.loss.discount)


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
    legal = network.legal_actions(agent.params, batch.next_stack)
    next_action = losses.greedy_action(selection_values, legal)
    return losses.bootstrap_targets(
        batch.returns, batch.bootstrap, losses.index_by_action(values, next_action)
    )


def objective(
    params: network.Params,
    config: LearnerConfig,
    batch: Batch,
    targets_bp: Array,
    key: Key[Array, ""],
) -> tuple[Float[Array, ""], dict[str, Float[Array, " batch"]]]:
    """Computes the loss of these parameters, and metrics of each sample, its loss among them."""
    loss_config = config.train.loss
    tau_key, noise_key = jax.random.split(key)
    taus = jax.random.uniform(tau_key, (len(batch.action), loss_config.quantiles))
    values = network.apply(config.network, params, batch.stack, taus, noise_key)
    action_values = losses.index_by_action(values, batch.action)
    errors = losses.td_errors(action_values, targets_bp)
    sample_losses = losses.quantile_huber(errors, taus, loss_config.kappa)
    return sample_losses.mean(), {
        "quantile_huber": sample_losses,
        "loss": sample_losses,
        "td_error_abs": jnp.abs(errors).mean((1, 2)),
        "q_mean": action_values.mean(1),
        "quantile_spread": losses.quantile_spread(action_values, taus),
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

    def update_repeatedly(agent_and_index: tuple[Agent, Array]) -> tuple[Agent, dict[str, Array]]:
        first, index = agent_and_index

        def step(agent: Agent, number: Array) -> tuple[Agent, dict[str, Array]]:
            agent_key = jax.random.fold_in(jax.random.fold_in(key, number), index)
            return update_agent(config, experience, agent, index, agent_key)

        return jax.lax.scan(step, first, numbers)

    result, metrics = over_agents(config, update_repeatedly)((agents, jnp.arange(count)))
    return result, {name: values.T for name, values in metrics.items()}


def over_agents(config: LearnerConfig, function: Callable[..., Any]) -> Callable[..., Any]:
    """Maps a function of one agent over the leading axis of its argument.

    `auto` chooses one batched program, or on a CPU, unless layers are narrow, a loop, which keeps
    caches warm.
    """
    parallelism = config.train.agent_parallelism
    if parallelism == "auto":
        wide = config.network.hidden > NARROW
        parallelism = "scan" if wide and jax.default_backend() == "cpu" else "vmap"
    return jax.vmap(function) if parallelism == "vmap" else partial(jax.lax.map, function)


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
    starts = draw_starts(sample_key, *experience, config.train.batch_size)
    batch = gather_transitions(experience.ring, index, starts, window(config))
    targets_bp = targets(config, agent, batch, target_key)
    gradient = jax.grad(objective, has_aux=True)
    gradients, sample_metrics = gradient(agent.params, config, batch, targets_bp, online_key)
    updates, adam = optimizer(config.train).update(gradients, agent.optimizer)
    params = optax.apply_updates(agent.params, updates)
    count = optax.tree.get(adam, "count")
    target_params = update_target(config.train, params, agent.target_params, count)
    metrics = {name: values.mean() for name, values in sample_metrics.items()}
    norm = optax.tree.norm(gradients)
    return Agent(params, target_params, adam), metrics | {
        "grad_norm": norm,
        "clipped": (norm > config.train.max_grad_norm).astype(jnp.float32),
    }


def update_target(
    config: Train, params: network.Params, target_params: network.Params, updates: Array
) -> network.Params:
    """Returns the target network after this number of updates."""
    if isinstance(config.target, HardTarget):
        select = partial(jnp.where, updates % config.target.copy_every == 0)
        return jax.tree.map(select, params, target_params)
    return optax.incremental_update(params, target_params, config.target.rate)
