"""replay -> weights: a compiled loop of playing turns in all envs and updating every agent"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int, Key

from quatrain.envs.treasurehunt import turns
from quatrain.envs.treasurehunt.turns import World
from quatrain.envs.treasurehunt.world import make_world
from quatrain.frameworks.jax import packing
from quatrain.frameworks.jax.seeds import over_devices, over_seeds
from quatrain.models.iqn import network
from quatrain.models.iqn.collect import (
    LEARNERS,
    Dataset,
    check,
    to_transitions,
)
from quatrain.models.iqn.config import IqnConfig, LearnerConfig, Train
from quatrain.models.iqn.cycle import playing, records
from quatrain.models.iqn.cycle.acting import evaluation_network, greedy_policy
from quatrain.models.iqn.cycle.memory import explain_out_of_memory
from quatrain.models.iqn.cycle.playing import PlayState
from quatrain.models.iqn.cycle.updating import (
    Agent,
    Experience,
    optimizer,
    update_agents,
    window,
)
from quatrain.progress import Progress
from quatrain.replay.frames.ring import FrameRing, Transitions, from_transitions, write
from quatrain.replay.frames.sampling import valid_starts

WEIGHTS = ("params/", "target_params/")
to_arrays = packing.to_arrays
# Purposes of a seed's base key; turns and updates are folded in next, then agents.
INIT, WORLDS, PLAY, LEARN, EVALUATION_WORLDS, EVALUATION_PLAY = range(6)


class State(NamedTuple):
    """Holds everything that changes while learning; leaves begin with seed, then agent if any."""

    params: network.Params
    target_params: network.Params
    optimizer: Any
    play_state: PlayState
    ring: FrameRing
    base_key: Key[Array, "*seed"]
    updates: Int[Array, "*seed"]


def run_cycle(config: IqnConfig, world: World, state: State) -> tuple[State, records.Cycle]:
    """Plays, stores the turns and updates the agents, of one seed."""
    key = jax.random.fold_in(state.base_key, PLAY)
    play_state, played, epsilon = playing.play(config, world, state.params, state.play_state, key)
    ring = write(state.ring, to_transitions(played))
    experience = Experience(ring, valid_starts(ring, window(config)))
    agents, update_metrics = update_agents(
        config,
        Agent(state.params, state.target_params, state.optimizer),
        experience,
        jax.random.fold_in(state.base_key, LEARN),
        state.updates,
    )
    record = records.Cycle(
        update_metrics=update_metrics,
        play_metrics=playing.event_rates(config, played)
        | {"episode_return": play_state.episode_return},
        epsilon=epsilon[-1],
        agent_steps=config.env.agents * play_state.transitions,
        replay_valid=experience.starts.total,
    )
    updates = state.updates + config.train.updates_per_cycle
    return State(*agents, play_state, ring, state.base_key, updates), record


@partial(jax.jit, static_argnums=(0, 1, 2))
def run_chunk(
    config: IqnConfig, world: World, cycles: int, state: State
) -> tuple[State, records.Cycle]:
    """Runs this number of cycles of every seed; records are (seed, cycle, ...).

    The state is not donated: it stays valid when the next chunk diverges. Inside, the replay is
    written in place.
    """

    def run(first: State) -> tuple[State, records.Cycle]:
        return jax.lax.scan(
            lambda state, _: run_cycle(config, world, state),
            first,
            length=cycles,
        )

    return over_seeds(run, config.train.seed_parallelism)(state)


def evaluation_params(config: IqnConfig, state: State) -> network.Params:
    """Returns the parameters, of all seeds and agents, that act in evaluations."""
    return evaluation_network(config.train.acting, state.params, state.target_params)


@partial(jax.jit, static_argnums=(0, 1))
def greedy_returns(
    config: IqnConfig,
    world: World,
    params_and_key: tuple[network.Params, Key[Array, " seed"]],
) -> Float[Array, "seed agent"]:
    """Computes the mean return of a greedy episode in `evaluation_worlds` envs, always the same."""

    def evaluate_seed(
        params_and_key: tuple[network.Params, Array],
    ) -> Array:
        params, key = params_and_key
        worlds_key = jax.random.fold_in(key, EVALUATION_WORLDS)
        env_keys = jax.random.split(worlds_key, config.train.evaluation_worlds)
        rollout = turns.play(
            world,
            turns.start(world, env_keys, config.network.frames),
            greedy_policy(config, params),
            jax.random.fold_in(key, EVALUATION_PLAY),
            first_turn=jnp.int32(0),
            turns=config.env.max_turns,
        )
        return rollout.turns.rewards.sum(0).mean(-1)

    return over_seeds(evaluate_seed, config.train.seed_parallelism)(params_and_key)


def headline(config: IqnConfig) -> tuple[str, str]:
    return "episode_return", "greedy_return"


def init_state(config: IqnConfig, dataset: Dataset, seed: int) -> State:
    """Returns untrained agents, envs at their start, and replays with the prefill."""
    return init_in_world(
        config,
        make_world(config.env.rules),
        dataset.train,
        base_keys(config, seed),
    )


def base_keys(config: LearnerConfig, seed: int) -> Key[Array, " seed"]:
    """Returns the key of each seed, from which all its randomness is derived."""
    key = jax.random.fold_in(jax.random.key(seed), LEARNERS)
    return jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(config.seeds))


def init_params(config: IqnConfig, keys: Key[Array, " agent"]) -> network.Params:
    return network.init_agents(config.network, keys, config.inputs)


@partial(jax.jit, static_argnums=(0, 1))
def init_in_world(
    config: IqnConfig,
    world: World,
    prefill: Transitions,
    base_key: Key[Array, " seed"],
) -> State:
    """Returns what `init_state` returns, in any world and with a base key per seed."""

    def init_seed(
        prefill_and_key: tuple[Transitions, Array],
    ) -> State:
        prefill, key = prefill_and_key
        agent_keys = jax.random.split(jax.random.fold_in(key, INIT), config.env.agents)
        params = init_params(config, agent_keys)
        env_keys = jax.random.split(jax.random.fold_in(key, WORLDS), config.env.worlds)
        envs = turns.start(world, env_keys, config.network.frames)
        return State(
            params=params,
            target_params=params,
            optimizer=jax.vmap(optimizer(config.train).init)(params),
            play_state=playing.init_play_state(envs, prefill),
            ring=from_transitions(config.slots, prefill),
            base_key=key,
            updates=jnp.int32(0),
        )

    return over_seeds(init_seed, config.train.seed_parallelism)((prefill, base_key))


def update(
    config: IqnConfig, dataset: Dataset, state: State
) -> tuple[State, Mapping[str, np.ndarray]]:
    """Runs one cycle of all seeds, with the compiled program of `train`.

    Returns:
        The next state, and the metrics of the cycle, named as those of `train`.
    """
    world = make_world(config.env.rules)
    state, record = over_devices(partial(run_chunk, config, world, 1), config.seeds)(state)
    return state, records.metrics(jax.device_get(record), greedy=None)


def train(
    config: IqnConfig,
    dataset: Dataset,
    seed: int,
    state: State | None = None,
) -> Iterator[Progress]:
    """Trains until `train.turns` are played, from `state` if given.

    Yields once per `train.record_every` updates.

    Metrics are means over the updates or turns of a cycle; `NAME` is the mean over agents,
    `NAME/agent` has all agents.

    Raises:
        DatasetMismatch: the dataset was collected for another world.
        TrainingDiverged: something is not finite; raised before that state is yielded.
        DeviceFull: the device has no memory left.
        ValueError: the state was trained with other cycles.
    """
    check(config, dataset)
    if state is None:
        with explain_out_of_memory(config.replay_bytes):
            state = init_state(config, dataset, seed)
    check_cycles(config.train, int(state.play_state.turns[0]), int(state.updates[0]))
    yield from train_in_world(config, make_world(config.env.rules), state)


def check_cycles(config: Train, turns: int, updates: int) -> None:
    """Raises ValueError unless a learner of these turns and updates had the cycles of the
    config.
    """
    if updates != turns / config.turns_per_cycle * config.updates_per_cycle:
        raise ValueError(
            "the learner was trained with other turns_per_cycle or updates_per_cycle; "
            "keep both to go on"
        )


def train_in_world(config: IqnConfig, world: World, state: State) -> Iterator[Progress]:
    """Trains like `train`, in any world and from this state."""
    updates = int(state.updates[0])
    evaluate_every = config.train.evaluate_every
    cycles_per_record = config.train.cycles_per_record
    run = over_devices(partial(run_chunk, config, world, cycles_per_record), config.seeds)
    evaluate = over_devices(partial(greedy_returns, config, world), config.seeds)
    while updates < config.train.steps:
        with explain_out_of_memory(config.replay_bytes):
            state, record = run(state)
            cycles = jax.device_get(record)
        records.raise_if_diverged(cycles, updates)
        updates += config.train.record_every
        greedy = None
        if evaluate_every and updates % evaluate_every == 0:
            params = evaluation_params(config, state)
            greedy = np.asarray(evaluate((params, state.base_key)))[None]
        yield Progress(updates, state, records.metrics(cycles, greedy))


def from_arrays(config: IqnConfig, dataset: Dataset, arrays: dict[str, np.ndarray]) -> State:
    """Returns the state that these arrays hold, the inverse of `to_arrays`.

    Raises:
        ValueError: names, shapes or dtypes are not those of a state of this config.
    """
    template = jax.eval_shape(partial(init_state, config, seed=0), dataset)
    return packing.from_arrays(template, arrays)
