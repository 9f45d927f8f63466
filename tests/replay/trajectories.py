"""single trajectories -> episodes: data for tests, written down transition by transition."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from quatrain.replay.episodes.trajectories import Episodes, Walks, empty_episodes, from_walks


class Trajectory(NamedTuple):
    """Holds one walk of T transitions; flags are set at the last one, or nowhere if it was cut."""

    state: Int[np.ndarray, "states"]  # T + 1
    action: Int[np.ndarray, "transitions"]
    terminated: Bool[np.ndarray, "transitions"]
    truncated: Bool[np.ndarray, "transitions"]


def trajectory(state: Sequence[int], terminated: bool = False) -> Trajectory:
    steps = len(state) - 1
    last = np.arange(steps) == steps - 1
    return Trajectory(
        np.array(state), np.arange(steps) % 4, last & terminated, last & (not terminated)
    )


def from_trajectories(trajectories: Sequence[Trajectory]) -> Episodes:
    """Stores trajectories back to back, in order; one without a flag at its end is truncated."""
    parts = [empty_episodes(0)]
    for state, *columns in trajectories:
        action, terminated, truncated = map(np.asarray, columns)
        walk = (np.asarray(state)[:-1], action, np.asarray(state)[1:], terminated, truncated)
        parts.append(from_walks(Walks(*(column[None] for column in walk))))
    merged = Episodes(*map(np.concatenate, zip(*parts, strict=True)))
    return merged._replace(starts=np.flatnonzero(merged.horizon).astype(np.int32))
