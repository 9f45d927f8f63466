"""replay buffer -> the true eigenvectors of its sampled pairs; layout -> those of its walk.

W[s, s'] is the joint probability of a sampled pair, r = W1, R = diag(r),
A = ½(R + diag(Wᵀ1)) − ½(W + Wᵀ). The learner's fixed point is A v_i = λ_i R v_i, λ ascending.
Everything here is float64 NumPy. Learning does not use it.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import Bool, Float, Int

from quatrain.replay.episodes.pairs import pair_matrix
from quatrain.replay.episodes.trajectories import Episodes

# Eigenpairs computed beyond the d-th, so that a group that straddles d is complete.
SPARE_PAIRS = 8
# Different eigenvalues in one group.
MAX_DISTINCT = 3


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
        laplacian = laplacian - coupling @ np.linalg.solve(
            full[np.ix_(free, free)],
            coupling.T,
        )
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
    op: Operator,
    d: int,
    tol: float,
    distinct: Int[np.ndarray, " states"] | None = None,
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

    return to_whole_group(first_pairs, d, most=len(scale))


def to_whole_group(first_pairs: Callable[[int], Spectrum], d: int, most: int) -> Spectrum:
    """Computes at least d pairs (if there are), up to the end of the group that holds the d-th.

    first_pairs: computes so many pairs. most: how many it can compute.
    """
    count = min(d + SPARE_PAIRS, most)
    while True:
        pairs = first_pairs(count)
        if count == most or pairs.group[min(d, count) - 1] != pairs.group[-1]:
            return pairs
        count = min(2 * count, most)


def uniform_policy(next_state: Int[np.ndarray, "states 4"]) -> Spectrum:
    """Computes the paper's truth, without data: eigenvectors of the uniform policy's P.

    They are sorted by descending eigenvalue μ and returned as λ = 1 − μ; groups hold eigenvalues
    equal to 1e−10. P must be symmetric: maps without doors and goal.
    """
    states = len(next_state)
    transitions = np.zeros((states, states))
    np.add.at(
        transitions,
        (np.repeat(np.arange(states), 4), next_state.ravel()),
        0.25,
    )
    values, vectors = np.linalg.eigh(np.eye(states) - transitions)
    return Spectrum(
        eigenvalues=values,
        eigenvectors=vectors,
        group=distinct_values(values),
        starts=np.full(states, 1.0),
        visited=np.ones(states, bool),
    )


def distinct_values(eigenvalues: Float[np.ndarray, " pairs"]) -> Int[np.ndarray, " pairs"]:
    """Numbers the different ones of ascending eigenvalues, equal up to 1e−10."""
    return np.concatenate([[0], np.cumsum(np.diff(eigenvalues) > 1e-10)])
