"""replay buffer -> the eigenvectors that its sampled pairs converge to, and how well a learned table agrees with them.

W[s, s'] is the joint probability of a sampled pair, r = W1, R = diag(r), A = ½(R + diag(Wᵀ1)) − ½(W + Wᵀ).
The learner's fixed point is A v_i = λ_i R v_i, λ ascending. Everything here is float64 NumPy; learning uses none of it,
but for `mode: exact`, which takes A and r.
"""

from typing import NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import Bool, Float, Int

from quatrain.replay.episodes.pairs import pair_matrix
from quatrain.replay.episodes.trajectories import Episodes

SPARE_PAIRS = 8
"""Eigenpairs computed beyond the d-th, so that a group that straddles d is seen whole."""


class Operator(NamedTuple):
    """A and r of a buffer, over the states that occur as starts."""

    laplacian: Float[np.ndarray, "visited visited"]
    starts: Float[np.ndarray, " visited"]
    visited: Bool[np.ndarray, " states"]


class Spectrum(NamedTuple):
    """The first eigenpairs: ascending λ, columns with vᵀRv = 1, and the group of (nearly) equal λ of each."""

    eigenvalues: Float[np.ndarray, " pairs"]
    eigenvectors: Float[np.ndarray, "visited pairs"]
    group: Int[np.ndarray, " pairs"]
    starts: Float[np.ndarray, " visited"]
    visited: Bool[np.ndarray, " states"]


class Expectation(NamedTuple):
    """A of a buffer over all states, and how often each state starts and ends a pair."""

    laplacian: Float[np.ndarray, "states states"]
    starts: Float[np.ndarray, " states"]
    ends: Float[np.ndarray, " states"]


def expectation(episodes: Episodes, states: int, discounts: tuple[float, ...]) -> Expectation:
    """What the mean over all pairs that this buffer yields is made of."""
    joint = pair_matrix(episodes, states, discounts)
    starts, ends = joint.sum(1), joint.sum(0)
    return Expectation(np.diag((starts + ends) / 2) - (joint + joint.T) / 2, starts, ends)


def operator(episodes: Episodes, states: int, discounts: tuple[float, ...]) -> Operator:
    """A and r of the pairs that this buffer yields.

    A state that never is a start has no constraint: the learner is free to give it the value that makes the graph term
    smallest, so it is eliminated from A (Schur complement) and left out of the comparison.
    """
    full, starts, ends = expectation(episodes, states, discounts)
    visited, free = starts > 0, (starts == 0) & (ends > 0)
    laplacian = full[np.ix_(visited, visited)]
    if free.any():
        coupling = full[np.ix_(visited, free)]
        laplacian = laplacian - coupling @ np.linalg.solve(full[np.ix_(free, free)], coupling.T)
    return Operator(laplacian, starts[visited], visited)


def group_of(eigenvalues: Float[np.ndarray, " pairs"], tol: float) -> Int[np.ndarray, " pairs"]:
    """Number of each eigenvalue's group: one with the next if λ_{j+1} − λ_j <= tol·λ_{j+1} + 1e−9, transitively."""
    gaps = np.diff(eigenvalues) > tol * eigenvalues[1:] + 1e-9
    return np.concatenate([[0], np.cumsum(gaps)])


def spectrum(op: Operator, d: int, tol: float) -> Spectrum:
    """The eigenpairs of R^(−½) A R^(−½) up to the end of the group that holds the d-th, mapped back by R^(−½)."""
    scale = 1 / np.sqrt(op.starts)
    matrix = scale[:, None] * op.laplacian * scale
    count, states = d + SPARE_PAIRS, len(scale)
    while True:
        count = min(count, states)
        values, vectors = scipy.linalg.eigh(matrix, subset_by_index=[0, count - 1])
        group = group_of(values, tol)
        if count == states or group[min(d, count) - 1] != group[-1]:
            return Spectrum(values, scale[:, None] * vectors, group, op.starts, op.visited)
        count *= 2


def normalised(
    table: Float[np.ndarray, "states d"], truth: Spectrum | Operator
) -> Float[np.ndarray, "visited d"]:
    """The visited rows in float64, columns scaled to fᵀRf = 1; a zero column stays zero."""
    rows = np.asarray(table, np.float64)[truth.visited]
    norms = np.sqrt(truth.starts @ np.square(rows))
    return rows / np.where(norms > 0, norms, 1)


def overlaps(table: Float[np.ndarray, "states d"], truth: Spectrum) -> Float[np.ndarray, "pairs d"]:
    """vᵢᵀ R f̂ⱼ of each true vector with each normalised learned column."""
    return truth.eigenvectors.T @ (truth.starts[:, None] * normalised(table, truth))


def cosine(
    table: Float[np.ndarray, "states d"], truth: Spectrum, group: np.ndarray | None = None
) -> Float[np.ndarray, " d"]:
    """‖V_gᵀ R f̂_i‖ with V_g the true vectors of component i's group; 1 is a solved component."""
    squares = np.square(overlaps(table, truth))
    group = truth.group if group is None else group
    d = min(squares.shape[1], squares.shape[0])
    same = group[:, None] == group[None, :d]
    found = np.sqrt(np.minimum((squares[:, :d] * same).sum(0), 1.0))
    return np.pad(found, (0, squares.shape[1] - d))


def group_boundaries(truth: Spectrum, d: int) -> Int[np.ndarray, " boundaries"]:
    """Each k <= d at which no group is cut; d itself if there is none."""
    ends = np.flatnonzero(np.diff(np.append(truth.group, truth.group[-1] + 1))) + 1
    inside = ends[ends <= d]
    return inside if len(inside) else np.array([d])


def subspace(
    table: Float[np.ndarray, "states d"], truth: Spectrum
) -> Float[np.ndarray, " boundaries"]:
    """‖V_kᵀ R Q_F‖²_F / k at each group boundary k, with Q_F the R-orthonormalised first k learned columns."""
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
    table: Float[np.ndarray, "states d"], truth: Spectrum
) -> Float[np.ndarray, "d d"]:
    """|FᵀRF − I| of the table as learned, unscaled; sees two components that collapsed into one member of a group."""
    rows = np.asarray(table, np.float64)[truth.visited]
    return np.abs(rows.T @ (truth.starts[:, None] * rows) - np.eye(rows.shape[1]))


def rayleigh(table: Float[np.ndarray, "states d"], op: Operator) -> Float[np.ndarray, " d"]:
    """F_iᵀAF_i / F_iᵀRF_i, the eigenvalue that each learned column claims."""
    rows = normalised(table, op)
    return (rows * (op.laplacian @ rows)).sum(0)


def uniform_policy(next_state: Int[np.ndarray, "states 4"]) -> Spectrum:
    """The paper's truth, without data: eigenvectors of the uniform policy's P by descending eigenvalue μ, as λ = 1 − μ.

    Groups hold eigenvalues equal to 1e−10. P must be symmetric: maps without doors and goal.
    """
    states = len(next_state)
    transitions = np.zeros((states, states))
    np.add.at(transitions, (np.repeat(np.arange(states), 4), next_state.ravel()), 0.25)
    values, vectors = np.linalg.eigh(np.eye(states) - transitions)
    group = np.concatenate([[0], np.cumsum(np.diff(values) > 1e-10)])
    uniform = np.full(states, 1.0)
    return Spectrum(values, vectors, group, uniform, np.ones(states, bool))
