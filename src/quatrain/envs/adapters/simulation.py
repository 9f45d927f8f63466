"""a batch of worlds -> Gymnasium environments: one world alone, or all of them as a vector."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

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
RENDER_MODES = ("rgb_array",)
UNKNOWN_OPTIONS = "reset() takes no options, got {}; remove them."
RESET_NEEDED = "No episode is running: call reset() before step()."


class Outcome(NamedTuple):
    """Holds what a step of all worlds returns beside observations."""

    rewards: Float[np.ndarray, "env *agent"]
    terminated: Bool[np.ndarray, " env"]
    truncated: Bool[np.ndarray, " env"]


@runtime_checkable
class Simulation(Protocol):
    """Describes worlds that step together; the caller says when an episode begins."""

    num_envs: int
    frames_per_second: int

    @property
    def observation_space(self) -> Space[Any]:
        """Returns the space of one world."""

    @property
    def action_space(self) -> Space[Any]:
        """Returns the space of one world."""

    @property
    def observations(self) -> Observation:
        """Returns the observations after the last `step` or `begin`; the caller copies them."""

    def seed(self, seed: int) -> None:
        """Sets the random numbers of everything that follows."""

    def begin(self, mask: Bool[np.ndarray, " env"]) -> None:
        """Starts new episodes in the marked worlds."""

    def step(self, actions: Shaped[np.ndarray, "env ..."]) -> Outcome:
        """Steps all worlds.

        Raises:
            ValueError: an action is not allowed.
        """

    def info(self) -> dict[str, np.ndarray]:
        """Returns what `info` tells of each world."""

    def picture(self, env: int) -> UInt8[np.ndarray, "height width 3"]:
        """Draws a world."""


class SimulationEnv(gymnasium.Env[Observation, Any]):
    """Steps one world. Actions are never clipped; those that the world refuses raise ValueError."""

    def __init__(self, simulation: Simulation, render_mode: str | None = None) -> None:
        self.metadata = _metadata(simulation)
        self.observation_space = simulation.observation_space
        self.action_space = simulation.action_space
        self.render_mode = check_render_mode(render_mode)
        self._simulation = simulation
        self._seeded = False
        self._running = False

    def reset(
        self, *, seed: int | None = None, options: Info | None = None
    ) -> tuple[Observation, Info]:
        """Starts an episode; without a seed continues the random numbers, or seeds them randomly.

        Raises:
            ValueError: there are options.
        """
        check_options(options)
        super().reset(seed=seed)
        if seed is not None or not self._seeded:
            self._simulation.seed(int(self.np_random.integers(2**63)))
            self._seeded = True
        self._simulation.begin(np.ones(1, bool))
        self._running = True
        return _part(self._simulation.observations, 0), self._info()

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, Info]:
        """Computes one step.

        Raises:
            ValueError: the action is not allowed.
            gymnasium.error.ResetNeeded: the episode has ended, or was never started.
        """
        if not self._running:
            raise gymnasium.error.ResetNeeded(RESET_NEEDED)
        values = np.asarray(action)
        if values.shape != self.action_space.shape:
            raise ValueError(f"An action has shape {self.action_space.shape}, got {values.shape}.")
        outcome = self._simulation.step(values[None])
        terminated = bool(outcome.terminated[0])
        truncated = bool(outcome.truncated[0])
        self._running = not (terminated or truncated)
        observation = _part(self._simulation.observations, 0)
        return observation, float(outcome.rewards[0]), terminated, truncated, self._info()

    def render(self) -> Any:
        """Returns the picture of the world, or None without a render_mode."""
        return self._simulation.picture(0) if self.render_mode else None

    def _info(self) -> Info:
        return {name: np.array(values[0]) for name, values in self._simulation.info().items()}


class SimulationVectorEnv(VectorEnv[Observation, np.ndarray, np.ndarray]):
    """Steps worlds together and resets a world in the step that ends its episode.

    In such a step `info` holds, as in Gymnasium, final_obs and final_info of the marked worlds.
    """

    def __init__(
        self,
        simulation: Simulation,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
    ) -> None:
        self.metadata = _metadata(simulation) | {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.num_envs = simulation.num_envs
        self.single_observation_space = simulation.observation_space
        self.single_action_space = simulation.action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.render_mode = check_render_mode(render_mode)
        self._simulation = simulation
        self._max_episode_steps = max_episode_steps
        self._elapsed = np.zeros(self.num_envs, np.int64)
        self._seeded = False
        self._started = False

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: Info | None = None
    ) -> tuple[Observation, Info]:
        """Starts all episodes; without a seed continues the random numbers, or seeds them randomly.

        Raises:
            ValueError: there are options, or a list of seeds.
        """
        check_options(options)
        if isinstance(seed, list):
            raise ValueError("reset() takes one seed for all worlds, not a list; give one number.")
        super().reset(seed=seed)
        if seed is not None or not self._seeded:
            self._simulation.seed(int(self.np_random.integers(2**63)))
            self._seeded = True
        self._simulation.begin(np.ones(self.num_envs, bool))
        self._elapsed = np.zeros_like(self._elapsed)
        self._started = True
        return _part(self._simulation.observations), self._info()

    def step(
        self, actions: np.ndarray
    ) -> tuple[Observation, np.ndarray, np.ndarray, np.ndarray, Info]:
        """Steps all worlds.

        Raises:
            ValueError: actions have the wrong shape, or one is not allowed.
            gymnasium.error.ResetNeeded: reset was never called.
        """
        if not self._started:
            raise gymnasium.error.ResetNeeded(RESET_NEEDED)
        values = np.asarray(actions)
        if values.shape != self.action_space.shape:
            raise ValueError(f"Actions have shape {self.action_space.shape}, got {values.shape}.")
        outcome = self._simulation.step(values)
        self._elapsed += 1
        truncated = outcome.truncated
        if self._max_episode_steps is not None:
            late = self._elapsed >= self._max_episode_steps
            truncated = truncated | (late & ~outcome.terminated)
        final = self._restart(outcome.terminated | truncated)
        observations = _part(self._simulation.observations)
        return observations, outcome.rewards, outcome.terminated, truncated, self._info() | final

    def render(self) -> tuple[Any, ...] | None:
        """Returns a picture of each world, or None without a render_mode."""
        if not self.render_mode:
            return None
        return tuple(self._simulation.picture(env) for env in range(self.num_envs))

    def _info(self) -> Info:
        return _masked(self._simulation.info(), np.ones(self.num_envs, bool))

    def _restart(self, ended: Bool[np.ndarray, " env"]) -> Info:
        """Starts the next episode of worlds that ended; returns what they ended with."""
        if not ended.any():
            return {}
        before = self._simulation.observations
        observations = np.full(self.num_envs, None, dtype=object)
        for env in ended.nonzero()[0]:
            observations[env] = _part(before, env)
        final_info = _masked(self._simulation.info(), ended)
        self._simulation.begin(ended)
        self._elapsed[ended] = 0
        return {
            "final_obs": observations,
            "_final_obs": ended,
            "final_info": final_info,
            "_final_info": ended,
        }


def check_options(options: Info | None) -> None:
    """Raises ValueError if there are options of a reset."""
    if options:
        raise ValueError(UNKNOWN_OPTIONS.format(sorted(options)))


def check_render_mode(render_mode: str | None) -> str | None:
    """Returns the render mode.

    Raises:
        DataError: it is unknown.
    """
    if render_mode is not None and render_mode not in RENDER_MODES:
        raise DataError(f"render_mode {render_mode!r} is unknown; give 'rgb_array' or None")
    return render_mode


def check_discrete(actions: Shaped[np.ndarray, "..."], count: int) -> None:
    """Raises ValueError unless all actions are whole numbers from 0 to count - 1."""
    whole = np.issubdtype(actions.dtype, np.integer)
    if not whole or (actions < 0).any() or (actions >= count).any():
        values = actions.ravel().tolist()
        raise ValueError(f"An action is a whole number in 0..{count - 1}, got {values}.")


def _metadata(simulation: Simulation) -> dict[str, Any]:
    return {"render_modes": list(RENDER_MODES), "render_fps": simulation.frames_per_second}


def _part(observations: Observation, worlds: Any = ...) -> Observation:
    """Returns a copy of the observations of one world, or of all."""
    if isinstance(observations, dict):
        return {name: np.array(values[worlds]) for name, values in observations.items()}
    return np.array(observations[worlds])


def _masked(info: dict[str, np.ndarray], mask: Bool[np.ndarray, " env"]) -> Info:
    """Returns arrays over all worlds, each with a mask, as Gymnasium's vector environments do."""
    copies = {name: np.array(values) for name, values in info.items()}
    return copies | {f"_{name}": mask for name in info}
