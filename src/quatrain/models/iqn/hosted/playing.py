"""parameters, environments on the host -> turns of all of them: the first half of a cycle"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import NamedTuple, TypeVar

import jax
import numpy as np
from jax import Array
from jaxtyping import Float32, Int8, Int32, Key

from quatrain.envs.host.envs import EnvStates, HostEnvs
from quatrain.frameworks.jax.seeds import over_seeds
from quatrain.models.iqn import network
from quatrain.models.iqn.cycle.acting import epsilon_greedy_actions, greedy_actions, midpoints
from quatrain.models.iqn.cycle.playing import epsilon_at
from quatrain.models.iqn.hosted.collect import Dataset, Final, ReplayEnvs, Scale, scaled, stack
from quatrain.models.iqn.hosted.config import HostedIqnConfig
from quatrain.models.iqn.train import PLAY
from quatrain.replay.frames.ring import Transitions

Columns = TypeVar("Columns", bound=tuple)


class PlayState(NamedTuple):
    """Holds everything that changes while playing, as numpy arrays.

    history: the scaled observations before the next one, oldest first, zeros before the episode.
    turns: of each env, without the prefill. transitions: of an agent in all envs, with the prefill:
    turns but for final ones. episodes: finished in all envs, with the prefill. reward_sums: in the
    current episodes. episode_return: mean over the episodes that ended in the last cycle in which
    any ended; 0 before.
    """

    envs: EnvStates
    final: Final
    history: Float32[np.ndarray, "seed agent env past_inputs"]
    turns: Int32[np.ndarray, " seed"]
    transitions: Int32[np.ndarray, " seed"]
    episodes: Int32[np.ndarray, " seed"]
    reward_sums: Float32[np.ndarray, "seed agent env"]
    episode_return: Float32[np.ndarray, "seed agent"]


class Played(NamedTuple):
    """Holds the turns of a cycle, (seed, turn, ...) with scaled observations, the epsilon of the
    last one, and counts after it (PlayState).
    """

    turns: Transitions
    epsilon: Float32[Array, " seed"]
    transitions: Int32[np.ndarray, " seed"]
    episode_return: Float32[np.ndarray, "seed agent"]


def init_play_state(config: HostedIqnConfig, dataset: Dataset) -> PlayState:
    """Returns the state before the first turn, with the number of the prefill's episodes."""
    sizes, prefill = dataset.interface.restored, dataset.train
    per_env = (config.seeds, config.env.worlds)
    per_agent = (config.seeds, len(sizes.agents), config.env.worlds)
    actions = (*per_env, sizes.max_episode_steps, len(sizes.agents))
    past_inputs = (config.network.frames - 1) * sizes.observation_size
    per_obs = (*per_env, len(sizes.agents), sizes.observation_size)
    finished = np.asarray(prefill.terminated | prefill.final).sum((1, 2), np.int32)
    return PlayState(
        envs=EnvStates(
            episode=np.zeros(per_env, np.int64),
            elapsed=np.zeros(per_env, np.int64),
            actions=np.zeros(actions, np.int64),
            obs=np.zeros(per_obs, np.float32),
        ),
        final=Final(np.zeros(per_env, np.int64), np.zeros(per_obs, np.float32)),
        history=np.zeros((*per_agent, past_inputs), np.float32),
        turns=np.zeros(config.seeds, np.int32),
        transitions=np.asarray(~prefill.final).sum((1, 2), np.int32),
        episodes=finished,
        reward_sums=np.zeros(per_agent, np.float32),
        episode_return=np.zeros(per_agent[:2], np.float32),
    )


@lru_cache(maxsize=4)
def acting_program(config: HostedIqnConfig) -> Callable[..., tuple[Array, Array]]:
    """Returns the compiled policy of all seeds: (parameters, base keys, turns, transitions,
    episodes, stacks) -> actions (seed, agent, env) and the epsilon of each seed.
    """

    def act(seed: tuple) -> tuple[Int8[Array, "agent env"], Float32[Array, ""]]:
        params, base_key, turns, transitions, episodes, stacks = seed
        epsilon = epsilon_at(config.train.acting, transitions, episodes)
        key = jax.random.fold_in(jax.random.fold_in(base_key, PLAY), turns)
        policy = partial(epsilon_greedy_actions, config, epsilon=epsilon)
        keys = jax.random.split(key, len(stacks))
        return jax.vmap(lambda *agent: policy(*agent))(params, keys, stacks), epsilon

    mapped = over_seeds(act, config.train.seed_parallelism)
    return jax.jit(lambda *seeds: mapped(seeds))


class Player:
    """Plays the training environments of all seeds; `state` holds everything that it changes."""

    def __init__(
        self, config: HostedIqnConfig, scale: Scale, env_seeds: Sequence[int], state: PlayState
    ) -> None:
        """Makes environments and restores their state.

        Raises:
            DataError: they cannot be made, or do not repeat their running episodes.
        """
        self.config = config
        self.scales = by_seed(scale)
        self._state = state
        self._act = acting_program(config)
        worlds = config.env.worlds
        self._envs = [ReplayEnvs(HostEnvs(config.env, worlds, seed)) for seed in env_seeds]
        parts = (self._envs, by_seed(state.envs), by_seed(state.final))
        for envs, states, final in zip(*parts, strict=True):
            envs.envs.restore(states)
            envs.final = final

    @property
    def state(self) -> PlayState:
        """Returns a copy of everything that playing changes."""
        states = zip(*(envs.envs.states for envs in self._envs), strict=True)
        final = zip(*(envs.final for envs in self._envs), strict=True)
        return self._state._replace(
            envs=EnvStates(*map(np.stack, states)), final=Final(*map(np.stack, final))
        )

    def play(self, params: network.Params, base_key: Key[Array, " seed"]) -> Played:
        """Plays `turns_per_cycle` turns of all environments."""
        before = self._state
        turns = []
        returns = np.zeros_like(before.episode_return)
        for _ in range(self.config.train.turns_per_cycle):
            stacks = self._stacks()
            counts = (self._state.turns, self._state.transitions, self._state.episodes)
            actions, epsilon = self._act(params, base_key, *counts, stacks)
            steps = map(ReplayEnvs.step, self._envs, np.asarray(actions).swapaxes(1, 2))
            past_inputs = self._state.history.shape[-1]
            turn = stack(list(steps))._replace(frames=stacks[..., past_inputs:])
            returns += self._count(turn, stacks)
            turns.append(turn)
        finished = (self._state.episodes - before.episodes)[:, None]
        means = (returns / np.maximum(finished, 1)).astype(np.float32)
        mean_return = np.where(finished > 0, means, before.episode_return)
        self._state = self._state._replace(episode_return=mean_return)
        return Played(stack(turns, axis=1), epsilon, self._state.transitions, mean_return)

    def _count(self, turn: Transitions, stacks: np.ndarray) -> Float32[np.ndarray, "seed agent"]:
        """Counts a turn; returns the sum of the returns of the episodes that ended with it."""
        state = self._state
        ended = turn.terminated | turn.final
        ended_agents = ended[:, None]
        sums = state.reward_sums + turn.rewards
        size = stacks.shape[-1] - state.history.shape[-1]
        self._state = state._replace(
            history=np.where(ended_agents[..., None], np.float32(0), stacks[..., size:]),
            turns=state.turns + np.int32(1),
            transitions=state.transitions + (~turn.final).sum(1, dtype=np.int32),
            episodes=state.episodes + ended.sum(1, dtype=np.int32),
            reward_sums=np.where(ended_agents, np.float32(0), sums),
        )
        return np.where(ended_agents, sums, np.float32(0)).sum(-1)

    def close(self) -> None:
        for envs in self._envs:
            envs.close()

    def _stacks(self) -> Float32[np.ndarray, "seed agent env inputs"]:
        frames = [
            scaled(scale, envs.obs).swapaxes(0, 1)
            for scale, envs in zip(self.scales, self._envs, strict=True)
        ]
        return np.concatenate([self._state.history, np.stack(frames)], -1)


def by_seed(columns: Columns) -> list[Columns]:
    """Returns a NamedTuple of each seed, from one whose columns begin with axis seed."""
    return [type(columns)(*rows) for rows in zip(*map(np.asarray, columns), strict=True)]


@lru_cache(maxsize=4)
def greedy_program(config: HostedIqnConfig) -> Callable[[network.Params, np.ndarray], Array]:
    """Returns the compiled greedy policy of one seed: its parameters, stacks (agent, env, inputs)
    -> actions (agent, env).
    """
    taus = midpoints(config.train.acting.quantiles)
    return jax.jit(jax.vmap(lambda params, stack: greedy_actions(config, params, stack, taus)))


class GreedyPolicy:
    """Acts along one episode of each env, from their first turn on, with one seed's networks."""

    def __init__(self, config: HostedIqnConfig, scale: Scale, params: network.Params) -> None:
        """Takes the scale and the parameters, which begin with axis agent, of one seed."""
        self._past_frames = config.network.frames - 1
        self._scale = scale
        self._params = params
        self._program = greedy_program(config)
        self.stacks = np.zeros(0, np.float32)
        """Inputs of the last turn, (agent, env, inputs); empty before the first."""

    def __call__(self, obs: Float32[np.ndarray, "env agent obs"]) -> Int8[np.ndarray, "env agent"]:
        frames = scaled(self._scale, obs).swapaxes(0, 1)
        size = frames.shape[-1]
        history = self.stacks[..., size:]
        if self.stacks.size == 0:
            history = np.zeros((*frames.shape[:-1], self._past_frames * size), np.float32)
        self.stacks = np.concatenate([history, frames], -1)
        return np.asarray(self._program(self._params, self.stacks)).T
