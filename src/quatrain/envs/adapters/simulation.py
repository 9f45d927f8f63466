"""a batch of worlds -> Gymnasium environments: one world alone, or all of them as a vector."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Space
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from jaxtyping import Bool, Float, Shaped, UInt8

from quatrain.errors import DataError

Info = dict[str, Any]
# An array, or arrays by name in a Dict space.
Observation = np.ndarray | dict[str, np.ndarray]


class Outcome(NamedTuple):
    """Holds what a step of all worlds returns beside observations."""

    rewards: Float[np.ndarray, "env *agent"]
    terminated: Bool[np.ndarray, " env"]
    truncated: Bool[np.ndarray, " env"]


class Simulation(ABC):
    """Describes worlds that step together; the caller says when an episode begins."""

    frames_per_second = 8
    observations: Any
    """The observations after the last `step` or `begin`; the caller copies them."""

    def __init__(
        self, num_envs: int, observation_space: Space[Any], action_space: Space[Any]
    ) -> None:
        """Takes the spaces of one world."""
        self.num_envs = num_envs
        self.observation_space = observation_space
        self.action_space = action_space

    @abstractmethod
    def seed(self, seed: int) -> None:
        """Sets the random numbers of everything that follows."""

    @abstractmethod
    def begin(self, mask: Bool[np.ndarray, " env"]) -> None:
        """Starts new episodes in the marked worlds."""

    @abstractmethod
    def step(self, actions: Shaped[np.ndarray, "env ..."]) -> Outcome:
        """Steps all worlds.

        Raises:
            ValueError: an action is not allowed.
        """

    def info(self) -> dict[str, np.ndarray]:
        """Returns what `info` tells of each world."""
        return {}

    @abstractmethod
    def picture(self, env: int) -> UInt8[np.ndarray, "height width 3"]:
        """Draws a world."""


class SimulationBase:
    """Holds what all APIs do with a simulation: its seed is drawn once, or whenever one is given;
    no step goes before a reset; actions have the shape of their space.
    """

    LARGEST_SEED = 2**63
    np_random: np.random.Generator

    def __init__(self, simulation: Simulation, render_mode: str | None = None) -> None:
        """Raises DataError if the render mode is unknown."""
        modes = ["rgb_array"]
        if render_mode not in (None, *modes):
            raise DataError(f"render_mode {render_mode!r} is unknown; give 'rgb_array' or None")
        self.metadata = {"render_modes": modes, "render_fps": simulation.frames_per_second}
        self.render_mode = render_mode
        self._simulation = simulation
        self._seeded = False
        self._running = False

    def _begin(self, seed: int | None, options: Info | None = None) -> None:
        if options:
            raise ValueError(f"reset() takes no options, got {sorted(options)}; remove them.")
        if seed is not None or not self._seeded:
            self._simulation.seed(int(self.np_random.integers(self.LARGEST_SEED)))
        self._seeded = self._running = True
        self._simulation.begin(np.ones(self._simulation.num_envs, bool))

    def _check_running(self) -> None:
        if not self._running:
            raise gymnasium.error.ResetNeeded("No episode is running: call reset() before step().")

    def _checked(self, actions: Any, space: Space[Any], subject: str) -> np.ndarray:
        """Returns the actions of a running episode.

        Raises:
            ValueError: their shape is not that of the space.
        """
        self._check_running()
        values = np.asarray(actions)
        if values.shape != space.shape:
            raise ValueError(f"{subject} shape {space.shape}, got {values.shape}.")
        return values

    def _observed(self, worlds: Any = ...) -> Observation:
        """Returns a copy of the observations of one world, or of all."""
        observations = self._simulation.observations
        if isinstance(observations, dict):
            return {name: np.array(values[worlds]) for name, values in observations.items()}
        return np.array(observations[worlds])

    def _picture(self, env: int) -> Any:
        return self._simulation.picture(env) if self.render_mode else None


class SimulationEnv(SimulationBase, gymnasium.Env[Observation, Any]):
    """Steps one world. Actions are never clipped; those that the world refuses raise ValueError."""

    def __init__(self, simulation: Simulation, render_mode: str | None = None) -> None:
        super().__init__(simulation, render_mode)
        self.observation_space = simulation.observation_space
        self.action_space = simulation.action_space

    def reset(
        self, *, seed: int | None = None, options: Info | None = None
    ) -> tuple[Observation, Info]:
        """Starts an episode; without a seed continues the random numbers, or seeds them randomly.

        Raises:
            ValueError: there are options.
        """
        super().reset(seed=seed)
        self._begin(seed, options)
        return self._observed(0), self._info()

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, Info]:
        """Computes one step.

        Raises:
            ValueError: the action is not allowed.
            gymnasium.error.ResetNeeded: the episode has ended, or was never started.
        """
        values = self._checked(action, self.action_space, "An action has")
        outcome = self._simulation.step(values[None])
        reward, terminated, truncated = (column[0].item() for column in outcome)
        self._running = not (terminated or truncated)
        return self._observed(0), reward, terminated, truncated, self._info()

    def render(self) -> Any:
        """Returns the picture of the world, or None without a render_mode."""
        return self._picture(0)

    def _info(self) -> Info:
        return {name: np.array(values[0]) for name, values in self._simulation.info().items()}


class SimulationVectorEnv(SimulationBase, VectorEnv[Observation, np.ndarray, np.ndarray]):
    """Steps worlds together and resets a world in the step that ends its episode.

    In such a step `info` holds, as in Gymnasium, final_obs and final_info of the marked worlds.
    """

    def __init__(
        self,
        simulation: Simulation,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
    ) -> None:
        super().__init__(simulation, render_mode)
        self.metadata["autoreset_mode"] = AutoresetMode.SAME_STEP
        self.num_envs = simulation.num_envs
        self.single_observation_space = simulation.observation_space
        self.single_action_space = simulation.action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._max_episode_steps = np.inf if max_episode_steps is None else max_episode_steps
        self._elapsed = np.zeros(self.num_envs, np.int64)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: Info | None = None
    ) -> tuple[Observation, Info]:
        """Starts all episodes; without a seed continues the random numbers, or seeds them randomly.

        Raises:
            ValueError: there are options, or a list of seeds.
        """
        if isinstance(seed, list):
            raise ValueError("reset() takes one seed for all worlds, not a list; give one number.")
        super().reset(seed=seed)
        self._begin(seed, options)
        self._elapsed[:] = 0
        return self._observed(), self._info(np.ones(self.num_envs, bool))

    def step(
        self, actions: np.ndarray
    ) -> tuple[Observation, np.ndarray, np.ndarray, np.ndarray, Info]:
        """Steps all worlds.

        Raises:
            ValueError: actions have the wrong shape, or one is not allowed.
            gymnasium.error.ResetNeeded: reset was never called.
        """
        values = self._checked(actions, self.action_space, "Actions have")
        rewards, terminated, truncated = self._simulation.step(values)
        self._elapsed += 1
        truncated = truncated | (~terminated & (self._elapsed >= self._max_episode_steps))
        final = self._restart(terminated | truncated)
        info = self._info(np.ones(self.num_envs, bool))
        return self._observed(), rewards, terminated, truncated, info | final

    def render(self) -> tuple[Any, ...] | None:
        """Returns a picture of each world, or None without a render_mode."""
        return tuple(map(self._picture, range(self.num_envs))) if self.render_mode else None

    def _info(self, mask: Bool[np.ndarray, " env"]) -> Info:
        """Returns arrays over all worlds, each with a mask, as Gymnasium's vector environments."""
        info = self._simulation.info()
        copies = {name: np.array(values) for name, values in info.items()}
        return copies | {f"_{name}": mask for name in info}

    def _restart(self, ended: Bool[np.ndarray, " env"]) -> Info:
        """Starts the next episode of worlds that ended; returns what they ended with."""
        if not ended.any():
            return {}
        last = np.full(self.num_envs, None, dtype=object)
        for env in ended.nonzero()[0]:
            last[env] = self._observed(env)
        info = {"final_obs": last, "final_info": self._info(ended)}
        self._simulation.begin(ended)
        self._elapsed[ended] = 0
        return info | {f"_{name}": ended for name in info}


def check_discrete(actions: Shaped[np.ndarray, "..."], count: int) -> None:
    """Raises ValueError unless all actions are whole numbers from 0 to count - 1."""
    whole = np.issubdtype(actions.dtype, np.integer)
    if not whole or (actions < 0).any() or (actions >= count).any():
        values = actions.ravel().tolist()
        raise ValueError(f"An action is a whole number in 0..{count - 1}, got {values}.")
