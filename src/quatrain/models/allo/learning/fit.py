"""truth, learned table -> how well the table fits: 1 for the truth, 0 for random numbers."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import gammaln

from quatrain.models.allo.config import AlloConfig
from quatrain.models.allo.learning.learner import State
from quatrain.models.allo.learning.spectrum import Operator, Spectrum


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


def single_cosine(table: Float[np.ndarray, "states d"], truth: Spectrum) -> Float[np.ndarray, " d"]:
    """Computes `cosine` without groups: |v_iᵀ R f̂_i|, also where a symmetry mixes vectors."""
    return cosine(table, truth, np.arange(len(truth.group)))


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


def group_boundaries(truth: Spectrum, d: int) -> Int[np.ndarray, " boundaries"]:
    """Returns each k <= d that splits no group; d itself if there is none."""
    ends = np.flatnonzero(np.diff(truth.group, append=truth.group[-1] + 1)) + 1
    inside = ends[ends <= d]
    return inside if len(inside) else np.array([d])


def subspace(
    table: Float[np.ndarray, "states d"], truth: Spectrum
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
    table: Float[np.ndarray, "states d"], truth: Spectrum
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


def dual_eigenvalues(config: AlloConfig, state: State) -> Float[np.ndarray, "seeds d"]:
    """Computes −β_ii / (4κ), which is λ_i at the fixed point.

    Before it, and with a learning rate that ends too soon, the barrier carries a share, which
    `corrected_eigenvalues` adds. The Rayleigh quotient of the learned vector does not depend on how
    they share, and is the estimate to use.
    """
    diagonal = np.diagonal(np.asarray(state.duals), axis1=1, axis2=2)
    return -diagonal / (4 * config.train.graph_coef)


def corrected_eigenvalues(
    config: AlloConfig, state: State, learned: Float[np.ndarray, "seeds states d"], truth: Spectrum
) -> Float[np.ndarray, "seeds d"]:
    """Computes −(β_ii + 2 b E_ii) / (4κ): what dual and barrier hold together.

    At a stationary point 4κλ_i + β_ii + 2 b E_ii = 0 with E_ii = φ_iᵀRφ_i − 1 over the whole
    buffer, so this is λ_i before the dual has taken over the barrier's share, too.
    """
    squares = np.square(np.asarray(learned, np.float64)[:, truth.visited])
    error = np.einsum("s,nsd->nd", truth.starts, squares) - 1
    share = np.asarray(state.barrier)[:, None] * error / (2 * config.train.graph_coef)
    return dual_eigenvalues(config, state) - share


class EigenvalueErrors(NamedTuple):
    """Holds the mean of |λ̂ − λ|, and the largest |λ̂ − λ| / λ where λ is not 0."""

    absolute: float
    largest_relative: float


def eigenvalue_errors(estimate: Float[np.ndarray, " d"], truth: Spectrum) -> EigenvalueErrors:
    """Compares estimated with true eigenvalues, component by component."""
    count = min(len(estimate), len(truth.eigenvalues))
    true = truth.eigenvalues[:count]
    error = np.abs(estimate[:count] - true)
    nonzero = true > 1e-6
    relative = (error[nonzero] / true[nonzero]).max(initial=0.0)
    return EigenvalueErrors(float(error.mean()), float(relative))
