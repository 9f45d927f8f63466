"""The dataset of walks in a user's environment, whose states are what the walks observed."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32

from quatrain.envs.host.spaces import SavedInterface
from quatrain.replay.episodes.trajectories import Episodes


class StateTable(NamedTuple):
    """Holds the mean observation of each state, and mean and deviation of the training walks."""

    observations: Float32[np.ndarray, "states obs"]
    mean: Float32[np.ndarray, " obs"]
    std: Float32[np.ndarray, " obs"]


class HostedDataset(NamedTuple):
    """Holds walks for training, independent held-out walks (may be empty), their states, and the
    sizes of the environment.
    """

    train: Episodes
    held_out: Episodes
    table: StateTable
    interface: SavedInterface


def standardise(
    observations: Float32[np.ndarray, "batch obs"],
    mean: Float32[np.ndarray, " obs"],
    std: Float32[np.ndarray, " obs"],
) -> Float32[np.ndarray, "batch obs"]:
    """Returns observations in units of deviations; an axis that never changes stays 0."""
    return (observations - mean) / np.where(std > 0, std, 1)
