"""replay -> weights: play some turns in all worlds, let every agent learn, again and again in one compiled program."""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jaxtyping import Float, Int, Key

from quatrain.envs.treasurehunt import turns
from quatrain.envs.treasurehunt.turns import World
from quatrain.envs.treasurehunt.world import make_world
from quatrain.frameworks.jax import packing
from quatrain.models.iqn import losses, network
from quatrain.models.iqn.collect import LEARNERS, Dataset, check, transitions_of
from quatrain.models.iqn.config import HardTarget, IqnConfig, Train
from quatrain.models.iqn.cycle import memory, playing, records
from quatrain.models.iqn.cycle.acting import greedy_policy
from quatrain.models.iqn.cycle.axes import over_axis, over_seeds
from quatrain.models.iqn.cycle.playing import Player
from quatrain.progress import Progress
from quatrain.replay import frames
from quatrain.replay.frames import Batch, Ring, Starts, Window

HEADLINE = ("episode_return", "greedy_return")
WEIGHTS = ("params/", "target_params/")
to_arrays = packing.to_arrays
INIT, WORLDS, PLAY, LEARN, JUDGED_WORLDS, JUDGED_PLAY = range(6)
"""Purposes of a seed's base key; below them count turns and updates, and below those agents."""


class Agent(NamedTuple):
    """What changes in one agent when it learns."""

    params: network.Params
    target_params: network.Params
    optimizer: Any


class State(NamedTuple):
    """Everything that changes while learning; leaves begin with the axis seeds, those of agents with agents next."""

    params: network.Params
    target_params: network.Params
    optimizer: Any
    player: Player
    ring: Ring
    base_key: Key[Array, "*seeds"]
    updates: Int[Array, "*seeds"]


class Experience(NamedTuple):
    """What all updates between two plays read."""

    ring: Ring
    starts: Starts


def window(config: IqnConfig) -> Window:
    """How the replay is read."""
    return Window(config.network.frames, config.train.loss.n_step, config.train.loss.discount)


def optimizer(config: Train) -> optax.GradientTransformation:
    """Adam on one agent's clipped gradient."""
    return optax.chain(
        optax.clip_by_global_norm(config.max_grad_norm),
        optax.adam(config.learning_rate, eps=config.adam_eps),
    )


def targets(
    config: IqnConfig, agent: Agent, batch: Batch, key: Key[Array, ""]
) -> Float[Array, "batch target_quantile"]:
    """y: quantiles of the return; the next action is the best by the online network (double Q) or the target's own."""
    chosen, size = config.train.loss, len(batch.action)
    select_key, target_key, select_noise, target_noise = jax.random.split(key, 4)
    taus = jax.random.uniform(target_key, (size, chosen.target_quantiles))
    judged = values = network.apply(
        config.network, agent.target_params, batch.next_stack, taus, target_noise
    )
    if chosen.double_q:
        taus = jax.random.uniform(select_key, (size, chosen.quantiles))
        judged = network.apply(config.network, agent.params, batch.next_stack, taus, select_noise)
    next_values = losses.of_action(values, losses.best_action(judged))
    return losses.bootstrapped(batch.returns, batch.bootstrap, next_values)


def objective(
    params: network.Params, config: IqnConfig, batch: Batch, targets_bp: Array, key: Key[Array, ""]
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """The loss at these parameters, and what is recorded of it."""
    tau_key, noise_key = jax.random.split(key)
    taus = jax.random.uniform(tau_key, (len(batch.action), config.train.loss.quantiles))
    values = network.apply(config.network, params, batch.stack, taus, noise_key)
    chosen = losses.of_action(values, batch.action)
    errors = losses.errors(chosen, targets_bp)
    terms = {"quantile_huber": losses.quantile_huber(errors, taus, config.train.loss.kappa).mean()}
    weights = {"quantile_huber": 1.0}
    assert terms.keys() == weights.keys() == set(losses.TERMS)
    loss = jnp.stack([weights[name] * terms[name] for name in losses.TERMS]).sum()
    return loss, terms | {
        "loss": loss,
        "td_error_abs": jnp.abs(errors).mean(),
        "q_mean": chosen.mean(),
        "quantile_spread": losses.spread(chosen, taus).mean(),
    }


def update(
    config: IqnConfig,
    experience: Experience,
    agent: Agent,
    index: Int[Array, ""],
    key: Key[Array, ""],
) -> tuple[Agent, dict[str, Array]]:
    """One step of one agent: sample, targets (no gradient flows there), gradient, clipped Adam, target network."""
    sample_key, target_key, online_key = jax.random.split(key, 3)
    batch = frames.sample(
        sample_key,
        experience.ring,
        experience.starts,
        index,
        window(config),
        config.train.batch_size,
    )
    targets_bp = targets(config, agent, batch, target_key)
    gradient_of = jax.grad(objective, has_aux=True)
    gradients, recorded = gradient_of(agent.params, config, batch, targets_bp, online_key)
    updates, state = optimizer(config.train).update(gradients, agent.optimizer)
    params = optax.apply_updates(agent.params, updates)
    norm = optax.tree.norm(gradients)
    recorded |= {
        "grad_norm": norm,
        "clipped": (norm > config.train.max_grad_norm).astype(jnp.float32),
    }
    count = optax.tree.get(state, "count")
    return Agent(params, follow(config.train, params, agent.target_params, count), state), recorded


def follow(
    config: Train, params: network.Params, target_params: network.Params, updates: Array
) -> network.Params:
    """The target network after so many updates."""
    if isinstance(config.target, HardTarget):
        copied = updates % config.target.copy_every == 0
        return jax.tree.map(
            lambda online, target: jnp.where(copied, online, target), params, target_params
        )
    return optax.incremental_update(params, target_params, config.target.rate)


def learn(
    config: IqnConfig, state: State, experience: Experience
) -> tuple[Agent, dict[str, Float[Array, "update agents"]]]:
    """`updates_per_cycle` updates of every agent; between two plays they are independent."""
    key = jax.random.fold_in(state.base_key, LEARN)

    def one(agent_and_index: tuple[Agent, Array]) -> tuple[Agent, dict[str, Array]]:
        agent, index = agent_and_index

        def step(agent: Agent, number: Array) -> tuple[Agent, dict[str, Array]]:
            own_key = jax.random.fold_in(jax.random.fold_in(key, number), index)
            return update(config, experience, agent, index, own_key)

        return jax.lax.scan(step, agent, state.updates + jnp.arange(config.train.updates_per_cycle))

    agents = Agent(state.params, state.target_params, state.optimizer)
    learned, recorded = over_axis(config, one)((agents, jnp.arange(config.env.agents)))
    return learned, {name: values.T for name, values in recorded.items()}


def cycle(config: IqnConfig, world: World, state: State) -> tuple[State, records.Cycle]:
    """Play, store, learn: of one seed."""
    key = jax.random.fold_in(state.base_key, PLAY)
    played = playing.play(config, world, state.params, state.player, key)
    stored = frames.write(state.ring, transitions_of(played.turns))
    experience = Experience(stored, frames.valid_starts(stored, window(config)))
    agents, learned = learn(config, state, experience)
    record = records.Cycle(
        learned=learned,
        played=playing.happenings(config, played.turns)
        | {"episode_return": played.player.episode_return},
        epsilon=played.epsilon[-1],
        agent_steps=config.env.agents
        * config.env.worlds
        * (config.collect.turns + played.player.turns),
        replay_valid=experience.starts.total,
    )
    updates = state.updates + config.train.updates_per_cycle
    return State(*agents, played.player, stored, state.base_key, updates), record


@partial(jax.jit, static_argnums=(0, 1))
def run_chunk(config: IqnConfig, world: World, learners: State) -> tuple[State, records.Cycle]:
    """`record_every` updates of every agent of every seed; records are (seeds, cycles, ...).

    Not donated: a learner is what remains where the next chunk diverges. Inside, the replay is written in place.
    """

    def one(state: State) -> tuple[State, records.Cycle]:
        step = lambda state, _: cycle(config, world, state)  # noqa: E731
        return jax.lax.scan(step, state, None, length=config.train.cycles_per_record)

    return over_seeds(config, one)(learners)


def judged_params(config: IqnConfig, state: State) -> network.Params:
    """The parameters, of all seeds and agents, that play when a learner is judged.

    Single online networks fall into loops for a while (into a wall, say) that their average over updates does not.
    """
    return state.target_params if config.train.acting.judged == "target" else state.params


@partial(jax.jit, static_argnums=(0, 1))
def greedy_returns(
    config: IqnConfig, world: World, params: network.Params, base_key: Key[Array, " seeds"]
) -> Float[Array, "seeds agents"]:
    """Mean return of a greedy episode in `evaluation_worlds` worlds, always the same."""

    def one(params_and_key: tuple[network.Params, Array]) -> Array:
        params, key = params_and_key
        worlds_key, play_key = (
            jax.random.fold_in(key, purpose) for purpose in (JUDGED_WORLDS, JUDGED_PLAY)
        )
        lanes = turns.start(
            world,
            jax.random.split(worlds_key, config.train.evaluation_worlds),
            config.network.frames,
        )
        policy = greedy_policy(config, params)
        played = turns.play(world, lanes, policy, play_key, jnp.int32(0), config.env.max_turns)
        return played.turns.rewards.sum(0).mean(-1)

    return over_seeds(config, one)((params, base_key))


def init_state(
    config: IqnConfig, world: World, dataset: Dataset, base_key: Key[Array, " seeds"]
) -> State:
    """Fresh agents, worlds at their start, and replays with the prefill; each seed draws from its own base key."""
    return _init(config, world, jax.tree.map(jnp.asarray, dataset.train), base_key)


def base_keys(config: IqnConfig, seed: int) -> Key[Array, " seeds"]:
    """The key of each seed, from which all its randomness is folded."""
    key = jax.random.fold_in(jax.random.key(seed), LEARNERS)
    return jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(config.seeds))


@partial(jax.jit, static_argnums=(0, 1))
def _init(config: IqnConfig, world: World, prefill: frames.Transitions, base_key: Array) -> State:
    def one(prefill_and_key: tuple[frames.Transitions, Array]) -> State:
        prefill, key = prefill_and_key
        init_keys = jax.random.split(jax.random.fold_in(key, INIT), config.env.agents)
        params = jax.vmap(lambda own: network.init(config.network, own, config.inputs))(init_keys)
        keys = jax.random.split(jax.random.fold_in(key, WORLDS), config.env.worlds)
        return State(
            params=params,
            target_params=params,
            optimizer=jax.vmap(optimizer(config.train).init)(params),
            player=playing.first_player(turns.start(world, keys, config.network.frames), prefill),
            ring=frames.filled(config.slots, prefill),
            base_key=key,
            updates=jnp.int32(0),
        )

    return over_seeds(config, one)((prefill, base_key))


def train(
    config: IqnConfig, dataset: Dataset, seed: int, state: State | None = None
) -> Iterator[Progress]:
    """Learn until `train.turns` are played, from `learner` if one is given, yielding once per `record_every` updates.

    Metrics are means over the updates or turns of a cycle; of agents `NAME` is the mean and `NAME/agent` has them all.

    Raises:
        DatasetMismatch: the dataset was collected for another world.
        TrainingDiverged: something is not finite; nothing is yielded of the updates since the last yield.
        DeviceFull: the device has no memory left.
        ValueError: the given learner is of other cycles.
    """
    check(config, dataset)
    world = make_world(config.env.rules)
    if state is None:
        with memory.told(config):
            state = init_state(config, world, dataset, base_keys(config, seed))
    cycles = int(state.player.turns[0]) / config.train.turns_per_cycle
    if int(state.updates[0]) != cycles * config.train.updates_per_cycle:
        raise ValueError(
            "the learner was trained with other turns_per_cycle or updates_per_cycle; keep both to go on"
        )
    yield from learn_from(config, world, state)


def learn_from(config: IqnConfig, world: World, state: State) -> Iterator[Progress]:
    """The same in any world."""
    updates = int(state.updates[0])
    while updates < config.train.steps:
        with memory.told(config):
            state, recorded = run_chunk(config, world, state)
            cycles = jax.device_get(recorded)
        records.refuse_divergence(cycles, updates)
        updates += config.train.record_every
        evaluates = config.train.evaluate_every and updates % config.train.evaluate_every == 0
        judged = judged_params(config, state)
        greedy = greedy_returns(config, world, judged, state.base_key) if evaluates else None
        yield Progress(
            updates,
            state,
            records.metrics(cycles, None if greedy is None else np.asarray(greedy)[None]),
        )


def from_arrays(config: IqnConfig, dataset: Dataset, arrays: dict[str, np.ndarray]) -> State:
    """The inverse of `pack`.

    Raises:
        ValueError: names, shapes or dtypes are not those of a learner of this config.
    """
    fresh = partial(init_state, config, make_world(config.env.rules))
    return packing.from_arrays(jax.eval_shape(fresh, dataset, base_keys(config, 0)), arrays)
