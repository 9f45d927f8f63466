"""config, seed -> random walks for training and held out, and where their states are"""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float32, Int32, Num

from quatrain.models.allo.config import AlloConfig
from quatrain.replay.episodes.lags import AnyArray
from quatrain.replay.episodes.trajectories import Episodes


@runtime_checkable
class Dataset(Protocol):
    """Describes what learning reads of a world (grid.py, user_env.py), and nothing more.

    held_out: independent of the training walks; may be empty. coords: where each state is.
    next_state: where each action leads from each state; None where only the walks tell.
    """

    @property
    def train(self) -> Episodes: ...

    @property
    def held_out(self) -> Episodes: ...

    @property
    def coords(self) -> Num[AnyArray, "states axes"]: ...

    @property
    def next_state(self) -> Int32[AnyArray, "states actions"] | None: ...


# Inputs of the encoder -> its outputs.
Encode = Callable[[Float32[np.ndarray, "rows inputs"]], Float32[np.ndarray, "rows d"]]
# Dtype, axes, least and most of what can be asked, and what answers it.
Served = tuple[tuple[Any, ...], Callable[[np.ndarray], dict[str, np.ndarray]]]


def dataset_type(config: AlloConfig) -> type[Dataset]:
    dataset: type[Dataset] = config.world.Dataset
    return dataset


def collect(config: AlloConfig, seed: int) -> Dataset:
    """Collects `num_envs` walks of `steps_per_env` transitions, and independent held-out walks.

    Raises:
        DataError: a user's environment fails, or its walks visit too many or too few states.
    """
    dataset: Dataset = config.world.collect(config, seed)
    return dataset


def check(config: AlloConfig, dataset: Dataset) -> None:
    """Raises unless the dataset can be of the config's environment.

    Raises:
        DatasetMismatch: it was collected in another one.
        DataError: a user's environment cannot be made.
    """
    config.world.check(config, dataset)
