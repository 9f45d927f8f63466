"""config -> environments that step on the host, with a state that can be saved and restored.

An environment cannot be copied, but it repeats: `reset(seed=...)` and the same actions give the
same episode. The state therefore holds the number of each running episode, from which its seed
follows, and the actions taken in it; restoring plays them again.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, runtime_checkable

import gymnasium
import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64, Shaped

from quatrain.envs.host.config import HostEnv
from quatrain.envs.host.spaces import Interface, describe, flatten, to_action
from quatrain.errors import DataError

# name of an agent -> its value of one step.
ByAgent = Mapping[str, Any]
# The only agent of a Gymnasium environment.
AGENT = "agent"


class Turn(NamedTuple):
    """Holds one step of all environments.

    next_obs: of the same episode, also where it ended with this step. An episode ends for all
    agents at once.
    """

    obs: Float32[np.ndarray, "env agent obs"]
    actions: Shaped[np.ndarray, "env agent *action"]
    rewards: Float32[np.ndarray, "env agent"]
    terminated: Bool[np.ndarray, " env"]
    truncated: Bool[np.ndarray, " env"]
    next_obs: Float32[np.ndarray, "env agent obs"]


class Episodes(NamedTuple):
    """Holds an episode of each environment: undiscounted sums of rewards, and numbers of steps."""

    returns: Float64[np.ndarray, "agent env"]
    lengths: Int64[np.ndarray, " env"]


# (observations (env, agent, obs), steps since the episodes began) -> actions (env, agent, *action).
Policy = Callable[[np.ndarray, int], np.ndarray]


class EnvStates(NamedTuple):
    """Holds all that restores the environments; actions beyond `elapsed` are zeros."""

    episode: Int64[np.ndarray, " env"]
    elapsed: Int64[np.ndarray, " env"]
    actions: Shaped[np.ndarray, "env step agent *action"]


@runtime_checkable
class ParallelEnv(Protocol):
    """Describes an environment whose agents act at once, as PettingZoo defines it."""

    possible_agents: list[str]

    def reset(self, seed: int | None = None) -> tuple[ByAgent, ByAgent]: ...

    def step(self, actions: ByAgent) -> tuple[ByAgent, ByAgent, ByAgent, ByAgent, ByAgent]: ...

    def observation_space(self, agent: str) -> Any: ...

    def action_space(self, agent: str) -> Any: ...

    def close(self) -> None: ...


class SingleAgent:
    """Shows a Gymnasium environment as one of parallel agents."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.possible_agents = [AGENT]

    def reset(self, seed: int | None = None) -> tuple[ByAgent, ByAgent]:
        obs, info = self.env.reset(seed=seed)
        return {AGENT: obs}, {AGENT: info}

    def step(self, actions: ByAgent) -> tuple[ByAgent, ByAgent, ByAgent, ByAgent, ByAgent]:
        obs, reward, terminated, truncated, info = self.env.step(actions[AGENT])
        return (
            {AGENT: obs},
            {AGENT: reward},
            {AGENT: terminated},
            {AGENT: truncated},
            {AGENT: info},
        )

    def observation_space(self, agent: str) -> Any:  # noqa: ARG002
        return self.env.observation_space

    def action_space(self, agent: str) -> Any:  # noqa: ARG002
        return self.env.action_space

    def close(self) -> None:
        self.env.close()


def make(config: HostEnv) -> ParallelEnv:
    """Makes one environment.

    Raises:
        DataError: it cannot be imported or made.
    """
    module, _, attribute = (config.import_ or "").partition(":")
    kwargs: dict[str, Any] = dict(config.kwargs)
    try:
        imported = importlib.import_module(module) if module else None
        if attribute:
            env = getattr(imported, attribute)(**kwargs)
        else:
            env = gymnasium.make(str(config.id), **kwargs)
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise DataError(
            f"env {config.name} cannot be made: {type(error).__name__}: {reason}; mend the "
            "keys id, import and kwargs of env in params.yaml, or install its package"
        ) from error
    if config.kind == "pettingzoo":
        if not hasattr(env, "possible_agents"):
            raise DataError(
                f"env {config.name} is a {type(env).__name__} without possible_agents; "
                "name a PettingZoo parallel environment, or set kind: gymnasium"
            )
        return env
    if not hasattr(env, "observation_space") or hasattr(env, "possible_agents"):
        raise DataError(
            f"env {config.name} is a {type(env).__name__}, which is no Gymnasium environment; "
            "return a gymnasium.Env, or set kind: pettingzoo"
        )
    return SingleAgent(env)


def _interface(name: str, env: ParallelEnv) -> Interface:
    return describe(
        name,
        {
            agent: (env.observation_space(agent), env.action_space(agent))
            for agent in env.possible_agents
        },
    )


@lru_cache(maxsize=16)
def interface(config: HostEnv) -> Interface:
    """Returns the sizes of observations and actions, from an environment that is made once for it.

    Raises:
        DataError: it cannot be made, or has spaces that no learner here can use.
    """
    env = make(config)
    try:
        return _interface(config.name, env)
    finally:
        env.close()


class HostEnvs:
    """Steps environments together; one whose episode ended is reset in the same step.

    `obs` holds the current observations, (env, agent, obs). The same seed and actions give the same
    observations if the environment keeps Gymnasium's promise that a seed decides an episode.
    """

    def __init__(self, config: HostEnv, num_envs: int, seed: int) -> None:
        """Makes the environments and starts the first episode of each.

        Raises:
            DataError: the environment cannot be made or reset.
        """
        self.interface = interface(config)
        self.config = config
        self.seed = seed
        self._envs = [make(config) for _ in range(num_envs)]
        env = self._envs[0]
        agents = self.interface.agents
        self._observation_spaces = {agent: env.observation_space(agent) for agent in agents}
        self._action_spaces = {agent: env.action_space(agent) for agent in agents}
        shape = (num_envs, config.max_episode_steps, len(agents), *self.interface.action_shape)
        self._episode = np.zeros(num_envs, np.int64)
        self._elapsed = np.zeros(num_envs, np.int64)
        self._actions: np.ndarray = np.zeros(shape, self.interface.action_dtype)
        self.obs = np.stack([self._reset(index) for index in range(num_envs)])

    @property
    def elapsed(self) -> Int64[np.ndarray, " env"]:
        """Returns a copy of the numbers of steps since the running episodes began."""
        return self._elapsed.copy()

    @property
    def states(self) -> EnvStates:
        """Returns a copy of all that `restore` needs."""
        return EnvStates(self._episode.copy(), self._elapsed.copy(), self._actions.copy())

    def restore(self, states: EnvStates) -> None:
        """Plays the running episodes of these states again, in place.

        Raises:
            DataError: the states are of other environments, or an episode ends before its time:
                the environment does not repeat.
        """
        if states.actions.shape != self._actions.shape:
            raise DataError(
                f"env {self.config.name}: the saved episodes have the shape "
                f"{states.actions.shape}, not {self._actions.shape}; train again"
            )
        self._episode = states.episode.astype(np.int64)
        self._elapsed = np.zeros_like(states.elapsed)
        self._actions[:] = 0
        for index, steps in enumerate(states.elapsed):
            self.obs[index] = self._reset(index)
            for step in range(int(steps)):
                outcome = self._step_env(index, states.actions[index, step])
                if outcome.terminated or outcome.truncated:
                    raise DataError(
                        f"env {self.config.name}: a saved episode of {steps} steps ends after "
                        f"{step + 1} when it is played again; make reset(seed=...) decide all "
                        "randomness of the environment"
                    )
                self.obs[index] = outcome.next_obs

    def step(self, actions: Shaped[np.ndarray, "env agent *action"]) -> Turn:
        """Steps all environments, in place; ended episodes are followed by their next ones.

        Raises:
            DataError: an environment raised, or returned what its spaces do not allow.
        """
        obs = self.obs.copy()
        outcomes = [self._step_env(index, action) for index, action in enumerate(actions)]
        for index, outcome in enumerate(outcomes):
            if outcome.terminated or outcome.truncated:
                self._begin(index, int(self._episode[index]) + 1)
            else:
                self.obs[index] = outcome.next_obs
        return Turn(
            obs=obs,
            actions=np.asarray(actions),
            rewards=np.stack([outcome.rewards for outcome in outcomes]),
            terminated=np.array([outcome.terminated for outcome in outcomes]),
            truncated=np.array([outcome.truncated for outcome in outcomes]),
            next_obs=np.stack([outcome.next_obs for outcome in outcomes]),
        )

    def play(self, policy: Policy) -> Episodes:
        """Plays the first episode of every environment, in place; one that ended waits for the
        others.

        Raises:
            DataError: an environment raised, or returned what its spaces do not allow.
        """
        for index in range(len(self._envs)):
            self._begin(index, 0)
        returns = np.zeros(self.obs.shape[1::-1])
        lengths = np.zeros(len(self._envs), np.int64)
        running = np.ones(len(self._envs), bool)
        turn = 0
        while running.any():
            actions = policy(self.obs, turn)
            for index in map(int, np.flatnonzero(running)):
                outcome = self._step_env(index, actions[index])
                self.obs[index] = outcome.next_obs
                returns[:, index] += outcome.rewards
                lengths[index] += 1
                running[index] = not (outcome.terminated or outcome.truncated)
            turn += 1
        return Episodes(returns, lengths)

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _begin(self, index: int, episode: int) -> None:
        self._episode[index] = episode
        self._elapsed[index] = 0
        self._actions[index] = 0
        self.obs[index] = self._reset(index)

    def _reset(self, index: int) -> Float32[np.ndarray, "agent obs"]:
        entropy = (self.seed, index, int(self._episode[index]))
        seed = int(np.random.SeedSequence(entropy).generate_state(1)[0] >> 1)
        with self._named_errors(index):
            observed, _ = self._envs[index].reset(seed=seed)
            return self._observations(observed)

    def _step_env(self, index: int, action: Shaped[np.ndarray, "agent *action"]) -> "_Outcome":
        env = self._envs[index]
        agents = self.interface.agents
        elapsed = int(self._elapsed[index])
        self._actions[index, elapsed] = action
        self._elapsed[index] += 1
        with self._named_errors(index):
            observed, reward, terminated, truncated, _ = env.step(
                {
                    agent: to_action(self._action_spaces[agent], action[place])
                    for place, agent in enumerate(agents)
                }
            )
            next_obs = self._observations(observed)
            rewards = np.array([float(reward[agent]) for agent in agents], np.float32)
            if not np.isfinite(rewards).all():
                raise DataError(f"reward {rewards.tolist()} is not finite")
            has_ended = _for_all({agent: terminated[agent] or truncated[agent] for agent in agents})
        has_terminated = all(terminated[agent] for agent in agents)
        is_last = bool(self._elapsed[index] >= self.config.max_episode_steps)
        return _Outcome(
            rewards=rewards,
            terminated=has_terminated,
            truncated=not has_terminated and (has_ended or is_last),
            next_obs=next_obs,
        )

    def _observations(self, observed: ByAgent) -> Float32[np.ndarray, "agent obs"]:
        missing = [agent for agent in self.interface.agents if agent not in observed]
        if missing:
            raise DataError(
                f"agent {missing[0]} has no observation: an agent that leaves before the others is "
                "not supported; wrap the environment so that it stays (SuperSuit black_death_v3)"
            )
        rows = [
            flatten(self._observation_spaces[agent], observed[agent])
            for agent in self.interface.agents
        ]
        for agent, row in zip(self.interface.agents, rows, strict=True):
            if len(row) != self.interface.observation_size or not np.isfinite(row).all():
                raise DataError(
                    f"the observation of {agent} is not finite, or has {len(row)} numbers in "
                    f"place of {self.interface.observation_size}"
                )
        return np.stack(rows)

    @contextmanager
    def _named_errors(self, index: int) -> Iterator[None]:
        """Names the environment, its episode and step in whatever it raises."""
        try:
            yield
        except Exception as error:
            what = "" if isinstance(error, DataError) else f"{type(error).__name__}: "
            raise DataError(
                f"env {self.config.name} (number {index}, episode {self._episode[index]}, step "
                f"{self._elapsed[index]}): {what}{' '.join(str(error).split())[:300]}"
            ) from error


class _Outcome(NamedTuple):
    rewards: Float32[np.ndarray, " agent"]
    terminated: bool
    truncated: bool
    next_obs: Float32[np.ndarray, "agent obs"]


def _for_all(flags: ByAgent) -> bool:
    """Returns whether the episode ended.

    Raises:
        DataError: it ended for some agents only.
    """
    ended = sorted(agent for agent, has_ended in flags.items() if has_ended)
    if ended and len(ended) < len(flags):
        raise DataError(
            f"the episode ended for {ended[0]} but not for all agents; an agent that leaves before "
            "the others is not supported (SuperSuit black_death_v3 keeps it)"
        )
    return bool(ended)
