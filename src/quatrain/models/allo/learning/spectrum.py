"""replay buffer, or graph -> the true eigenvectors of sampled pairs, and those of the walk.

W[s, s'] is the joint probability of a sampled pair, r = W1, R = diag(r),
A = ½(R + diag(Wᵀ1)) − ½(W + Wᵀ). The learner's fixed point is A v_i = λ_i R v_i, λ ascending.
Everything here is float64 NumPy. Learning does not use it.

W is counted in the buffer. On a graph that is too large for that, the law stands for it: where the
uniform policy's P is symmetric it keeps uniform starts uniform, so the pairs of endless data have
W = 1/S Σ_k w_k P^k, where w_k is the probability of lag k: its eigenvectors are those of P, a
sparse matrix, and λ = 1 − f(μ) with f(μ) = Σ_k w_k μ^k.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg
from jaxtyping import Bool, Float, Int, Integer
from numpy.polynomial import chebyshev

from quatrain.replay.episodes.lags import lag_weights, longest_lag
from quatrain.replay.episodes.pairs import pair_matrix
from quatrain.replay.episodes.trajectories import Episodes

# Eigenpairs computed beyond the d-th, so that a group that straddles d is complete.
SPARE_PAIRS = 8
# Different eigenvalues in one group.
MAX_DISTINCT = 3
# Just below the smallest eigenvalue of I − P, which is 0: the shifted matrix is definite.
SHIFT = -1e-7
# f changes within 1/T of μ = 1, which Chebyshev polynomials of some hundred degrees resolve.
DEGREE = 1000


class Operator(NamedTuple):
    """Holds A and r of a buffer, over the states that occur as starts."""

    laplacian: Float[np.ndarray, "visited visited"]
    starts: Float[np.ndarray, " visited"]
    visited: Bool[np.ndarray, " states"]


class Spectrum(NamedTuple):
    """Holds the first eigenpairs: λ ascending, columns with vᵀRv = 1.

    `group` numbers the groups of (nearly) equal λ (`group_of`).
    """

    eigenvalues: Float[np.ndarray, " pairs"]
    eigenvectors: Float[np.ndarray, "visited pairs"]
    group: Int[np.ndarray, " pairs"]
    starts: Float[np.ndarray, " visited"]
    visited: Bool[np.ndarray, " states"]


def operator(episodes: Episodes, states: int, discounts: tuple[float, ...]) -> Operator:
    """Computes A and r over the states that start a pair.

    A state that is never a start has no constraint: the learner may give it the value that
    minimises the graph term. It is eliminated from A (Schur complement) and not compared.
    """
    joint = pair_matrix(episodes, states, discounts)
    starts, ends = joint.sum(1), joint.sum(0)
    full = np.diag((starts + ends) / 2) - (joint + joint.T) / 2
    visited = starts > 0
    free = (starts == 0) & (ends > 0)
    laplacian = full[np.ix_(visited, visited)]
    if free.any():
        coupling = full[np.ix_(visited, free)]
        laplacian = laplacian - coupling @ np.linalg.solve(full[np.ix_(free, free)], coupling.T)
    return Operator(laplacian, starts[visited], visited)


def group_of(
    eigenvalues: Float[np.ndarray, " pairs"],
    tol: float,
    distinct: Int[np.ndarray, " states"] | None = None,
) -> Int[np.ndarray, " pairs"]:
    """Returns the group number of each eigenvalue.

    Neighbours share a group if λ_{j+1} − λ_j <= tol·λ_{j+1} + 1e−9, transitively, but a group holds
    at most MAX_DISTINCT different eigenvalues: a larger one is cut at its widest relative gaps.
    Otherwise a few long discounts, which bring nearly all eigenvalues of a small map within tol of
    each other, would make one group of them, in which any table scores well.

    Args:
        eigenvalues: ascending.
        tol: relative distance below which neighbours are not told apart.
        distinct: numbers the different eigenvalues of the map itself (`distinct_values`): those
            that a symmetry makes equal have one number and are not cut apart. They are matched by
            rank: λ falls as μ rises on μ >= 0. Where noise swaps neighbours, a cut may part a
            symmetric pair, but no group gets larger than the numbers allow. Without it only
            eigenvalues within 1e−9 count as equal.
    """
    gaps = np.diff(eigenvalues)
    relative = gaps / np.maximum(eigenvalues[1:], 1e-9)
    differs = gaps > 1e-9
    if distinct is not None:
        differs &= np.diff(distinct[: len(eigenvalues)]) > 0
    cut = gaps > tol * eigenvalues[1:] + 1e-9
    while True:
        group = np.concatenate([[0], np.cumsum(cut)])
        inside = differs & ~cut
        many = np.bincount(group[1:][inside], minlength=1) >= MAX_DISTINCT
        if not many.any():
            return group
        candidates = inside & (group[1:] == many.argmax())
        cut[np.where(candidates, relative, -1.0).argmax()] = True


def spectrum(
    op: Operator, d: int, tol: float, distinct: Int[np.ndarray, " states"] | None = None
) -> Spectrum:
    """Computes the eigenpairs of R^(−½) A R^(−½), mapped back by R^(−½).

    At least d of them (if there are), up to the end of the group that holds the d-th. `tol` and
    `distinct` shape the groups (`group_of`).
    """
    scale = 1 / np.sqrt(op.starts)
    matrix = scale[:, None] * op.laplacian * scale

    def first_pairs(count: int) -> Spectrum:
        values, vectors = scipy.linalg.eigh(matrix, subset_by_index=[0, count - 1])
        group = group_of(values, tol, distinct)
        return Spectrum(values, scale[:, None] * vectors, group, op.starts, op.visited)

    return _to_whole_group(lambda count: (first_pairs(count),), d, most=len(scale))[0]


def _to_whole_group(
    first_pairs: Callable[[int], tuple[Spectrum, ...]], d: int, most: int
) -> tuple[Spectrum, ...]:
    """Computes at least d pairs (if there are), up to the end of the first's group that holds the
    d-th.

    first_pairs: computes so many pairs. most: how many it can compute.
    """
    count = min(d + SPARE_PAIRS, most)
    while True:
        pairs = first_pairs(count)
        group = pairs[0].group
        if count == most or group[min(d, count) - 1] != group[-1]:
            return pairs
        count = min(2 * count, most)


def walk_matrix(next_state: Int[np.ndarray, "states 4"]) -> scipy.sparse.csr_matrix:
    """Returns P of the uniform policy."""
    states, actions = next_state.shape
    rows = np.repeat(np.arange(states), actions)
    entries = np.full(states * actions, 1 / actions)
    return scipy.sparse.csr_matrix((entries, (rows, next_state.ravel())), (states, states))


def uniform_policy(walk: scipy.sparse.csr_matrix) -> Spectrum:
    """Computes the paper's truth, without data: eigenvectors of the uniform policy's P.

    They are sorted by descending eigenvalue μ and returned as λ = 1 − μ; groups hold eigenvalues
    equal to 1e−10. P must be symmetric.
    """
    values, vectors = np.linalg.eigh(np.eye(walk.shape[0]) - walk.toarray())
    return _of_policy(values, vectors)


def _of_policy(values: np.ndarray, vectors: np.ndarray) -> Spectrum:
    states = len(vectors)
    return Spectrum(
        values, vectors, distinct_values(values), np.ones(states), np.ones(states, bool)
    )


def distinct_values(eigenvalues: Float[np.ndarray, " pairs"]) -> Int[np.ndarray, " pairs"]:
    """Numbers the different ones of ascending eigenvalues, equal up to 1e−10."""
    return np.concatenate([[0], np.cumsum(np.diff(eigenvalues) > 1e-10)])


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


def law_of(
    walk: scipy.sparse.csr_matrix,
    horizons: Integer[np.ndarray, " slots"],
    discounts: tuple[float, ...],
) -> Law:
    """Returns the law of pairs on a graph, with the horizons of a buffer (0 at last slots)."""
    count = np.bincount(horizons)
    count[0] = 0
    share = count / count.sum()
    longest = len(count) - 1
    weights = [
        share @ lag_weights(lag, longest, discounts)
        for lag in range(1, longest_lag(longest, discounts) + 1)
    ]
    return Law(walk, np.array(weights))


def _smallest_pairs(
    matrix: scipy.sparse.csc_matrix, count: int
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


def law_spectra(law: Law, d: int, tol: float) -> tuple[Spectrum, Spectrum]:
    """Returns the first eigenpairs of the law in order of λ, and those of P, from which they are.

    At least d of them (if there are), up to the end of the group that holds the d-th, by Lanczos
    iterations on (I − P − SHIFT)⁻¹. f rises on μ >= 0, where the first eigenvalues of every large
    map are: the order is that of P.
    """
    states = law.walk.shape[0]
    laplacian = scipy.sparse.identity(states, format="csc") - law.walk.tocsc()

    def first_pairs(count: int) -> tuple[Spectrum, Spectrum]:
        policy = _of_policy(*_smallest_pairs(laplacian, count))
        values = 1 - law.response(1 - policy.eigenvalues)
        of_law = Spectrum(
            eigenvalues=values,
            eigenvectors=policy.eigenvectors * np.sqrt(states),
            group=group_of(values, tol, policy.group),
            starts=np.full(states, 1 / states),
            visited=policy.visited,
        )
        return of_law, policy

    of_law, policy = _to_whole_group(first_pairs, d, most=states - 1)
    return of_law, policy
