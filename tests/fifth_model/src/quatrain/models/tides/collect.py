"""config, seed -> readings of the gauge, to learn from and to check with."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from quatrain.envs.harbour import height
from quatrain.errors import DataError
from quatrain.models.tides.config import TidesConfig


class Readings(NamedTuple):
    """Time in days, height in metres."""

    time: Float[np.ndarray, " readings"]
    height: Float[np.ndarray, " readings"]


class Dataset(NamedTuple):
    """Noisy readings to learn from; held out: other times, and the true heights."""

    train: Readings
    held_out: Readings


def collect(config: TidesConfig, seed: int) -> Dataset:
    """Readings at uniform times of one day."""
    times, held_out_times, errors = (np.random.default_rng([seed, purpose]) for purpose in range(3))
    time = times.random(config.collect.readings)
    later = held_out_times.random(config.collect.held_out_readings)
    noisy = height(time) + config.env.noise * errors.standard_normal(len(time))
    return Dataset(Readings(time, noisy), Readings(later, height(later)))


def check(config: TidesConfig, dataset: Dataset) -> None:
    """Refuse a dataset of another size.

    Raises:
        DataError: it does not hold the readings that the config asks for.
    """
    found, wanted = len(dataset.train.time), config.collect.readings
    if found != wanted:
        raise DataError(
            f"the dataset holds {found} readings, tides.collect.readings is {wanted}; run `dvc repro`"
        )
