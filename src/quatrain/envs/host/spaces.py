"""an environment's spaces -> sizes of arrays, and actions as the environment takes them"""

from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.spaces.utils import flatdim
from jaxtyping import Bool, Float64, Int64, Shaped, UInt8

from quatrain.errors import DataError

# Largest bounds of actions: float32 tells half integers apart, and has a finite width between.
MOST_INTEGER = 2.0**22
MOST_FLOAT = float(np.finfo(np.float32).max) / 2


class Interface(NamedTuple):
    """Holds what a learner must know of an environment; hashable, so that jit may take it.

    agents: their names; one for Gymnasium. observation_size: of one agent, flattened (Discrete
    spaces as one-hot vectors). action_count: of a Discrete action space, else 0. action_low,
    action_high: bounds of a Box, else empty. has_integers: whether that Box holds integers.
    max_episode_steps: after which an episode is truncated.
    """

    agents: tuple[str, ...]
    observation_size: int
    action_count: int
    action_low: tuple[float, ...]
    action_high: tuple[float, ...]
    has_integers: bool
    max_episode_steps: int

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Returns the shape of one agent's action: () of an index, (size,) of a vector."""
        return () if self.action_count else (len(self.action_low),)

    @property
    def action_dtype(self) -> type:
        return np.int64 if self.action_count else np.float32

    @property
    def action_range(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Returns the bounds between which a learner chooses; those of a Box of integers lie half
        beyond it, so that rounding gives each integer an equal share.
        """
        half = 0.5 if self.has_integers else 0.0
        return tuple(low - half for low in self.action_low), tuple(
            high + half for high in self.action_high
        )

    @property
    def saved(self) -> "SavedInterface":
        """Returns the same as arrays, which a dataset holds."""
        names = "\n".join(self.agents).encode()
        return SavedInterface(np.frombuffer(names, np.uint8), *map(np.array, self[1:]))


class SavedInterface(NamedTuple):
    """Holds an Interface as arrays: whoever has a dataset needs no environment to know its sizes.

    agents: their names in UTF-8, one a line.
    """

    agents: UInt8[np.ndarray, " byte"]
    observation_size: Int64[np.ndarray, ""]
    action_count: Int64[np.ndarray, ""]
    action_low: Float64[np.ndarray, " action"]
    action_high: Float64[np.ndarray, " action"]
    has_integers: Bool[np.ndarray, ""]
    max_episode_steps: Int64[np.ndarray, ""]

    @property
    def restored(self) -> Interface:
        """Returns what was saved.

        Raises:
            ValueError: the names of the agents are no UTF-8.
        """
        numbers: list[Any] = [
            tuple(array.tolist()) if array.ndim else array.item() for array in self[1:]
        ]
        return Interface(tuple(self.agents.tobytes().decode().split("\n")), *numbers)


def describe(agents: dict[str, tuple[Any, Any]], max_episode_steps: int) -> Interface:
    """Returns the interface of an environment, from the observation and action space of each agent.

    Raises:
        DataError: agents have different spaces, or spaces that no learner here can use.
    """
    interfaces = {agent: _describe_agent(*spaces) for agent, spaces in agents.items()}
    if not interfaces:
        raise DataError("possible_agents is empty; list the agents that ever act")
    first = next(iter(interfaces.values()))
    for agent, other in interfaces.items():
        if other != first:
            raise DataError(
                f"agent {agent} has other spaces than {next(iter(interfaces))}; "
                "wrap the environment so that all agents have equal ones (SuperSuit pads them)"
            )
    return first._replace(agents=tuple(interfaces), max_episode_steps=max_episode_steps)


def _describe_agent(observation: Any, action: Any) -> Interface:
    for kind, space in (("observation", observation), ("action", action)):
        if not isinstance(space, gymnasium.Space):
            raise DataError(
                f"{kind}_space is {space!r}; set it to a gymnasium.Space in the constructor"
            )
    try:
        size = int(flatdim(observation))
    except (NotImplementedError, ValueError):
        raise DataError(
            f"observations are {observation}, which is no array of a fixed size; "
            "wrap the environment so that it returns a Box"
        ) from None
    if isinstance(action, Discrete):
        return Interface((), size, int(action.n), (), (), False, 0)
    if isinstance(action, Box) and len(action.shape) == 1 and action.is_bounded():
        low, high = (tuple(map(float, bound)) for bound in (action.low, action.high))
        has_integers = action.dtype.kind != "f"
        most = MOST_INTEGER if has_integers else MOST_FLOAT
        if max(map(abs, low + high), default=0) > most:
            raise DataError(
                f"actions are {action}; beyond {most:g} a learner's 32 bits cannot choose each of "
                "them; wrap the environment (gymnasium.wrappers.RescaleAction)"
            )
        return Interface((), size, 0, low, high, has_integers, 0)
    raise DataError(
        f"actions are {action}; a learner needs Discrete, or a Box with one axis and "
        "finite bounds; wrap the environment (gymnasium.wrappers.TransformAction)"
    )


def to_action(space: Any, action: Any) -> Any:
    """Returns an index or a vector as a value of the action space."""
    if isinstance(space, Discrete):
        return int(action) + int(space.start)
    return to_box(action, space.low, space.high)


def to_box(
    action: Shaped[np.ndarray, "*any size"],
    low: Shaped[np.ndarray, " size"],
    high: Shaped[np.ndarray, " size"],
) -> Shaped[np.ndarray, "*any size"]:
    """Returns vectors within these bounds and of their dtype; where they are integers, rounded."""
    nearest = action if low.dtype.kind == "f" else np.rint(action)
    return np.clip(nearest, low, high).astype(low.dtype)


def draw_actions(
    space: Interface, draws: np.random.Generator, shape: tuple[int, ...]
) -> Shaped[np.ndarray, "..."]:
    """Draws actions of a learner uniformly."""
    if space.action_count:
        return draws.integers(space.action_count, size=shape)
    low, high = space.action_range
    return draws.uniform(low, high, (*shape, len(low))).astype(space.action_dtype)
