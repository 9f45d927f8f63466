"""replay -> weights: turns of environments on the host, and compiled updates of every agent"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float32, Int32, Key

from quatrain.envs.host.envs import HostEnvs
from quatrain.envs.host.episodes import play
from quatrain.frameworks.arrays import ArraySpec, verify
from quatrain.frameworks.jax import packing
from quatrain.frameworks.jax.seeds import over_seeds
from quatrain.models.iqn import network
from quatrain.models.iqn.cycle import records
from quatrain.models.iqn.cycle.acting import evaluation_network
from quatrain.models.iqn.cycle.memory import explain_out_of_memory
from quatrain.models.iqn.cycle.updating import (
    Agent,
    Experience,
    optimizer,
    update_agents,
    window,
)
from quatrain.models.iqn.hosted.collect import Dataset, check, interface, scaled
from quatrain.models.iqn.hosted.config import HostedIqnConfig
from quatrain.models.iqn.hosted.playing import (
    GreedyPolicy,
    Player,
    PlayState,
    by_seed,
    init_play_state,
)
from quatrain.models.iqn.train import (
    EVALUATION_WORLDS,
    INIT,
    LEARN,
    WORLDS,
    base_keys,
    check_cycles,
)
from quatrain.progress import Progress
from quatrain.replay.frames.ring import (
    AnyArray,
    FrameRing,
    Transitions,
    from_transitions,
    write,
)
from quatrain.replay.frames.sampling import valid_starts

HEADLINE = ("episode_return", "greedy_return")
WEIGHTS = ("params/", "target_params/", "best/")
to_arrays = packing.to_arrays
# Stands for the greedy return where nothing was evaluated.
NOT_EVALUATED = float(np.finfo(np.float32).min)


class Best(NamedTuple):
    """Holds the parameters of the best greedy evaluation of each seed, and its mean return over
    agents; the first parameters, and NOT_EVALUATED, before any.
    """

    params: network.Params
    greedy_return: Float32[Array, "*seed"]


class Learner(NamedTuple):
    """Holds the part of the state that compiled programs change."""

    agents: Agent
    ring: FrameRing
    base_key: Key[Array, "*seed"]
    updates: Int32[Array, "*seed"]


class State(NamedTuple):
    """Holds everything that changes while learning; leaves begin with seed, then agent if any."""

    params: network.Params
    target_params: network.Params
    best: Best
    optimizer: Any
    play_state: PlayState
    ring: FrameRing
    base_key: Key[Array, " seed"]
    updates: Int32[Array, " seed"]

    @property
    def learner(self) -> Learner:
        agents = Agent(self.params, self.target_params, self.optimizer)
        return Learner(agents, self.ring, self.base_key, self.updates)

    def after(self, learner: Learner, play_state: PlayState) -> "State":
        """Returns the state with these parts."""
        return self._replace(
            **learner.agents._asdict(),
            play_state=play_state,
            ring=learner.ring,
            base_key=learner.base_key,
            updates=learner.updates,
        )


# Learning.


@lru_cache(maxsize=4)
def learning_program(
    config: HostedIqnConfig,
) -> Callable[[Learner, Transitions], tuple[Learner, dict[str, Any]]]:
    """Returns the compiled second half of a cycle, of all seeds: stores turns, updates the agents,
    and returns these columns of the record.

    It takes the memory of the learner that it is given.
    """

    def learn(seed: tuple[Learner, Transitions]) -> tuple[Learner, dict[str, Any]]:
        learner, turns = seed
        ring = write(learner.ring, turns)
        experience = Experience(ring, valid_starts(ring, window(config)))
        key = jax.random.fold_in(learner.base_key, LEARN)
        agents, metrics = update_agents(config, learner.agents, experience, key, learner.updates)
        updates = learner.updates + config.train.updates_per_cycle
        learned = Learner(agents, ring, learner.base_key, updates)
        return learned, {"update_metrics": metrics, "replay_valid": experience.starts.total}

    mapped = over_seeds(learn, config.train.seed_parallelism)
    return jax.jit(lambda *seeds: mapped(seeds), donate_argnums=0)


def run_cycle(
    config: HostedIqnConfig, player: Player, learner: Learner
) -> tuple[Learner, records.Cycle]:
    """Plays, stores the turns and updates the agents, of all seeds; leaves of the record begin with
    seed.
    """
    played = player.play(learner.agents.params, learner.base_key)
    learner, columns = learning_program(config)(learner, played.transitions)
    agents = played.transitions.actions.shape[2]
    turns = config.env.worlds * (config.collect.turns + played.turns)
    return learner, records.Cycle(
        **columns,
        play_metrics={
            "reward_per_turn": played.transitions.rewards.mean((1, 3)),
            "episode_return": played.episode_return,
        },
        epsilon=played.epsilon,
        agent_steps=agents * turns,
    )


def run_cycles(
    config: HostedIqnConfig, player: Player, state: State, count: int
) -> tuple[State, records.Cycle]:
    """Runs this number of cycles of all seeds; records are (seed, cycle, ...)."""
    learner = jax.tree.map(jnp.copy, state.learner)
    cycles = []
    for _ in range(count):
        learner, cycle = run_cycle(config, player, learner)
        cycles.append(cycle)
    record = jax.tree.map(lambda *leaves: np.stack(leaves, 1), *jax.device_get(cycles))
    return state.after(learner, player.state), record


def make_player(config: HostedIqnConfig, dataset: Dataset, state: State) -> Player:
    seeds = _env_seeds(state.base_key, WORLDS)
    return Player(config, dataset.scale, seeds, state.play_state)


def _env_seeds(base_key: Key[Array, " seed"], purpose: int) -> list[int]:
    draw = jax.vmap(lambda key: jax.random.bits(jax.random.fold_in(key, purpose)))
    return [int(seed) for seed in np.asarray(draw(base_key))]


# Evaluating.


class Evaluator:
    """Plays greedy episodes that are always the same, and keeps the best parameters."""

    def __init__(self, config: HostedIqnConfig, dataset: Dataset, state: State) -> None:
        self.config = config
        self.scales = by_seed(dataset.scale)
        count = config.train.evaluation_worlds
        seeds = _env_seeds(state.base_key, EVALUATION_WORLDS)
        self.envs = [HostEnvs(config.env, count, seed) for seed in seeds]

    def evaluate(self, state: State) -> tuple[State, Float32[np.ndarray, "seed agent"]]:
        """Returns the state with parameters that are at least as good as its best ones, and the
        mean greedy return.
        """
        params = evaluation_network(self.config.train.acting, state.params, state.target_params)
        returns = []
        for seed, (scale, envs) in enumerate(zip(self.scales, self.envs, strict=True)):
            seed_params = jax.tree.map(itemgetter(seed), params)
            episodes = play(envs, GreedyPolicy(self.config, scale, seed_params))
            returns.append(episodes.returns.mean(0))
        greedy = np.stack(returns).astype(np.float32)
        return state._replace(best=better(state.best, Best(params, greedy.mean(-1)))), greedy

    def close(self) -> None:
        for envs in self.envs:
            envs.close()


def better(best: Best, new: Best) -> Best:
    """Returns the better of each seed; of equals the new one, which has learned more."""
    is_better = np.asarray(new.greedy_return) >= np.asarray(best.greedy_return)

    def select(new_leaf: AnyArray, leaf: AnyArray) -> Array:
        return jnp.where(is_better.reshape(-1, *(1,) * (leaf.ndim - 1)), new_leaf, leaf)

    return jax.tree.map(select, new, best)


def evaluation_params(config: HostedIqnConfig, state: State) -> network.Params:
    """Returns the parameters, of all seeds and agents, that are judged: the best of the
    evaluations while training or, without any, the last.
    """
    if config.train.evaluate_every:
        return state.best.params
    return evaluation_network(config.train.acting, state.params, state.target_params)


# The state.


def init_state(config: HostedIqnConfig, dataset: Dataset, seed: int) -> State:
    """Returns untrained agents, envs before their first episode, and replays with the prefill."""
    frames = [
        scaled(scale, frames)
        for scale, frames in zip(by_seed(dataset.scale), dataset.train.frames, strict=True)
    ]
    learner = _init_learner(
        config, base_keys(config, seed), dataset.train._replace(frames=np.stack(frames))
    )
    params = learner.agents.params
    return State(
        params=params,
        target_params=learner.agents.target_params,
        best=Best(params, jnp.full(config.seeds, NOT_EVALUATED, jnp.float32)),
        optimizer=learner.agents.optimizer,
        play_state=init_play_state(config, dataset.train),
        ring=learner.ring,
        base_key=learner.base_key,
        updates=learner.updates,
    )


def init_params(config: HostedIqnConfig, base_key: Key[Array, ""]) -> network.Params:
    """Draws the first parameters of all agents of a seed."""
    sizes = interface(config)
    keys = jax.random.split(jax.random.fold_in(base_key, INIT), len(sizes.agents))
    inputs = config.network.frames * sizes.observation_size
    return network.init_agents(config.network, keys, inputs, sizes.action_count)


@partial(jax.jit, static_argnums=0)
def _init_learner(
    config: HostedIqnConfig, base_key: Key[Array, " seed"], prefill: Transitions
) -> Learner:
    def init_seed(seed: tuple[Array, Transitions]) -> Learner:
        key, transitions = seed
        params = init_params(config, key)
        return Learner(
            agents=Agent(params, params, jax.vmap(optimizer(config.train).init)(params)),
            ring=from_transitions(config.slots, transitions),
            base_key=key,
            updates=jnp.int32(0),
        )

    return over_seeds(init_seed, config.train.seed_parallelism)((base_key, prefill))


def from_arrays(config: HostedIqnConfig, dataset: Dataset, arrays: dict[str, np.ndarray]) -> State:
    """Returns the state that these arrays hold, the inverse of `to_arrays`.

    Raises:
        ValueError: names, shapes or dtypes are not those of a state of this config.
    """
    empty = init_play_state(config, dataset.train)
    on_host = to_arrays({"play_state": empty})
    verify(
        {name: array for name, array in arrays.items() if name.startswith("play_state/")},
        {name: ArraySpec(array.dtype, array.shape) for name, array in on_host.items()},
    )
    # JAX would store the counters of the environments in 32 bits.
    play_state = jax.tree.unflatten(jax.tree.structure(empty), [arrays[name] for name in on_host])
    others = {name: array for name, array in arrays.items() if name not in on_host}
    template: Any = jax.eval_shape(partial(init_state, config, dataset, seed=0))
    state = packing.from_arrays(template._replace(play_state=()), others)
    return state._replace(play_state=play_state)


# The stage.


def update(
    config: HostedIqnConfig, dataset: Dataset, state: State
) -> tuple[State, Mapping[str, np.ndarray]]:
    """Runs one cycle of all seeds, with the compiled programs of `train`, without evaluations.

    Returns:
        The next state, and the metrics of the cycle, named as those of `train`.
    """
    with closing(make_player(config, dataset, state)) as player:
        state, record = run_cycles(config, player, state, 1)
    return state, records.metrics(record, greedy=None)


def train(
    config: HostedIqnConfig,
    dataset: Dataset,
    seed: int,
    state: State | None = None,
) -> Iterator[Progress]:
    """Trains until `train.turns` are played, from `state` if given.

    Yields once per `train.record_every` updates. Metrics are those of iqn in its own world, but for
    the events of that world.

    Raises:
        DatasetMismatch: the dataset was collected in another environment.
        DataError: the environment raised, or does not repeat a saved episode.
        TrainingDiverged: something is not finite; raised before that state is yielded.
        DeviceFull: the device has no memory left.
        ValueError: the state was trained with other cycles.
    """
    check(config, dataset)
    with explain_out_of_memory(replay_bytes(config)):
        if state is None:
            state = init_state(config, dataset, seed)
    check_cycles(config.train, int(state.play_state.turns[0]), int(state.updates[0]))
    with (
        closing(make_player(config, dataset, state)) as player,
        closing(Evaluator(config, dataset, state)) as evaluator,
    ):
        yield from _train(config, player, evaluator, state)


def _train(
    config: HostedIqnConfig, player: Player, evaluator: Evaluator, state: State
) -> Iterator[Progress]:
    updates = int(state.updates[0])
    evaluate_every = config.train.evaluate_every
    while updates < config.train.steps:
        with explain_out_of_memory(replay_bytes(config)):
            state, record = run_cycles(config, player, state, config.train.cycles_per_record)
        records.raise_if_diverged(record, updates)
        updates += config.train.record_every
        greedy = None
        if evaluate_every and updates % evaluate_every == 0:
            state, greedy_returns = evaluator.evaluate(state)
            greedy = greedy_returns[None]
        yield Progress(updates, state, records.metrics(record, greedy))


def replay_bytes(config: HostedIqnConfig) -> int:
    """Returns the size of all replays: an observation, an action and a reward per transition."""
    sizes = interface(config)
    transitions = config.seeds * len(sizes.agents) * config.env.worlds * config.slots
    return transitions * (4 * sizes.observation_size + 5)
