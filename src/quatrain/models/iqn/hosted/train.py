"""replay -> weights: turns of environments on the host, and compiled updates of every agent"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import lru_cache
from operator import itemgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float32, Key

from quatrain.envs.host.envs import HostEnvs
from quatrain.envs.host.episodes import play
from quatrain.envs.host.spaces import Interface
from quatrain.frameworks.jax import packing
from quatrain.frameworks.jax.seeds import over_seeds
from quatrain.models.iqn import network
from quatrain.models.iqn.cycle import records
from quatrain.models.iqn.cycle.acting import evaluation_network
from quatrain.models.iqn.cycle.memory import explain_out_of_memory
from quatrain.models.iqn.cycle.updating import (
    Experience,
    update_agents,
    window,
)
from quatrain.models.iqn.hosted.collect import Dataset, check
from quatrain.models.iqn.hosted.config import HostedIqnConfig
from quatrain.models.iqn.hosted.playing import (
    GreedyPolicy,
    Player,
    by_seed,
)
from quatrain.models.iqn.hosted.state import Best, Learner, State
from quatrain.models.iqn.hosted.state import from_arrays as from_arrays
from quatrain.models.iqn.hosted.state import init_state as init_state
from quatrain.models.iqn.train import (
    EVALUATION_WORLDS,
    LEARN,
    WORLDS,
    check_cycles,
)
from quatrain.progress import Progress
from quatrain.replay.frames.ring import (
    AnyArray,
    Transitions,
    write,
)
from quatrain.replay.frames.sampling import valid_starts

WEIGHTS = ("params/", "target_params/", "best/", "scale/")
to_arrays = packing.to_arrays


# Learning.


def headline(config: HostedIqnConfig) -> tuple[str, str]:
    return "episode_return", "greedy_return"


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
    turns = played.turns
    learner, columns = learning_program(config)(learner, turns)
    number = np.maximum((~turns.final).sum((1, 2), np.float32), 1)
    return learner, records.Cycle(
        **columns,
        play_metrics={
            "reward_per_turn": turns.rewards.sum((1, 3)) / number[:, None],
            "episode_return": played.episode_return,
        },
        epsilon=played.epsilon,
        agent_steps=turns.actions.shape[2] * played.transitions,
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


def make_player(config: HostedIqnConfig, state: State) -> Player:
    seeds = _env_seeds(state.base_key, WORLDS)
    return Player(config, state.scale, seeds, state.play_state)


def _env_seeds(base_key: Key[Array, " seed"], purpose: int) -> list[int]:
    draw = jax.vmap(lambda key: jax.random.bits(jax.random.fold_in(key, purpose)))
    return [int(seed) for seed in np.asarray(draw(base_key))]


# Evaluating.


class Evaluator:
    """Plays greedy episodes that are always the same, and keeps the best parameters."""

    def __init__(self, config: HostedIqnConfig, state: State) -> None:
        self.config = config
        self.scales = by_seed(state.scale)
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


# The stage.


def update(
    config: HostedIqnConfig, dataset: Dataset, state: State
) -> tuple[State, Mapping[str, np.ndarray]]:
    """Runs one cycle of all seeds, with the compiled programs of `train`, without evaluations.

    Returns:
        The next state, and the metrics of the cycle, named as those of `train`.
    """
    with closing(make_player(config, state)) as player:
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
    memory = replay_bytes(config, dataset.interface.restored)
    with explain_out_of_memory(memory):
        if state is None:
            state = init_state(config, dataset, seed)
    check_cycles(config.train, int(state.play_state.turns[0]), int(state.updates[0]))
    with (
        closing(make_player(config, state)) as player,
        closing(Evaluator(config, state)) as evaluator,
    ):
        yield from _train(config, player, evaluator, state, memory)


def _train(
    config: HostedIqnConfig, player: Player, evaluator: Evaluator, state: State, memory: int
) -> Iterator[Progress]:
    updates = int(state.updates[0])
    evaluate_every = config.train.evaluate_every
    while updates < config.train.steps:
        with explain_out_of_memory(memory):
            state, record = run_cycles(config, player, state, config.train.cycles_per_record)
        records.raise_if_diverged(record, updates)
        updates += config.train.record_every
        greedy = None
        if evaluate_every and updates % evaluate_every == 0:
            state, greedy_returns = evaluator.evaluate(state)
            greedy = greedy_returns[None]
        yield Progress(updates, state, records.metrics(record, greedy))


def replay_bytes(config: HostedIqnConfig, sizes: Interface) -> int:
    """Returns the size of all replays: an observation, an action and a reward per transition."""
    transitions = config.seeds * len(sizes.agents) * config.env.worlds * config.slots
    return transitions * (4 * sizes.observation_size + 5)
