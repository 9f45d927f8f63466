"""walks of single states -> episodes: data for tests, written down state by state."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from quatrain.replay.episodes.trajectories import Episodes, Walks, empty_episodes, from_walks


def from_trajectories(trajectories: Sequence[Any]) -> Episodes:
    """Stores trajectories, each the T + 1 states of T transitions, back to back, in order."""
    parts = [empty_episodes()]
    for states in trajectories:
        walk = np.asarray(states)[None]
        no_end = np.zeros(walk[:, 1:].shape, bool)
        parts.append(from_walks(Walks(walk[:, :-1], walk[:, 1:], no_end, no_end)))
    merged = Episodes(*map(np.concatenate, zip(*parts, strict=True)))
    return merged._replace(starts=np.flatnonzero(merged.horizon).astype(np.int32))
