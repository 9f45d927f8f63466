"""config, dataset -> the true eigenvectors of sampled pairs, and how well a table fits them.

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
from scipy.special import gammaln

from quatrain.errors import DataError
from quatrain.models.allo.collect import Dataset
from quatrain.models.allo.config import COUNTED_STATES, AlloConfig
from quatrain.replay.episodes.lags import lag_weights, longest_lag
from quatrain.replay.episodes.pairs import pair_matrix
from quatrain.replay.episodes.trajectories import Episodes

# Eigenpairs computed beyond the d-th, so that a group that straddles d is complete.
SPARE_PAIRS = 8
# Different eigenvalues in one group.
MAX_DISTINCT = 3
# Largest eigenvalue of a function that is constant on a part of the graph; as in `group_of`.
ZERO = 1e-9
# Just below the smallest eigenvalue of I − P, which is 0: the shifted matrix is definite.
SHIFT = -1e-7
# f changes within 1/T of μ = 1, which Chebyshev polynomials of some hundred degrees resolve.
DEGREE = 1000


# Eigenpairs of sampled pairs.


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

    return _to_whole_group(first_pairs, d, most=states - 1)  # type: ignore[return-value]


# The truth of a dataset.


class Truth(NamedTuple):
    """Holds the operator of a buffer and its first eigenpairs.

    policy: the paper's truth, those of the uniform policy, where it walks both ways alike.
    """

    operator: Operator
    spectrum: Spectrum
    policy: Spectrum | None


# The last truth, with the dataset that it is of.
_last: dict[tuple[AlloConfig, int], tuple[Dataset, Truth]] = {}


def true_spectrum(config: AlloConfig, dataset: Dataset) -> Truth:
    """Returns the truth of the training data, or of more than COUNTED_STATES that of endless data.

    Raises:
        DataError: the buffer is empty, or the truth leaves open what is to be learned.
    """
    key = (config, id(dataset.train.state))
    if key not in _last:
        truth = _compute(config, dataset)
        _last.clear()
        _last[key] = (dataset, truth)
    return _last[key][1]


def known_truth(config: AlloConfig, dataset: Dataset) -> Truth | None:
    """Returns `true_spectrum`, or None where the states of the walks cannot be counted."""
    if dataset.next_state is None and not config.world.is_counted(config, dataset):
        return None
    return true_spectrum(config, dataset)


def _compute(config: AlloConfig, dataset: Dataset) -> Truth:
    walk = _symmetric_walk(dataset)
    if is_counted(dataset):
        policy = None if walk is None else uniform_policy(walk)
        truth = count_pairs(config, dataset, dataset.train, policy)
    else:
        assert walk is not None, "the config allows no other walk on a large map"
        law = law_of(walk, np.asarray(dataset.train.horizon), config.train.discounts)
        pairs = law_spectra(law, config.network.d, config.evaluate.degeneracy_tol)
        truth = Truth(law_operator(law), *pairs)
    _check_what_is_to_be_learned(config, truth.spectrum)
    return truth


def is_counted(dataset: Dataset) -> bool:
    """Returns whether the truth is that of the data, not of the graph's law: few states."""
    return len(dataset.coords) <= COUNTED_STATES


def _symmetric_walk(dataset: Dataset) -> scipy.sparse.csr_matrix | None:
    """Returns P of the uniform policy if the graph is known, moves both ways alike, and no walk
    reached an end.
    """
    if dataset.next_state is None or np.any(dataset.train.terminated):
        return None
    walk = walk_matrix(np.asarray(dataset.next_state))
    return walk if (walk != walk.T).nnz == 0 else None


def count_pairs(
    config: AlloConfig, dataset: Dataset, episodes: Episodes, policy: Spectrum | None
) -> Truth:
    """Counts pairs; eigenvalues that a symmetry of the graph makes equal are told by the policy."""
    op = operator(episodes, len(dataset.coords), config.train.discounts)
    distinct = None if policy is None else policy.group
    pairs = spectrum(op, config.network.d, config.evaluate.degeneracy_tol, distinct)
    return Truth(op, pairs, policy)


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


# How well a table fits it: 1 for the truth, 0 for random numbers.


def normalised(
    table: Float[np.ndarray, "states d"], truth: Spectrum | Operator
) -> Float[np.ndarray, "visited d"]:
    """Returns the visited states in float64, columns scaled to fᵀRf = 1; zero columns stay zero."""
    features = np.asarray(table, np.float64)[truth.visited]
    norms = np.sqrt(truth.starts @ np.square(features))
    return features / np.where(norms > 0, norms, 1)


def overlaps(table: Float[np.ndarray, "states d"], truth: Spectrum) -> Float[np.ndarray, "pairs d"]:
    """Computes vᵢᵀ R f̂ⱼ of each true vector with each normalised learned column."""
    return truth.eigenvectors.T @ (truth.starts[:, None] * normalised(table, truth))


def aligned(table: Float[np.ndarray, "states d"], truth: Spectrum) -> Float[np.ndarray, "states d"]:
    """Returns the normalised learned vectors, rotated to the truth.

    Single vectors are aligned by sign, groups by a Procrustes rotation.
    """
    d = table.shape[1]
    vectors = np.zeros(table.shape)
    vectors[truth.visited] = normalised(table, truth)
    products = overlaps(table, truth)[:d]
    groups = truth.group[:d]
    for group in np.unique(groups):
        members = np.flatnonzero(groups == group)
        left, _, right = np.linalg.svd(products[np.ix_(members, members)].T)
        vectors[:, members] = vectors[:, members] @ (left @ right)
    return vectors


def cosine(
    table: Float[np.ndarray, "states d"], truth: Spectrum, group: np.ndarray | None = None
) -> Float[np.ndarray, " d"]:
    """Computes ‖V_gᵀ R f̂_i‖ with V_g the true vectors of component i's group.

    The truth scores 1, random numbers score `random_cosine`.
    """
    squares = np.square(overlaps(table, truth))
    group = truth.group if group is None else group
    pairs, d = squares.shape
    compared = min(d, pairs)
    same = group[:, None] == group[None, :compared]
    in_group = (squares[:, :compared] * same).sum(0)
    return np.pad(np.sqrt(np.minimum(in_group, 1.0)), (0, d - compared))


def random_cosine(truth: Spectrum, d: int) -> Float[np.ndarray, " d"]:
    """Computes the expected `cosine` of a random direction: how much a group gives away.

    The length of a random unit vector of n dimensions (visited states), projected on the m of the
    group, has the mean Γ((m+1)/2) Γ(n/2) / (Γ(m/2) Γ((n+1)/2)). Components beyond the number of
    states have 0.

    The direction is isotropic in the inner product of R. Independent, identically distributed
    numbers are isotropic in it only where all states start equally often. Elsewhere states that
    start often weigh more, and such numbers score higher on smooth vectors: on small maps with a
    fixed start and short episodes (most visited states 100 to 100,000 times as often as the least)
    up to 0.06 in the mean over components and 0.23 in the first, instead of 0.
    """
    members = np.bincount(truth.group)[truth.group[:d]]
    states = len(truth.starts)
    logs = _log_mean_length(members) - _log_mean_length(np.array(states))
    return np.pad(np.exp(logs), (0, d - len(members)))


def _log_mean_length(dimensions: Int[np.ndarray, "*any"]) -> Float[np.ndarray, "*any"]:
    """Computes ln of the mean length of standard normal vectors, without its constant."""
    return np.asarray(gammaln((dimensions + 1) / 2) - gammaln(dimensions / 2))


def strict_cosine(table: Float[np.ndarray, "states d"], truth: Spectrum) -> Float[np.ndarray, " d"]:
    """Computes (c − ρ) / (1 − ρ) of c = `cosine` and ρ = `random_cosine`, for each component.

    The truth scores 1 and a random direction 0 on average, on any map and for any discounts; random
    numbers do where states start equally often (`random_cosine`). Groups hold at most three
    different eigenvalues (`group_of`), and what their size gives away is subtracted. Every
    component counts, so a mean over components is never one of none. A component whose group spans
    all states (ρ = 1: a map of isolated cells) says nothing and scores 0.
    """
    chance = random_cosine(truth, table.shape[1])
    possible = 1 - chance
    scaled = (cosine(table, truth) - chance) / np.where(possible > 1e-9, possible, 1.0)
    return np.where(possible > 1e-9, scaled, 0.0)


def rayleigh(table: Float[np.ndarray, "states d"], op: Operator) -> Float[np.ndarray, " d"]:
    """Computes F_iᵀAF_i / F_iᵀRF_i, the eigenvalue that each learned column implies."""
    features = normalised(table, op)
    return (features * (op.laplacian @ features)).sum(0)
