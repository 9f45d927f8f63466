"""config -> environments that step on the host, with a state that can be saved and restored.

An environment cannot be copied, but it repeats: `reset(seed=...)` and the same actions give the
same episode. The state therefore holds the number of each running episode, from which its seed
follows, and the actions taken in it; restoring plays them again, and compares what it observes.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64, Shaped

from quatrain.envs.host.config import HostEnv
from quatrain.envs.host.masks import masks_of
from quatrain.envs.host.rows import AgentRows
from quatrain.envs.host.spaces import Interface, SavedInterface, to_flag, to_reward
from quatrain.envs.host.user_code import ByAgent, interface_of, make, user_code
from quatrain.envs.host.worker import Worker
from quatrain.errors import DataError, DatasetMismatch


class Transition(NamedTuple):
    """One step of all environments.

    next_obs: of the same episode, also where it ended with this step. An episode ends when it has
    for all agents; one that left before observes zeros, and is paid none.
    """

    obs: Shaped[np.ndarray, "env agent obs"]
    actions: Shaped[np.ndarray, "env agent *action"]
    rewards: Float32[np.ndarray, "env agent"]
    terminated: Bool[np.ndarray, " env"]
    truncated: Bool[np.ndarray, " env"]
    next_obs: Shaped[np.ndarray, "env agent obs"]


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
    obs: Shaped[np.ndarray, "env agent obs"]


def empty_states(interface: Interface, num_envs: int) -> EnvStates:
    """Returns the states of environments that begin their first episodes."""
    steps = interface.max_episode_steps
    shape = (num_envs, steps, len(interface.agents), *interface.action_shape)
    obs_shape = (num_envs, len(interface.agents), interface.observation_size)
    return EnvStates(
        episode=np.zeros(num_envs, np.int64),
        elapsed=np.zeros(num_envs, np.int64),
        actions=np.zeros(shape, interface.action_dtype),
        obs=np.zeros(obs_shape, interface.observation_dtype),
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
        self._envs: list[Any] = []
        self._index = 0
        self.after_step: Callable[[Any], None] | None = None
        """Called with an environment after each of its steps; it is not yet reset."""
        with ExitStack() as closing_if_refused:
            closing_if_refused.callback(self.close)
            self._begin_first(num_envs)
            closing_if_refused.pop_all()

    def _begin_first(self, num_envs: int) -> None:
        """Makes the environments and starts the first episode of each."""
        config = self.config
        env = make(config)
        self._envs.append(env)
        self._envs += (self._further() for _ in range(1, num_envs))
        if config.vectorization == "async":
            for worker in self._envs[1:]:
                worker.wait()
        self._episode, self._elapsed = np.zeros((2, num_envs), np.int64)
        with self._named_errors():
            observed, infos = env.reset(seed=self._seed_of(0))
            masks = masks_of(infos)
        self.interface = interface_of(config, env, bool(masks))
        states = empty_states(self.interface, num_envs)
        self._episode, self._elapsed, self._actions, self.obs = states
        self._is_gone = np.zeros(self.obs.shape[:2], bool)
        with self._named_errors():
            self.agents = [
                AgentRows(self.interface, env, agent, agent in masks)
                for agent in self.interface.agents
            ]
            first = self._observations(0, observed, masks)
        self.restart()
        self._check_repeats(0, first)

    def _further(self) -> Any:
        """Makes an environment beside the first: in a process of its own, or in this one."""
        return Worker(self.config) if self.config.vectorization == "async" else make(self.config)

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
        self._begin(np.arange(len(self._envs)), states.episode)
        for step in range(int(states.elapsed.max())):
            turn = self.step(states.actions[:, step], states.elapsed > step)
            for steps in states.elapsed[turn.terminated | turn.truncated]:
                raise DataError(
                    f"env {self.config.name}: a saved episode of {steps} steps ends after "
                    f"{step + 1} when it is played again; {MUST_REPEAT}"
                )
        for index in np.flatnonzero(states.elapsed + states.episode):
            self._check_repeats(int(index), states.obs[index])

    def _check_repeats(self, index: int, obs: Any) -> None:
        if not np.array_equal(self.obs[index], obs):
            self._index = index
            with self._named_errors():
                raise DataError(f"played again, it shows other observations; {MUST_REPEAT}")

    def restart(self, episode: int = 0) -> None:
        """Begins the episode of this number in every environment, in place."""
        self._begin(np.arange(len(self._envs)), np.full(len(self._envs), episode))

    def step(
        self,
        actions: Shaped[np.ndarray, "env agent *action"],
        active: Bool[np.ndarray, " env"] | None = None,
    ) -> Transition:
        """Steps environments, in place; ended episodes are followed by their next ones.

        active: which ones, all if None; the others stay as they are, without a reward.

        Raises:
            DataError: an environment raised, or returned what its spaces do not allow.
        """
        count = len(self._envs)
        turn = Transition(
            obs=self.obs,
            actions=np.asarray(actions),
            rewards=np.zeros(self.obs.shape[:2], np.float32),
            terminated=np.zeros(count, bool),
            truncated=np.zeros(count, bool),
            next_obs=self.obs.copy(),
        )
        moving = np.arange(count) if active is None else np.flatnonzero(active)
        self._actions[moving, self._elapsed[moving]] = turn.actions[moving]
        self._elapsed[moving] += 1
        with self._named_errors():
            joint = {
                index: self._joint_action(index, turn.actions[index]) for index in moving.tolist()
            }
            self._ask("step", joint)
            for index, joint_action in joint.items():
                self._index = index
                self._step_env(index, joint_action, turn)
        self.obs = turn.next_obs.copy()
        ended = np.flatnonzero(turn.terminated | turn.truncated)
        self._begin(ended, self._episode[ended] + 1)
        return turn

    def close(self) -> None:
        """Closes all environments, also where some raise.

        Raises:
            DataError: an environment raised, and no other error is on its way.
        """
        errors = []
        for index, env in enumerate(self._envs):
            self._index = index
            try:
                with self._named_errors("close: "):
                    env.close()
            except DataError as error:
                errors.append(error)
        if errors and sys.exc_info()[0] is None:
            raise errors[0]

    def _begin(
        self, indices: Int64[np.ndarray, " begun"], episodes: Shaped[np.ndarray, " begun"]
    ) -> None:
        self._episode[indices] = episodes
        self._elapsed[indices] = 0
        self._actions[indices] = 0
        self._is_gone[indices] = False
        seeds = {index: self._seed_of(index) for index in indices.tolist()}
        self._ask("reset", seeds)
        for index, seed in seeds.items():
            self.obs[index] = self._reset(index, seed)

    def _seed_of(self, index: int) -> int:
        entropy = (self.seed, index, int(self._episode[index]))
        return int(np.random.SeedSequence(entropy).generate_state(1)[0] >> 1)

    def _ask(self, method: str, arguments: Mapping[int, Any]) -> None:
        """Lets the workers begin, so that all of them compute at once."""
        if self.config.vectorization == "async":
            for index in arguments.keys() - {0}:  # the first one is in this process
                self._envs[index].ask(method, arguments[index])

    def _reset(self, index: int, seed: int) -> list[Shaped[np.ndarray, " obs"]]:
        self._index = index
        with self._named_errors():
            observed, infos = self._envs[index].reset(seed=seed)
            return self._observations(index, observed, infos)

    def _joint_action(self, index: int, row: Shaped[np.ndarray, "agent *action"]) -> ByAgent:
        """Returns the actions of the agents that are there."""
        agents = zip(self.agents, row, self._is_gone[index], strict=True)
        return {agent.name: agent.to_action(action) for agent, action, gone in agents if not gone}

    def _step_env(self, index: int, actions: ByAgent, turn: Transition) -> None:
        """Steps an environment, and writes its row of the turn."""
        observed, reward, terminated, truncated, infos = self._envs[index].step(actions)
        if self.after_step is not None:
            self.after_step(self._envs[index])
        present = np.flatnonzero(~self._is_gone[index])
        names = [self.agents[place].name for place in present]
        terminal = np.array([to_flag("terminated", terminated[name]) for name in names])
        over = terminal | [to_flag("truncated", truncated[name]) for name in names]
        has_ended = bool(over.all())
        self._is_gone[index, present] = over & (not has_ended)
        turn.next_obs[index] = self._observations(index, observed, infos, has_ended)
        turn.rewards[index, present] = [to_reward(reward[name]) for name in names]
        is_last = self._elapsed[index] >= self.interface.max_episode_steps
        turn.terminated[index] = terminal.all()
        turn.truncated[index] = not terminal.all() and (has_ended or is_last)

    def _observations(
        self, index: int, observed: ByAgent, infos: Any, has_ended: bool = False
    ) -> list[Shaped[np.ndarray, " obs"]]:
        """Returns the rows of all agents, of those that are gone without what they see.

        Raises:
            DataError: an observation is missing, or is none of its space.
        """
        masks = masks_of(infos) if self.interface.has_mask else {}
        rows = []
        for agent, is_gone in zip(self.agents, self._is_gone[index], strict=True):
            if not is_gone and agent.name not in observed:
                raise DataError(
                    f"agent {agent.name} has no observation; return one of each agent that has "
                    "not ended, and where the step ends the episode for all, their last ones: "
                    "they value an episode that time cuts off"
                )
            rows.append(
                agent.empty
                if is_gone
                else agent.read(observed[agent.name], masks.get(agent.name), has_ended)
            )
        return rows

    def _named_errors(self, call: str = "") -> AbstractContextManager[None]:
        """Names the environment `_index`, its episode and step in whatever it raises."""
        return user_code(
            lambda reason: (
                f"env {self.config.name} (number {self._index}, episode "
                f"{self._episode[self._index]}, step {self._elapsed[self._index]}): {call}{reason}"
            )
        )


def check_interface(
    config: HostEnv, saved: SavedInterface, make_envs: type[HostEnvs] = HostEnvs
) -> None:
    """Makes the environment, and checks that it still is as a dataset knows it; a recording is
    none.

    Raises:
        DatasetMismatch: its agents, spaces or limit of steps are others.
        DataError: it cannot be made, or has spaces that no learner here can use.
    """
    if config.kind == "recording":
        return
    with closing(make_envs(config, 1, seed=0)) as envs:
        actual = envs.interface
    for name, value, before in zip(Interface._fields, actual, saved.restored, strict=True):
        if value != before:
            raise DatasetMismatch(
                f"the dataset was not collected in {config.name} as it is now: its {name} is "
                f"{value}, and was {before}; collect again (`dvc repro`)"
            )


# Environments that step together to evaluate; more cost memory and time to make.
MOST_ENVS = 8

Act = Callable[[Shaped[np.ndarray, "env agent obs"]], Shaped[np.ndarray, "env agent *action"]]
# Begins a policy anew: one that remembers an episode acts along one episode of each environment.
Begin = Callable[[], Act]


class Episodes(NamedTuple):
    """Holds one row per episode; returns are not discounted."""

    returns: Float64[np.ndarray, "episode agent"]
    lengths: Int64[np.ndarray, " episode"]
    terminated: Bool[np.ndarray, " episode"]

    @property
    def mean_returns(self) -> Float64[np.ndarray, " episode"]:
        """Returns the mean over agents, which share their episodes."""
        return self.returns.mean(1)


def join(parts: Sequence[Episodes]) -> Episodes:
    return Episodes(*map(np.concatenate, zip(*parts, strict=True)))


def play_episodes(config: HostEnv, count: int, seed: int, begin: Begin) -> Episodes:
    """Plays so many episodes in environments of their own; the seed decides how they begin.

    Raises:
        DataError: the environment cannot be made, or raised.
    """
    with closing(HostEnvs(config, min(count, MOST_ENVS), seed)) as envs:
        return play_range(envs, begin, 0, count)


def play_range(envs: HostEnvs, begin: Begin, first: int, count: int) -> Episodes:
    """Plays the episodes `first` to `first + count - 1`, in place; those of the same number are the
    same for each policy.

    Raises:
        DataError: an environment raised, or returned what its spaces do not allow.
    """
    size = len(envs.obs)
    passes = []
    for episode in range(first // size, -(-(first + count) // size)):
        number = episode * size + np.arange(size)
        active = (first <= number) & (number < first + count)
        passes.append(play(envs, begin(), episode, active))
    return join(passes)


def play(
    envs: HostEnvs, act: Act, episode: int = 0, active: Bool[np.ndarray, " env"] | None = None
) -> Episodes:
    """Plays the episode of this number in each environment that is active, all if None, in place.

    An environment that has played its own waits for the others: the first episodes to end would be
    the shortest.

    Raises:
        DataError: an environment raised, or returned what its spaces do not allow.
    """
    envs.restart(episode)
    running = np.ones(len(envs.obs), bool) if active is None else active.copy()
    selected = running.copy()
    episodes = Episodes(np.zeros(envs.obs.shape[:2]), running * 0, running & False)
    while running.any():
        turn = envs.step(act(envs.obs), running)
        episodes.returns[:] += turn.rewards
        episodes.lengths[:] += running
        episodes.terminated[:] |= turn.terminated
        running &= ~(turn.terminated | turn.truncated)
    return Episodes(*(column[selected] for column in episodes))
