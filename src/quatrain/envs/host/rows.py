"""what an agent observes, its action mask -> its row of an array"""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Dict
from jaxtyping import Shaped

from quatrain.envs.host.images import parts_of, without
from quatrain.envs.host.masks import MASK, find_mask, read_mask
from quatrain.envs.host.spaces import Interface, describe, reader, to_action
from quatrain.errors import DataError, warn

# Observations of an agent that are compared with the bounds of their Box.
MOST_COMPARED = 4096
# Agent and space of warnings that were given.
_WARNED: set[tuple[str, str]] = set()


class Spaces(NamedTuple):
    """Holds the spaces of an agent."""

    observation: Any
    action: Any


class AgentRows:
    """Reads what one agent observes; beside larger rows of other agents its own are padded."""

    def __init__(self, interface: Interface, env: Any, name: str, has_mask: bool) -> None:
        """Takes the spaces of an agent; has_mask: whether its infos hold action masks."""
        self.name = name
        self.spaces = Spaces(env.observation_space(name), env.action_space(name))
        observation, action = self.spaces
        self._has_part = isinstance(observation, Dict) and MASK in observation.spaces
        self._has_mask = has_mask or self._has_part
        self._counts = describe({name: (observation, action)}, 1).action_counts
        if self._has_part:
            observation = without(observation, MASK)
        self._read = reader(f"the observation of {name}", observation)
        is_bounded = isinstance(observation, Box) and observation.dtype.kind == "f"
        self._left_to_compare = MOST_COMPARED if is_bounded else 0
        if is_bounded:
            with np.errstate(over="ignore"):
                bounds = (observation.low.ravel(), observation.high.ravel())
                self._low, self._high = (bound.astype(np.float32) for bound in bounds)
                self._width = self._high - self._low
        self.to_action = partial(to_action, action)
        self._empty: np.ndarray = np.zeros(interface.observation_size, interface.observation_dtype)
        begin = interface.vector[1]
        self._choices = slice(begin, begin + interface.has_mask * sum(self._counts))
        self._empty[self._choices] = 1

    @property
    def empty(self) -> Shaped[np.ndarray, " obs"]:
        """Returns the row of an agent that is gone: zeros, and a mask that allows its actions."""
        return self._empty.copy()

    def read(self, observed: Any, info: Any, has_ended: bool) -> Shaped[np.ndarray, " obs"]:
        """Returns a row; where an episode has ended, its mask may be missing.

        Raises:
            DataError: the observation is none of its space, or the mask allows nothing.
        """
        mask = find_mask(observed, info) if self._has_mask else None
        if self._has_part and isinstance(observed, Mapping):
            observed = {name: part for name, part in parts_of(observed).items() if name != MASK}
        values = self._read(observed)
        if self._left_to_compare:
            self._left_to_compare -= 1
            self._compare(values)
        if values.size == self._empty.size:
            return values
        row = self.empty
        row[: values.size] = values
        if self._has_mask:
            try:
                row[self._choices] = read_mask(self.name, mask, self._counts)
            except DataError:
                if not has_ended:
                    raise
        return row

    def _compare(self, values: Shaped[np.ndarray, " obs"]) -> None:
        """Warns, once in a process, of a number farther beyond its Box than that is wide."""
        with np.errstate(over="ignore"):
            beyond = np.maximum(self._low - values, values - self._high)
        is_far = (beyond > self._width) & (self._width > 0)
        if is_far.any():
            self._left_to_compare = 0
            place = is_far.argmax()
            if (key := (self.name, repr(self.spaces.observation))) not in _WARNED:
                _WARNED.add(key)
                warn(
                    f"the observation of {self.name} holds {values[place]:g} at number {place}, "
                    f"far beyond its Box of {self._low[place]:g} to {self._high[place]:g}; widen "
                    "its space"
                )
