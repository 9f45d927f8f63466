"""single trajectories -> episodes: data for tests, written down transition by transition."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from quatrain.replay.episodes.trajectories import Episodes, Walks, empty_episodes, from_walks


class Trajectory(NamedTuple):
    """Holds one walk of T transitions."""

    state: Int[np.ndarray, "states"]  # T + 1
    action: Int[np.ndarray, "transitions"]
    terminated: Bool[np.ndarray, "transitions"]
    truncated: Bool[np.ndarray, "transitions"]


def trajectory(state: Sequence[int]) -> Trajectory:
    no_flag = np.zeros(len(state) - 1, bool)
    return Trajectory(np.array(state), no_flag.astype(np.int8), no_flag, no_flag)


def from_trajectories(trajectories: Sequence[Trajectory]) -> Episodes:
    """Stores trajectories back to back, in order; one without a flag at its end is truncated."""
    parts = [empty_episodes()]
    for state, *columns in trajectories:
        walk = (state[:-1], columns[0], state[1:], *columns[1:])
        parts.append(from_walks(Walks(*(column[None] for column in walk))))
    merged = Episodes(*map(np.concatenate, zip(*parts, strict=True)))
    return merged._replace(starts=np.flatnonzero(merged.horizon).astype(np.int32))
