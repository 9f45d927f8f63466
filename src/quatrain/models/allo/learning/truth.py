"""config, dataset -> the truth that a training of this config on this dataset should find."""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from jaxtyping import Float

from quatrain.errors import DataError
from quatrain.models.allo.collect import Dataset
from quatrain.models.allo.config import COUNTED_STATES, AlloConfig
from quatrain.models.allo.learning import spectrum
from quatrain.models.allo.learning.spectrum import Operator, Spectrum
from quatrain.replay.episodes.trajectories import Episodes

# Largest eigenvalue of a function that is constant on a part of the graph; as in `group_of`.
ZERO = 1e-9


class Truth(NamedTuple):
    """Holds the operator of a buffer and its first eigenpairs.

    policy: the paper's truth, those of the uniform policy, where it walks both ways alike.
    """

    operator: Operator
    spectrum: Spectrum
    policy: Spectrum | None


class _SameData:
    """Makes a dataset a key of a cache: equal only to a holder of the same arrays."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    def __hash__(self) -> int:
        return id(self.dataset.train.state)

    def __eq__(self, other: Any) -> bool:
        return (
            isinstance(other, _SameData) and self.dataset.train.state is other.dataset.train.state
        )


def true_spectrum(config: AlloConfig, dataset: Dataset) -> Truth:
    """Returns the truth of the training data, or of more than COUNTED_STATES that of endless data.

    The last one is remembered, with its dataset.

    Raises:
        ReplayError: the buffer is empty.
        DataError: the truth leaves open what is to be learned.
    """
    return _remembered(config, _SameData(dataset))


@lru_cache(maxsize=1)
def _remembered(config: AlloConfig, data: _SameData) -> Truth:
    dataset = data.dataset
    walk = _symmetric_walk(dataset)
    if is_counted(dataset):
        policy = None if walk is None else spectrum.uniform_policy(walk)
        truth = _count(config, dataset, dataset.train, policy)
    else:
        assert walk is not None, "the config allows no other walk on a large map"
        horizons = np.asarray(dataset.train.horizon)
        law = spectrum.law_of(walk, horizons, config.train.discounts)
        pairs = spectrum.law_spectra(law, config.network.d, config.evaluate.degeneracy_tol)
        truth = Truth(spectrum.law_operator(law), *pairs)
    _check_what_is_to_be_learned(config, truth.spectrum)
    return truth


def held_out_spectrum(config: AlloConfig, dataset: Dataset) -> Truth:
    """Returns the truth of the held-out data, whose states are counted."""
    policy = true_spectrum(config, dataset).policy
    return _count(config, dataset, dataset.held_out, policy)


def is_counted(dataset: Dataset) -> bool:
    """Returns whether the truth is that of the data, not of the graph's law: few states."""
    return len(dataset.coords) <= COUNTED_STATES


def _symmetric_walk(dataset: Dataset) -> scipy.sparse.csr_matrix | None:
    """Returns P of the uniform policy if the graph is known, moves both ways alike, and no walk
    reached an end.
    """
    if dataset.next_state is None or np.any(dataset.train.terminated):
        return None
    walk = spectrum.walk_matrix(np.asarray(dataset.next_state))
    return walk if (walk != walk.T).nnz == 0 else None


def _count(
    config: AlloConfig, dataset: Dataset, episodes: Episodes, policy: Spectrum | None
) -> Truth:
    """Counts pairs; eigenvalues that a symmetry of the graph makes equal are told by the policy."""
    operator = spectrum.operator(episodes, len(dataset.coords), config.train.discounts)
    distinct = None if policy is None else policy.group
    pairs = spectrum.spectrum(operator, config.network.d, config.evaluate.degeneracy_tol, distinct)
    return Truth(operator, pairs, policy)


def _check_what_is_to_be_learned(config: AlloConfig, truth: Spectrum) -> None:
    """Checks that not every function of a large space would score as the truth.

    Raises:
        DataError: the graph of the walks has several parts, whose eigenvalue is 0; or a group of
            equal eigenvalues has more vectors than are learned.
    """
    name = config.env.name
    parts = int((truth.eigenvalues < ZERO).sum())
    if parts > 1:
        raise DataError(
            f"allo: no walk connects {parts} parts of {name}, so that whatever is constant on each "
            f"counts as true: there is nothing to learn or to score; {config.world.CONNECT}"
        )
    d = config.network.d
    largest = int(np.bincount(truth.group)[truth.group[:d]].max())
    if largest > d:
        raise DataError(
            f"allo: {largest} eigenvectors of {name} have (nearly) equal eigenvalues, and only {d} "
            "are learned, so that any mixture counts as true: nothing can be scored; set "
            f"allo.network.d: {largest + 1} or more, or lower allo.evaluate.degeneracy_tol"
        )


def true_table(truth: Spectrum, d: int) -> Float[np.ndarray, "states d"]:
    """Returns the first d true vectors over all states; 0 where a state was never a start."""
    table = np.zeros((len(truth.visited), d))
    count = min(d, truth.eigenvectors.shape[1])
    table[truth.visited, :count] = truth.eigenvectors[:, :count]
    return table
