"""config, seed -> readings of the water level, to train and to evaluate on."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from quatrain.envs.harbour import height
from quatrain.errors import DataError
from quatrain.models.tides.config import TidesConfig


class Readings(NamedTuple):
    """Holds times in days and heights in metres."""

    time: Float[np.ndarray, " readings"]
    height: Float[np.ndarray, " readings"]


class Dataset(NamedTuple):
    """Holds noisy readings to train on, and other times with the true heights."""

    train: Readings
    held_out: Readings


def collect(config: TidesConfig, seed: int) -> Dataset:
    """Draws readings at uniform times of one day."""
    times, held_out_times, errors = (np.random.default_rng([seed, purpose]) for purpose in range(3))
    time = times.random(config.collect.readings)
    noise = config.env.noise * errors.standard_normal(len(time))
    held_out_time = held_out_times.random(config.collect.held_out_readings)
    return Dataset(
        train=Readings(time, height(time) + noise),
        held_out=Readings(held_out_time, height(held_out_time)),
    )


def check(config: TidesConfig, dataset: Dataset) -> None:
    """Raises DataError if the dataset was collected under another config."""
    actual, expected = len(dataset.train.time), config.collect.readings
    if actual != expected:
        raise DataError(f"the dataset holds {actual} readings, not {expected}; run `dvc repro`")
