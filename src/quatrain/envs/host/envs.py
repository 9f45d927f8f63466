"""config -> environments that step on the host, with a state that can be saved and restored.

An environment cannot be copied, but it repeats: `reset(seed=...)` and the same actions give the
same episode. The state therefore holds the number of each running episode, from which its seed
follows, and the actions taken in it; restoring plays them again, and compares what it observes.
"""

import sys
from contextlib import AbstractContextManager, closing
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int64, Shaped

from quatrain.envs.host.config import HostEnv
from quatrain.envs.host.parallel import ByAgent, interface_of, make
from quatrain.envs.host.returned import reader, to_flag, to_reward
from quatrain.envs.host.spaces import Interface, SavedInterface, to_action
from quatrain.envs.host.user_code import user_code
from quatrain.errors import DataError, DatasetMismatch


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


MUST_REPEAT = (
    "make reset(seed=...) decide all randomness of the environment: seed a generator of its own "
    "there (super().reset(seed=seed) seeds self.np_random), and draw from no other"
)


class EnvStates(NamedTuple):
    """Holds all that restores the environments; actions beyond `elapsed` are zeros.

    obs: what the environments show, to see that they repeat; of no meaning before the first step
    of the first episode.
    """

    episode: Int64[np.ndarray, " env"]
    elapsed: Int64[np.ndarray, " env"]
    actions: Shaped[np.ndarray, "env step agent *action"]
    obs: Float32[np.ndarray, "env agent obs"]


def empty_states(interface: Interface, num_envs: int) -> EnvStates:
    """Returns the states of environments that begin their first episodes."""
    steps = interface.max_episode_steps
    shape = (num_envs, steps, len(interface.agents), *interface.action_shape)
    return EnvStates(
        episode=np.zeros(num_envs, np.int64),
        elapsed=np.zeros(num_envs, np.int64),
        actions=np.zeros(shape, interface.action_dtype),
        obs=np.zeros((num_envs, len(interface.agents), interface.observation_size), np.float32),
    )


class HostEnvs:
    """Steps environments together; one whose episode ended is reset in the same step.

    `obs` holds the current observations, (env, agent, obs). The same seed and actions give the same
    observations if the environment keeps Gymnasium's promise that a seed decides an episode.
    """

    def __init__(self, config: HostEnv, num_envs: int, seed: int) -> None:
        """Makes the environments and starts the first episode of each.

        Raises:
            DataError: the environment cannot be made or reset, or begins otherwise when it is reset
                with the same seed.
        """
        self.config = config
        self.seed = seed
        self._envs = [make(config) for _ in range(num_envs)]
        env = self._envs[0]
        self.interface = interface_of(config, env)
        agents = self.interface.agents
        states = empty_states(self.interface, num_envs)
        self._episode, self._elapsed, self._actions, self.obs = states
        with self._named_errors(0):
            self._read = {
                agent: reader(f"the observation of {agent}", env.observation_space(agent))
                for agent in agents
            }
            self._action_spaces = {agent: env.action_space(agent) for agent in agents}
        for index in range(num_envs):
            self.obs[index] = self._reset(index)
        self._check_repeats(0, self._reset(0))

    @property
    def elapsed(self) -> Int64[np.ndarray, " env"]:
        """Returns a copy of the numbers of steps since the running episodes began."""
        return self._elapsed.copy()

    @property
    def states(self) -> EnvStates:
        """Returns a copy of all that `restore` needs."""
        parts = (self._episode, self._elapsed, self._actions, self.obs)
        return EnvStates(*(part.copy() for part in parts))

    def restore(self, states: EnvStates) -> None:
        """Plays the running episodes of these states again, in place.

        Raises:
            DataError: the states are of other environments, or an episode shows other observations
                or ends before its time: the environment does not repeat.
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
                self.obs[index] = outcome.next_obs
                if outcome.terminated or outcome.truncated:
                    raise DataError(
                        f"env {self.config.name}: a saved episode of {steps} steps ends after "
                        f"{step + 1} when it is played again; {MUST_REPEAT}"
                    )
            if steps or self._episode[index]:
                self._check_repeats(index, states.obs[index])

    def _check_repeats(self, index: int, obs: Float32[np.ndarray, "agent obs"]) -> None:
        if not np.array_equal(self.obs[index], obs):
            with self._named_errors(index):
                raise DataError(f"played again, it shows other observations; {MUST_REPEAT}")

    def restart(self) -> None:
        """Begins the first episode of every environment, in place."""
        for index in range(len(self._envs)):
            self._begin(index, 0)

    def step(
        self,
        actions: Shaped[np.ndarray, "env agent *action"],
        active: Bool[np.ndarray, " env"] | None = None,
    ) -> Turn:
        """Steps environments, in place; ended episodes are followed by their next ones.

        active: which ones, all if None; the others stay as they are, without a reward.

        Raises:
            DataError: an environment raised, or returned what its spaces do not allow.
        """
        count = len(self._envs)
        turn = Turn(
            obs=self.obs.copy(),
            actions=np.asarray(actions),
            rewards=np.zeros(self.obs.shape[:2], np.float32),
            terminated=np.zeros(count, bool),
            truncated=np.zeros(count, bool),
            next_obs=self.obs.copy(),
        )
        for index in map(int, np.flatnonzero(np.ones(count) if active is None else active)):
            outcome = self._step_env(index, actions[index])
            turn.rewards[index] = outcome.rewards
            turn.terminated[index] = outcome.terminated
            turn.truncated[index] = outcome.truncated
            turn.next_obs[index] = self.obs[index] = outcome.next_obs
            if outcome.terminated or outcome.truncated:
                self._begin(index, int(self._episode[index]) + 1)
        return turn

    def close(self) -> None:
        """Closes all environments, also where some raise.

        Raises:
            DataError: an environment raised, and no other error is on its way.
        """
        errors = []
        for index, env in enumerate(self._envs):
            try:
                with self._named_errors(index, "close: "):
                    env.close()
            except DataError as error:
                errors.append(error)
        if errors and sys.exc_info()[0] is None:
            raise errors[0]

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
            terminal = {agent: to_flag("terminated", terminated[agent]) for agent in agents}
            cut = {agent: to_flag("truncated", truncated[agent]) for agent in agents}
            has_ended = _for_all({agent: terminal[agent] or cut[agent] for agent in agents})
            has_terminated = all(terminal.values())
            next_obs = self._observations(observed, has_ended)
            rewards = np.array([to_reward(reward[agent]) for agent in agents], np.float32)
        is_last = bool(self._elapsed[index] >= self.interface.max_episode_steps)
        return _Outcome(
            rewards=rewards,
            terminated=has_terminated,
            truncated=not has_terminated and (has_ended or is_last),
            next_obs=next_obs,
        )

    def _observations(
        self, observed: ByAgent, has_ended: bool = False
    ) -> Float32[np.ndarray, "agent obs"]:
        missing = [agent for agent in self.interface.agents if agent not in observed]
        if missing and has_ended:
            raise DataError(
                f"the step ends the episode for all agents, but {missing[0]} has no observation; "
                "return the last ones too: they value an episode that time cuts off"
            )
        if missing:
            raise DataError(
                f"agent {missing[0]} has no observation: an agent that leaves before the others is "
                "not supported; wrap the environment so that it stays (SuperSuit black_death_v3)"
            )
        return np.stack([self._read[agent](observed[agent]) for agent in self.interface.agents])

    def _named_errors(self, index: int, call: str = "") -> AbstractContextManager[None]:
        """Names the environment, its episode and step in whatever it raises."""
        return user_code(
            lambda reason: (
                f"env {self.config.name} (number {index}, episode {self._episode[index]}, step "
                f"{self._elapsed[index]}): {call}{reason}"
            )
        )


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


def check_interface(config: HostEnv, saved: SavedInterface) -> None:
    """Makes the environment, and checks that it still is as a dataset knows it.

    Raises:
        DatasetMismatch: its agents, spaces or limit of steps are others.
        DataError: it cannot be made, or has spaces that no learner here can use.
    """
    with closing(HostEnvs(config, 1, seed=0)) as envs:
        actual = envs.interface
    for name, value, before in zip(Interface._fields, actual, saved.restored, strict=True):
        if value != before:
            raise DatasetMismatch(
                f"the dataset was not collected in {config.name} as it is now: its {name} is "
                f"{value}, and was {before}; collect again (`dvc repro`)"
            )
