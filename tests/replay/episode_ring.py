"""A ring of trajectories on the host: what a fixed number of slots remembers of a long history."""

import numpy as np

from quatrain.replay.episodes.trajectories import Episodes, ReplayError, empty_episodes
from tests.replay.trajectories import Trajectory, from_trajectories

NOT_A_START = -1


class EpisodeRing:
    """Holds trajectories in a fixed number of slots; a new one replaces all that it overlaps.

    A trajectory is never split: one that does not fit before the end starts at slot 0.
    """

    def __init__(self, capacity: int, states: int) -> None:
        self._capacity = capacity
        self._states = states
        self._slots = empty_episodes(capacity)  # `starts` are valid up to `_transitions`, unordered
        self._position = np.full(capacity, NOT_A_START, np.int32)  # starts[position[slot]] == slot
        self._transitions = 0
        self._cursor = 0

    def episodes(self) -> Episodes:
        """Returns a view for sampling, valid until the next `append`."""
        return self._slots._replace(starts=self._slots.starts[: self._transitions])

    def append(self, trajectory: Trajectory) -> None:
        """Adds a trajectory, in place, and drops every old one that its slots overlap.

        Raises:
            ReplayError: as `from_trajectories`, or if it exceeds the capacity or leaves [0, S).
        """
        new = from_trajectories([trajectory])
        self._check(new)
        begin = self._cursor if self._cursor + len(new.state) <= self._capacity else 0
        end = begin + len(new.state)
        # The first slot starts a trajectory or is empty; the last may lie in the middle of one.
        self._drop(begin, end + int(self._slots.horizon[end - 1]))
        self._write(new, slice(begin, end))
        self._cursor = end

    def _check(self, new: Episodes) -> None:
        if len(new.state) > self._capacity:
            raise ReplayError(
                f"A trajectory of {len(new.starts)} transitions needs {len(new.state)} slots, the "
                f"ring has {self._capacity}; raise its capacity or cut the trajectory."
            )
        outside = np.flatnonzero((new.state < 0) | (new.state >= self._states))
        if len(outside):
            raise ReplayError(
                f"State {new.state[outside[0]]} at position {outside[0]} of the trajectory is "
                f"outside [0, {self._states}); was it collected on another layout?"
            )

    def _drop(self, begin: int, end: int) -> None:
        """Frees slots; the last starts move into the gaps that this leaves among the starts."""
        starts = self._slots.starts
        dropped = self._position[begin:end]
        dropped = dropped[dropped != NOT_A_START]
        remaining = self._transitions - len(dropped)
        moves = np.ones(len(dropped), bool)
        moves[dropped[dropped >= remaining] - remaining] = False
        gaps = dropped[dropped < remaining]
        moved = starts[remaining : self._transitions][moves]
        starts[gaps] = moved
        self._position[moved] = gaps
        self._transitions = remaining
        self._position[begin:end] = NOT_A_START
        empty = empty_episodes(end - begin)
        for column, values in zip(self._slots[:-1], empty[:-1], strict=True):
            column[begin:end] = values

    def _write(self, new: Episodes, where: slice) -> None:
        for column, values in zip(self._slots[:-1], new[:-1], strict=True):
            column[where] = values
        starts = where.start + new.starts
        count = self._transitions + len(starts)
        self._position[starts] = np.arange(self._transitions, count)
        self._slots.starts[self._transitions : count] = starts
        self._transitions = count
