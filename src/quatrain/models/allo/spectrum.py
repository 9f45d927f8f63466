"""replay buffer -> true eigenvectors of its sampled pairs, and how well a learned table fits them.

W[s, s'] is the joint probability of a sampled pair, r = W1, R = diag(r),
A = ½(R + diag(Wᵀ1)) − ½(W + Wᵀ). The learner's fixed point is A v_i = λ_i R v_i, λ ascending.
Everything here is float64 NumPy. Learning does not use it, except `mode: exact` (A and r).
"""

from typing import NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import Bool, Float, Int

from quatrain.replay.episodes.pairs import pair_matrix
from quatrain.replay.episodes.trajectories import Episodes

# Eigenpairs computed beyond the d-th, so that a group that straddles d is complete.
SPARE_PAIRS = 8


class Operator(NamedTuple):
    """Holds A and r of a buffer, over the states that occur as starts."""

    laplacian: Float[np.ndarray, "visited visited"]
    starts: Float[np.ndarray, " visited"]
    visited: Bool[np.ndarray, " states"]


class Spectrum(NamedTuple):
    """Holds the first eigenpairs: λ ascending, columns with vᵀRv = 1.

    `group` numbers the groups of (nearly) equal λ.
    """

    eigenvalues: Float[np.ndarray, " pairs"]
    eigenvectors: Float[np.ndarray, "visited pairs"]
    group: Int[np.ndarray, " pairs"]
    starts: Float[np.ndarray, " visited"]
    visited: Bool[np.ndarray, " states"]


class Expectation(NamedTuple):
    """Holds A of a buffer over all states, and how often each state starts and ends a pair."""

    laplacian: Float[np.ndarray, "states states"]
    starts: Float[np.ndarray, " states"]
    ends: Float[np.ndarray, " states"]


def expectation(episodes: Episodes, states: int, discounts: tuple[float, ...]) -> Expectation:
    """Computes A, r = W1 and Wᵀ1 of the pairs that this buffer yields."""
    joint = pair_matrix(episodes, states, discounts)
    starts = joint.sum(1)
    ends = joint.sum(0)
    return Expectation(
        laplacian=np.diag((starts + ends) / 2) - (joint + joint.T) / 2,
        starts=starts,
        ends=ends,
    )


def operator(episodes: Episodes, states: int, discounts: tuple[float, ...]) -> Operator:
    """Computes A and r over the states that start a pair.

    A state that is never a start has no constraint: the learner may give it the value that
    minimises the graph term. It is eliminated from A (Schur complement) and not compared.
    """
    full, starts, ends = expectation(episodes, states, discounts)
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


def group_of(eigenvalues: Float[np.ndarray, " pairs"], tol: float) -> Int[np.ndarray, " pairs"]:
    """Returns the group number of each eigenvalue.

    Neighbours share a group if λ_{j+1} − λ_j <= tol·λ_{j+1} + 1e−9, transitively.
    """
    return np.concatenate([[0], np.cumsum(np.diff(eigenvalues) > tol * eigenvalues[1:] + 1e-9)])


def spectrum(op: Operator, d: int, tol: float) -> Spectrum:
    """Computes the eigenpairs of R^(−½) A R^(−½), mapped back by R^(−½).

    At least d of them (if there are), up to the end of the group that holds the d-th.
    """
    scale = 1 / np.sqrt(op.starts)
    matrix = scale[:, None] * op.laplacian * scale
    states = len(scale)
    count = d + SPARE_PAIRS
    while True:
        count = min(count, states)
        values, vectors = scipy.linalg.eigh(matrix, subset_by_index=[0, count - 1])
        group = group_of(values, tol)
        if count == states or group[min(d, count) - 1] != group[-1]:
            return Spectrum(
                values,
                scale[:, None] * vectors,
                group,
                op.starts,
                op.visited,
            )
        count *= 2


def normalised(
    table: Float[np.ndarray, "states d"],
    truth: Spectrum | Operator,
) -> Float[np.ndarray, "visited d"]:
    """Returns the visited states in float64, columns scaled to fᵀRf = 1; zero columns stay zero."""
    features = np.asarray(table, np.float64)[truth.visited]
    norms = np.sqrt(truth.starts @ np.square(features))
    return features / np.where(norms > 0, norms, 1)


def overlaps(table: Float[np.ndarray, "states d"], truth: Spectrum) -> Float[np.ndarray, "pairs d"]:
    """Computes vᵢᵀ R f̂ⱼ of each true vector with each normalised learned column."""
    return truth.eigenvectors.T @ (
        truth.starts[:, None]
        * normalised(
            table,
            truth,
        )
    )


def cosine(
    table: Float[np.ndarray, "states d"],
    truth: Spectrum,
    group: np.ndarray | None = None,
) -> Float[np.ndarray, " d"]:
    """Computes ‖V_gᵀ R f̂_i‖ with V_g the true vectors of component i's group; 1 is solved."""
    squares = np.square(overlaps(table, truth))
    group = truth.group if group is None else group
    pairs, d = squares.shape
    compared = min(d, pairs)
    same = group[:, None] == group[None, :compared]
    in_group = (squares[:, :compared] * same).sum(0)
    return np.pad(
        np.sqrt(np.minimum(in_group, 1.0)),
        (0, d - compared),
    )


def group_boundaries(truth: Spectrum, d: int) -> Int[np.ndarray, " boundaries"]:
    """Returns each k <= d that splits no group; d itself if there is none."""
    ends = (
        np.flatnonzero(
            np.diff(
                np.append(
                    truth.group,
                    truth.group[-1] + 1,
                )
            )
        )
        + 1
    )
    inside = ends[ends <= d]
    return inside if len(inside) else np.array([d])


def subspace(
    table: Float[np.ndarray, "states d"],
    truth: Spectrum,
) -> Float[np.ndarray, " boundaries"]:
    """Computes ‖V_kᵀ R Q_F‖²_F / k at each group boundary k.

    Q_F are the first k learned columns, R-orthonormalised.
    """
    root = np.sqrt(truth.starts)[:, None]
    basis = np.linalg.qr(root * normalised(table, truth))[0]
    true = root * truth.eigenvectors
    return np.array(
        [
            np.square(true[:, :k].T @ basis[:, :k]).sum() / k
            for k in group_boundaries(truth, table.shape[1])
        ]
    )


def orthogonality(
    table: Float[np.ndarray, "states d"],
    truth: Spectrum,
) -> Float[np.ndarray, "d d"]:
    """Computes |FᵀRF − I| of the unscaled table.

    Detects two components that collapsed into one member of a group.
    """
    features = np.asarray(table, np.float64)[truth.visited]
    return np.abs(features.T @ (truth.starts[:, None] * features) - np.eye(features.shape[1]))


def rayleigh(table: Float[np.ndarray, "states d"], op: Operator) -> Float[np.ndarray, " d"]:
    """Computes F_iᵀAF_i / F_iᵀRF_i, the eigenvalue that each learned column implies."""
    features = normalised(table, op)
    return (features * (op.laplacian @ features)).sum(0)


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
        group=np.concatenate([[0], np.cumsum(np.diff(values) > 1e-10)]),
        starts=np.full(states, 1.0),
        visited=np.ones(states, bool),
    )
