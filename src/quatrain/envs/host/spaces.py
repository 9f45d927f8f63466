"""spaces of an environment -> sizes of arrays, actions for it, numbers from what it returns"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.spaces.utils import flatdim, flatten
from jaxtyping import Bool, Float64, Int64, Shaped, UInt8

from quatrain.envs.host.images import find_image, image_axes, image_shape, parts_of, without
from quatrain.envs.host.masks import MASK, draw_legal
from quatrain.errors import DataError

# Largest bounds of actions: float32 tells half integers apart, and has a finite width between.
MOST_INTEGER = 2.0**22
MOST_FLOAT = float(np.finfo(np.float32).max) / 2


class Interface(NamedTuple):
    """Holds what a learner must know of an environment; hashable, so that jit may take it.

    agents: their names; one for Gymnasium. observation_size: numbers in one agent's row: those of
    the image, of all else, flattened (Discrete spaces as one-hot vectors), and of the action mask.
    image: rows, columns and channels; empty if there is none. has_mask: whether rows end with 1 for
    each legal choice and 0 for others. action_counts: choices of each index of an action: one of a
    Discrete space, several of MultiDiscrete and MultiBinary, none of a Box. action_low,
    action_high: bounds of a Box, flattened, else empty. has_integers: whether that Box holds
    integers. max_episode_steps: after which an episode is truncated.
    """

    agents: tuple[str, ...]
    observation_size: int
    image: tuple[int, ...]
    has_mask: bool
    action_counts: tuple[int, ...]
    action_low: tuple[float, ...]
    action_high: tuple[float, ...]
    has_integers: bool
    max_episode_steps: int

    @property
    def vector(self) -> tuple[int, int]:
        """Returns where the numbers of a row begin and end that are neither image nor mask."""
        end = self.observation_size - self.has_mask * sum(self.action_counts)
        return (math.prod(self.image) if self.image else 0), end

    @property
    def observation_dtype(self) -> type:
        """Returns the dtype of rows: bytes where they hold an image, a mask and no more."""
        begin, end = self.vector
        return np.uint8 if begin == end and self.image else np.float32

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Returns the shape of one agent's action: () of an index, (size,) of several or of a
        vector.
        """
        return () if len(self.action_counts) == 1 else (len(self.action_counts + self.action_low),)

    @property
    def action_dtype(self) -> type:
        return np.int64 if self.action_counts else np.float32

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
        values = self._replace(
            image=np.array(self.image, np.int64),  # type: ignore[arg-type]
            action_counts=np.array(self.action_counts, np.int64),  # type: ignore[arg-type]
        )
        return SavedInterface(np.frombuffer(names, np.uint8), *map(np.array, values[1:]))


class SavedInterface(NamedTuple):
    """Holds an Interface as arrays: whoever has a dataset needs no environment to know its sizes.

    agents: their names in UTF-8, one a line.
    """

    agents: UInt8[np.ndarray, " byte"]
    observation_size: Int64[np.ndarray, ""]
    image: Int64[np.ndarray, " axis"]
    has_mask: Bool[np.ndarray, ""]
    action_counts: Int64[np.ndarray, " index"]
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


def describe(
    agents: Mapping[str, tuple[Any, Any]], max_episode_steps: int, has_mask: bool = False
) -> Interface:
    """Returns the interface of an environment, from the observation and action space of each agent.

    Shorter vectors and fewer choices than other agents have are padded, the latter by masks.

    Args:
        has_mask: whether the infos of a reset hold action masks; observations that are a Dict tell
            themselves that they do.

    Raises:
        DataError: agents have spaces that differ otherwise, or that no learner here can use.
    """
    interfaces = {agent: _describe_agent(*spaces) for agent, spaces in agents.items()}
    if not interfaces:
        raise DataError("possible_agents is empty; list the agents that ever act")
    first, *others = interfaces.values()
    is_padded = any(other.action_counts != first.action_counts for other in others)
    for agent, other in interfaces.items():
        padded = first._replace(observation_size=other.observation_size, has_mask=other.has_mask)
        if len(other.action_counts) == len(first.action_counts) == 1:
            padded = padded._replace(action_counts=other.action_counts)
        if other != padded:
            raise DataError(
                f"agent {agent} has other spaces than {next(iter(interfaces))}; only vectors and "
                "Discrete actions of different sizes are padded: wrap the environment so that all "
                "agents have equal ones"
            )
    counts = max(each.action_counts for each in interfaces.values())
    has_mask |= is_padded or any(each.has_mask for each in interfaces.values())
    has_mask &= bool(counts)
    size = max(each.observation_size for each in interfaces.values()) + has_mask * sum(counts)
    return first._replace(
        agents=tuple(interfaces),
        observation_size=size,
        has_mask=has_mask,
        action_counts=counts,
        max_episode_steps=max_episode_steps,
    )


def _describe_agent(observation: Any, action: Any) -> Interface:
    """Returns the interface of one agent, whose size of observations leaves out a mask.

    Raises:
        DataError: no learner here can use its spaces.
    """
    for kind, space in (("observation", observation), ("action", action)):
        if not isinstance(space, gymnasium.Space):
            raise DataError(
                f"{kind}_space is {space!r}; set it to a gymnasium.Space in the constructor, or "
                "convert an environment of the package gym by shimmy.GymV26CompatibilityV0(env=...)"
            )
    has_mask = isinstance(observation, Dict) and MASK in observation.spaces
    if has_mask:
        observation = without(observation, MASK)
    _check_readable("", observation)
    part = find_image(observation)
    image = image_shape(part.space) if part else ()
    described = Interface((), int(flatdim(observation)), image, has_mask, (), (), (), False, 0)
    match action:
        case Discrete():
            return described._replace(action_counts=(int(action.n),))
        case MultiDiscrete():
            return described._replace(action_counts=tuple(map(int, action.nvec.ravel())))
        case MultiBinary():
            return described._replace(action_counts=(2,) * math.prod(action.shape))
        case Box() if action.is_bounded():
            return _with_box(described, action)
    raise DataError(
        f"actions are {action}; a learner needs Discrete, MultiDiscrete or MultiBinary, or a Box "
        "with finite bounds; wrap the environment (gymnasium.wrappers.TransformAction)"
    )


def _with_box(described: Interface, action: Box) -> Interface:
    low, high = (tuple(map(float, bound.ravel())) for bound in (action.low, action.high))
    has_integers = action.dtype.kind != "f"
    most = MOST_INTEGER if has_integers else MOST_FLOAT
    if max(map(abs, low + high), default=0) > most:
        raise DataError(
            f"actions are {action}; beyond {most:g} a learner's 32 bits cannot choose each of "
            "them; wrap the environment (gymnasium.wrappers.RescaleAction)"
        )
    return described._replace(action_low=low, action_high=high, has_integers=has_integers)


def _check_readable(name: str, space: gymnasium.Space) -> None:
    """Checks that a space, and each of its parts, is an array of a fixed size."""
    if isinstance(space, Dict | Tuple):
        for part, value in parts_of(space).items():
            _check_readable(f" {part}", value)
    elif not isinstance(space, Box | Discrete | MultiDiscrete | MultiBinary):
        raise DataError(
            f"the observation{name} is of {type(space).__name__}, no array of a fixed size; name "
            "in env.wrappers what leaves it out (gymnasium.wrappers.FilterObservation, in MiniGrid "
            "ImgObsWrapper or FlatObsWrapper), or return a Box"
        )


def to_action(space: Any, action: Any) -> Any:
    """Returns an index, several, or a vector as a value of the action space."""
    if isinstance(space, Discrete):
        return int(action) + int(space.start)
    if isinstance(space, Box):
        bounds = space.low.ravel(), space.high.ravel()
        return to_box(np.ravel(action), *bounds).reshape(space.shape)
    start = getattr(space, "start", 0)
    return (np.reshape(action, space.shape) + start).astype(space.dtype)


def to_box(
    action: Shaped[np.ndarray, "*any size"],
    low: Shaped[np.ndarray, " size"],
    high: Shaped[np.ndarray, " size"],
) -> Shaped[np.ndarray, "*any size"]:
    """Returns vectors within these bounds and of their dtype; where they are integers, rounded."""
    nearest = action if low.dtype.kind == "f" else np.rint(action)
    return np.clip(nearest, low, high).astype(low.dtype)


def draw_actions(
    space: Interface,
    draws: np.random.Generator,
    shape: tuple[int, ...],
    obs: Shaped[np.ndarray, "*shape obs"] | None = None,
) -> Shaped[np.ndarray, "..."]:
    """Draws actions of a learner uniformly; where these observations hold masks, legal ones."""
    counts = space.action_counts
    if counts and space.has_mask and obs is not None:
        return draw_legal(counts, draws, obs[..., space.vector[1] :])
    if counts:
        return draws.integers(
            counts if len(counts) > 1 else counts[0], size=shape + space.action_shape
        )
    low, high = space.action_range
    return draws.uniform(low, high, (*shape, len(low))).astype(space.action_dtype)


LARGEST = float(np.finfo(np.float32).max)
# Kinds of dtypes that hold real numbers.
NUMBERS = "fiub"


def reader(name: str, space: gymnasium.Space) -> Callable[[Any], Shaped[np.ndarray, " obs"]]:
    """Returns what flattens an observation, which errors call `name`, into a copy, because
    environments may reuse their arrays: bytes of an image, else float32, which begin with those of
    an image if there is one, rows first and channels last.

    It raises DataError where one has another shape or other parts than its space, is not finite, or
    is no integer within the bounds where the space holds integers. Floats may lie beyond the bounds
    of their Box, because those of many environments do so a little.
    """
    check = _checker(space)
    is_plain = isinstance(space, Box) and space.dtype.kind == "f"
    image = find_image(space)
    axes = image_axes(image.space) if image else ()
    rest = without(space, image.name) if image and image.name is not None else None

    def read(value: Any) -> Shaped[np.ndarray, " obs"]:
        if is_plain and isinstance(value, np.ndarray) and value.dtype == space.dtype:
            # Most observations; others are read slowly, or refused.
            plain = value.astype(np.float32).reshape(-1)
            if value.shape == space.shape and np.isfinite(plain).all():
                return plain
        try:
            check(value)
        except DataError as error:
            raise DataError(f"{name} {error}") from None
        if image is None:
            return _finite(name, flatten(space, value))
        if rest is None:
            return np.array(value, np.uint8).transpose(axes).flatten()
        parts = parts_of(value)
        pixels = np.asarray(parts.pop(image.name)).transpose(axes)
        return _finite(
            name, np.concatenate([pixels.ravel(), np.asarray(flatten(rest, parts)).ravel()])
        )

    return read


def batch_of(space: gymnasium.Space, observed: Any) -> tuple[list[Any], bool]:
    """Returns the observations of a batch, and whether it is a single one instead.

    Of a Dict or a Tuple a batch is a list, or has its parts stacked, as of a VectorEnv.
    """
    if not isinstance(space, Dict | Tuple):
        is_single = np.ndim(observed) <= len(space.shape or ())
        return [observed] if is_single else [*observed], is_single
    if not isinstance(observed, Mapping | tuple):
        return [*observed], False
    spaces, parts = parts_of(space), parts_of(observed)
    if parts and spaces.keys() == parts.keys():
        pairs = [batch_of(spaces[name], parts[name]) for name in parts]
        batches, are_single = zip(*pairs, strict=True)
        if not any(are_single) and len({*map(len, batches)}) == 1:
            rows = zip(*batches, strict=True)
            is_tuple = isinstance(space, Tuple)
            return [row if is_tuple else dict(zip(parts, row, strict=True)) for row in rows], False
    return [observed], True


def _finite(name: str, values: Any) -> Shaped[np.ndarray, " obs"]:
    row = np.array(values, np.float32).reshape(-1)
    finite = np.isfinite(row)
    if not finite.all():
        raise DataError(f"{name} holds {row[~finite][0]}: not finite")
    return row


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
            parts = parts_of(space)
            return partial(_check_parts, {name: _checker(parts[name]) for name in parts})
        case Box() if image_axes(space):
            return partial(_check_numbers, space, 0, 255)
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
    wrong = (array < low) | (array > high)
    if array.dtype.kind == "f":
        # Gymnasium takes a Discrete one for an index.
        wrong |= (array != np.rint(array)) | isinstance(space, Discrete)
    if wrong.any():
        number, least, most = (each[wrong][0] for each in np.broadcast_arrays(array, low, high))
        raise DataError(f"holds {number}, where its space has integers from {least} to {most}")


def _check_parts(checks: Mapping[Any, Callable[[Any], Any]], value: Any) -> None:
    parts = parts_of(value)
    if parts.keys() != checks.keys():
        raise DataError(f"has the parts {[*parts]}, not {[*checks]}, as its space says")
    for name, check in checks.items():
        try:
            check(parts[name])
        except DataError as error:
            raise DataError(f"in its part {name!r} {error}") from None


def _check_contained(space: gymnasium.Space, value: Any) -> None:
    if not space.contains(value):
        raise DataError(f"is {value!r}, which {space} does not contain")
