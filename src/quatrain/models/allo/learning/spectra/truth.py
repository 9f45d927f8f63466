"""config, dataset -> the truth that a training of this config on this dataset should find."""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from quatrain.envs.grid.config import COUNTED_STATES
from quatrain.envs.grid.dynamics import make_grid
from quatrain.envs.grid.layouts import count_states
from quatrain.envs.host.config import HostEnv
from quatrain.errors import DataError
from quatrain.models.allo.collect import AnyDataset, Dataset
from quatrain.models.allo.collect import count_states as count_dataset_states
from quatrain.models.allo.config import AlloConfig
from quatrain.models.allo.learning.spectra import spectrum
from quatrain.models.allo.learning.spectra.law import (
    law_of,
    law_operator,
    law_spectrum,
    sparse_policy,
)
from quatrain.models.allo.learning.spectra.spectrum import Operator, Spectrum
from quatrain.replay.episodes.trajectories import Episodes

# Largest eigenvalue of a function that is constant on a part of the graph; as in `group_of`.
ZERO = 1e-9


class Truth(NamedTuple):
    """Holds the operator of a buffer and its first eigenpairs."""

    operator: Operator
    spectrum: Spectrum


class _SameData:
    """Makes a dataset a key of a cache: equal only to a holder of the same arrays."""

    def __init__(self, dataset: AnyDataset) -> None:
        self.dataset = dataset

    def __hash__(self) -> int:
        return id(self.dataset.train.state)

    def __eq__(self, other: Any) -> bool:
        return (
            isinstance(other, _SameData) and self.dataset.train.state is other.dataset.train.state
        )


def true_spectrum(config: AlloConfig, dataset: AnyDataset) -> Truth:
    """Returns the truth of the training data, or on large maps that of endless data.

    The last one is remembered, with its dataset.

    Raises:
        ReplayError: the buffer is empty.
        DataError: the truth leaves open what is to be learned.
    """
    return _remembered(config, _SameData(dataset))


def held_out_spectrum(config: AlloConfig, dataset: AnyDataset) -> Truth:
    """Returns the truth of the held-out data."""
    return _count(config, dataset, dataset.held_out)


def is_counted(config: AlloConfig) -> bool:
    """Returns whether the truth is that of the data, not of the map's law: small maps."""
    return config.brings_env or count_states(config.env.map) <= COUNTED_STATES


@lru_cache(maxsize=1)
def _remembered(config: AlloConfig, data: _SameData) -> Truth:
    truth = _count(config, data.dataset, data.dataset.train)
    _check_what_is_to_be_learned(config, truth.spectrum)
    return truth


def _check_what_is_to_be_learned(config: AlloConfig, truth: Spectrum) -> None:
    """Checks that not every function of a large space would score as the truth.

    Raises:
        DataError: the graph of the walks has several parts, whose eigenvalue is 0; or a group of
            equal eigenvalues has more vectors than are learned.
    """
    name, remedy = _name_and_remedy(config)
    parts = int((truth.eigenvalues < ZERO).sum())
    if parts > 1:
        raise DataError(
            f"allo: no walk connects {parts} parts of {name}, so that whatever is constant on each "
            f"counts as true: there is nothing to learn or to score; {remedy}"
        )
    d = config.network.d
    largest = int(np.bincount(truth.group)[truth.group[:d]].max())
    if largest > d:
        raise DataError(
            f"allo: {largest} eigenvectors of {name} have (nearly) equal eigenvalues, and only {d} "
            "are learned, so that any mixture counts as true: nothing can be scored; set "
            f"allo.network.d: {largest + 1} or more, or lower allo.evaluate.degeneracy_tol"
        )


def _name_and_remedy(config: AlloConfig) -> tuple[str, str]:
    """Returns the name of the environment, and how its parts become one."""
    if isinstance(config.env, HostEnv):
        layout = "give every episode the same layout (allo.env.kwargs or a wrapper)"
        return config.env.name, f"{layout}, or set or lower allo.env.bins"
    return config.env.map.name, (
        "set allo.env.layout_components: largest, or, if it is, raise allo.collect.num_envs"
    )


def _count(config: AlloConfig, dataset: AnyDataset, episodes: Episodes) -> Truth:
    d, tol = config.network.d, config.evaluate.degeneracy_tol
    if not is_counted(config):
        assert isinstance(dataset, Dataset)
        next_state = np.asarray(dataset.grid.next_state)
        law = law_of(next_state, np.asarray(episodes.horizon), config.train.discounts)
        return Truth(law_operator(law), law_spectrum(law, d, tol))
    operator = spectrum.operator(episodes, count_dataset_states(dataset), config.train.discounts)
    distinct = symmetries(config, dataset)
    return Truth(operator, spectrum.spectrum(operator, d, tol, distinct))


def symmetries(config: AlloConfig, dataset: AnyDataset) -> Int[np.ndarray, " states"] | None:
    """Numbers the different eigenvalues of the map; None if its walk is not symmetric."""
    return uniform_policy(config).group if walk_is_symmetric(config, dataset) else None


def walk_is_symmetric(config: AlloConfig, dataset: AnyDataset) -> bool:
    """Returns whether the uniform policy moves both ways alike: no one-way door and no goal.

    Of a user's environment nobody knows it.
    """
    if not isinstance(dataset, Dataset):
        return False
    return not config.env.map.doors and int(dataset.grid.goal) < 0


@lru_cache(maxsize=1)
def uniform_policy(config: AlloConfig) -> Spectrum:
    """Returns the paper's truth, the eigenvectors of the layout's uniform policy."""
    next_state = np.asarray(make_grid(config.env.map).next_state)
    if is_counted(config):
        return spectrum.uniform_policy(next_state)
    return sparse_policy(next_state, config.network.d)


def true_table(truth: Spectrum, d: int) -> Float[np.ndarray, "states d"]:
    """Returns the first d true vectors over all states; 0 where a state was never a start."""
    table = np.zeros((len(truth.visited), d))
    count = min(d, truth.eigenvectors.shape[1])
    table[truth.visited, :count] = truth.eigenvectors[:, :count]
    return table
