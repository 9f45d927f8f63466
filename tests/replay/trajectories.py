"""single trajectories -> episodes: data for tests, written down transition by transition."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from quatrain.replay.episodes.trajectories import (
    Episodes,
    ReplayError,
    Walks,
    empty_episodes,
    from_walks,
)


class Trajectory(NamedTuple):
    """Holds one walk of T transitions; flags are set at the last one, or nowhere if it was cut."""

    state: Int[np.ndarray, "states"]  # T + 1
    action: Int[np.ndarray, "transitions"]
    terminated: Bool[np.ndarray, "transitions"]
    truncated: Bool[np.ndarray, "transitions"]


def from_trajectories(trajectories: Sequence[Trajectory]) -> Episodes:
    """Stores trajectories back to back, in order; one without a flag at its end is truncated.

    Raises:
        ReplayError: a trajectory has no transition, columns that do not fit, or an early flag.
    """
    parts = [empty_episodes(0)]
    for trajectory in trajectories:
        state, action, terminated, truncated = _checked(trajectory)
        columns = (state[:-1], action, state[1:], terminated, truncated)
        parts.append(from_walks(Walks(*(column[None] for column in columns))))
    merged = Episodes(*map(np.concatenate, zip(*parts, strict=True)))
    return merged._replace(starts=np.flatnonzero(merged.horizon).astype(np.int32))


def _checked(trajectory: Trajectory) -> Trajectory:
    columns = Trajectory(*map(np.asarray, trajectory))
    transitions = len(columns.action)
    if transitions == 0:
        raise ReplayError("A trajectory without transitions has no pair to give; leave it out.")
    lengths = tuple(len(column) for column in columns)
    if lengths != (transitions + 1, transitions, transitions, transitions):
        raise ReplayError(
            f"A trajectory of {transitions} actions needs {transitions + 1} states and "
            f"{transitions} flags of each kind, but has {lengths[0]} states, {lengths[2]} "
            f"terminated and {lengths[3]} truncated."
        )
    early = np.flatnonzero((columns.terminated | columns.truncated)[:-1])
    if len(early):
        flag = "terminated" if columns.terminated[early[0]] else "truncated"
        raise ReplayError(
            f"A trajectory of {transitions} transitions is {flag} at transition {early[0]}, before "
            "its last; split it there in two."
        )
    return columns
