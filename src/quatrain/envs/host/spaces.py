"""spaces of an environment -> sizes of arrays, actions for it, numbers from what it returns"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.spaces.utils import flatdim, flatten
from jaxtyping import Bool, Float32, Float64, Int64, Shaped, UInt8

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


LARGEST = float(np.finfo(np.float32).max)
# Kinds of dtypes that hold real numbers.
NUMBERS = "fiub"


def reader(name: str, space: gymnasium.Space) -> Callable[[Any], Float32[np.ndarray, " obs"]]:
    """Returns what flattens an observation, which errors call `name`, into a copy, because
    environments may reuse their arrays.

    It raises DataError where one has another shape or other parts than its space, is not finite, or
    is no integer within the bounds where the space holds integers. Floats may lie beyond the bounds
    of their Box, because those of many environments do so a little.
    """
    check = _checker(space)
    is_plain = isinstance(space, Box) and space.dtype.kind == "f"

    def read(value: Any) -> Float32[np.ndarray, " obs"]:
        if is_plain and isinstance(value, np.ndarray) and value.dtype == space.dtype:
            # Most observations; others are read slowly, or refused.
            plain = value.astype(np.float32).reshape(-1)
            if value.shape == space.shape and np.isfinite(plain).all():
                return plain
        try:
            check(value)
        except DataError as error:
            raise DataError(f"{name} {error}") from None
        row = np.array(flatten(space, value), np.float32).reshape(-1)
        finite = np.isfinite(row)
        if not finite.all():
            raise DataError(f"{name} holds {row[~finite][0]}: not finite")
        return row

    return read


def to_flag(name: str, value: Any) -> bool:
    """Returns whether an episode ended.

    Raises:
        DataError: the value is no bool, neither Python's nor NumPy's.
    """
    if value is True or value is False:
        return bool(value)
    flag = np.asarray(value)
    if flag.dtype != bool or flag.shape:
        raise DataError(f"{name} is {value!r}, not a bool; return bool(...) of a comparison")
    return bool(flag)


def to_reward(value: Any) -> float:
    """Returns a reward.

    Raises:
        DataError: the value is not one real number that is finite in 32 bits.
    """
    if isinstance(value, float) and -LARGEST <= value <= LARGEST:
        return float(value)
    array = np.asarray(value)
    if array.dtype.kind not in NUMBERS or array.size != 1:
        raise DataError(f"reward {value!r} is not a real number")
    reward = float(array.item())
    if not abs(reward) <= LARGEST:
        raise DataError(f"reward {reward} is not finite in 32 bits")
    return reward


def _checker(space: gymnasium.Space) -> Callable[[Any], None]:
    match space:
        case Dict() | Tuple():
            parts = space.spaces.items() if isinstance(space, Dict) else enumerate(space.spaces)
            return partial(_check_parts, {name: _checker(part) for name, part in parts})
        case Box():
            return partial(_check_numbers, space, space.low, space.high)
        case Discrete():
            return partial(_check_numbers, space, space.start, space.start + space.n - 1)
        case MultiDiscrete():
            return partial(_check_numbers, space, space.start, space.start + space.nvec - 1)
        case MultiBinary():
            return partial(_check_numbers, space, 0, 1)
    return partial(_check_contained, space)


def _check_numbers(space: gymnasium.Space, low: Any, high: Any, value: Any) -> None:
    array = np.asarray(value)
    if array.dtype.kind not in NUMBERS:
        raise DataError(f"is {value!r}, which is no array of numbers")
    if array.shape != space.shape:
        raise DataError(f"has the shape {array.shape}, not {space.shape}, as its space says")
    if space.dtype is None or space.dtype.kind == "f":
        return
    wrong = (array < low) | (array > high) | (array != np.rint(array))
    if isinstance(space, Discrete):  # Gymnasium takes it for an index
        wrong |= array.dtype.kind == "f"
    if wrong.any():
        number, least, most = (each[wrong][0] for each in np.broadcast_arrays(array, low, high))
        raise DataError(f"holds {number}, where its space has integers from {least} to {most}")


def _check_parts(checks: Mapping[Any, Callable[[Any], Any]], value: Any) -> None:
    parts = value if isinstance(value, Mapping) else dict(enumerate(value))
    if parts.keys() != checks.keys():
        raise DataError(f"has the parts {[*parts]}, not {[*checks]}, as its space says")
    for name, check in checks.items():
        check(parts[name])


def _check_contained(space: gymnasium.Space, value: Any) -> None:
    if not space.contains(value):
        raise DataError(f"is {value!r}, which {space} does not contain")
