"""layout, horizons -> the truth of a map that is too large to count pairs in: that of its law.

Without one-way doors and goal the uniform policy's P is symmetric and keeps uniform starts uniform.
So the pairs of endless data have W = 1/S Σ_k w_k P^k, where w_k is the probability of lag k: its
eigenvectors are those of P, a sparse matrix, and λ = 1 − f(μ) with f(μ) = Σ_k w_k μ^k.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
from jaxtyping import Float, Int, Integer
from numpy.polynomial import chebyshev

from quatrain.models.allo.learning.spectra.spectrum import (
    Operator,
    Spectrum,
    distinct_values,
    group_of,
    to_whole_group,
)
from quatrain.replay.episodes.lags import lag_weights, longest_lag

# Just below the smallest eigenvalue of I − P, which is 0: the shifted matrix is definite.
SHIFT = -1e-7
# f changes within 1/T of μ = 1, which Chebyshev polynomials of some hundred degrees resolve.
DEGREE = 1000


class Law(NamedTuple):
    """Holds P, and w_k of the lags 1, 2, ..."""

    walk: scipy.sparse.csr_matrix
    weights: Float[np.ndarray, " lags"]

    def response(self, mu: Float[np.ndarray, " points"]) -> Float[np.ndarray, " points"]:
        """Computes f(μ) by Horner's rule."""
        total = np.zeros_like(mu)
        for weight in self.weights[::-1]:
            total = (total + weight) * mu
        return total


def walk_matrix(next_state: Int[np.ndarray, "states 4"]) -> scipy.sparse.csr_matrix:
    """Returns P of the uniform policy."""
    states, actions = next_state.shape
    rows = np.repeat(np.arange(states), actions)
    entries = np.full(states * actions, 1 / actions)
    return scipy.sparse.csr_matrix((entries, (rows, next_state.ravel())), (states, states))


def law_of(
    next_state: Int[np.ndarray, "states 4"],
    horizons: Integer[np.ndarray, " slots"],
    discounts: tuple[float, ...],
) -> Law:
    """Returns the law of pairs on a map, with the horizons of a buffer (0 at last slots)."""
    count = np.bincount(horizons)
    count[0] = 0
    share = count / count.sum()
    longest = len(count) - 1
    weights = [
        share @ lag_weights(lag, longest, discounts)
        for lag in range(1, longest_lag(longest, discounts) + 1)
    ]
    return Law(walk_matrix(next_state), np.array(weights))


def sparse_policy(next_state: Int[np.ndarray, "states 4"], d: int) -> Spectrum:
    """Computes the first eigenpairs of the uniform policy, as `spectrum.uniform_policy` does.

    At least d of them (if there are), up to the end of the group that holds the d-th, by Lanczos
    iterations on (I − P − SHIFT)⁻¹.
    """
    states = len(next_state)
    laplacian = _walk_laplacian(walk_matrix(next_state))

    def first_pairs(count: int) -> Spectrum:
        values, vectors = _smallest_pairs(laplacian, count)
        return Spectrum(
            eigenvalues=values,
            eigenvectors=vectors,
            group=distinct_values(values),
            starts=np.ones(states),
            visited=np.ones(states, bool),
        )

    return to_whole_group(first_pairs, d, most=states - 1)


def _walk_laplacian(walk: scipy.sparse.csr_matrix) -> scipy.sparse.csc_matrix:
    return scipy.sparse.identity(walk.shape[0], format="csc") - walk.tocsc()


def _smallest_pairs(
    matrix: scipy.sparse.csc_matrix,
    count: int,
) -> tuple[Float[np.ndarray, " count"], Float[np.ndarray, "states count"]]:
    states = matrix.shape[0]
    values, vectors = scipy.sparse.linalg.eigsh(
        matrix,
        count,
        sigma=SHIFT,
        ncv=min(states, 3 * count + 20),
        v0=np.random.default_rng(0).standard_normal(states),
    )
    order = np.argsort(values)
    return values[order], vectors[:, order]


def law_operator(law: Law) -> Operator:
    """Returns uniform starts and A = (I − f(P)) / S, which applies a Chebyshev series of f."""
    states = law.walk.shape[0]
    degree = min(DEGREE, 2 * len(law.weights))
    series = chebyshev.chebinterpolate(cast(Any, law.response), degree)

    def apply(vectors: np.ndarray) -> np.ndarray:
        return (vectors - _series_of(law.walk.dot, series, vectors)) / states

    return Operator(
        laplacian=scipy.sparse.linalg.LinearOperator(
            law.walk.shape, matvec=apply, matmat=apply, dtype=np.float64
        ),
        starts=np.full(states, 1 / states),
        visited=np.ones(states, bool),
    )


def _series_of(
    multiply: Callable[[np.ndarray], np.ndarray],
    series: Float[np.ndarray, " degrees"],
    vectors: np.ndarray,
) -> np.ndarray:
    """Computes Σ_n c_n T_n(P) v, T_{n+1}(P) v = 2 P T_n(P) v − T_{n−1}(P) v."""
    before, current = vectors, multiply(vectors)
    total = series[0] * before + series[1] * current
    for coefficient in series[2:]:
        before, current = current, 2 * multiply(current) - before
        total += coefficient * current
    return total


def law_spectrum(law: Law, d: int, tol: float) -> Spectrum:
    """Returns the first eigenpairs of the law in order of λ, from those of P.

    At least d of them (if there are), up to the end of the group that holds the d-th. f rises on
    μ >= 0, where the first eigenvalues of every large map are: the order is that of P.
    """
    states = law.walk.shape[0]
    laplacian = _walk_laplacian(law.walk)

    def first_pairs(count: int) -> Spectrum:
        of_walk, vectors = _smallest_pairs(laplacian, count)
        values = 1 - law.response(1 - of_walk)
        return Spectrum(
            eigenvalues=values,
            eigenvectors=vectors * np.sqrt(states),
            group=group_of(values, tol, distinct_values(of_walk)),
            starts=np.full(states, 1 / states),
            visited=np.ones(states, bool),
        )

    return to_whole_group(first_pairs, d, most=states - 1)
