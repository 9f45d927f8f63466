"""features of sampled states -> the augmented Lagrangian, term by term.

'Proper Laplacian Representation Learning' (ICLR 2024):

    L = κ Σ_i mean_b (φ_bi − φ'_bi)²  +  Σ_ij sg(β_ij) E_ij  +  sg(b) Q
        graph                            dual                   barrier_term

E_ij measures how far <φ_i, sg(φ_j)> is from δ_ij for j <= i. Component i gets the gradient and the
earlier component j gets none: this asymmetry alone determines the order of the components. At the
fixed point A v = λ R v with λ ascending, and β_ii = −4κ λ_i.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.lax import stop_gradient
from jaxtyping import Float

from quatrain.models.allo.config import AlloConfig

TERMS = ("graph", "dual", "barrier_term")


def terms(config: AlloConfig) -> tuple[str, ...]:
    return TERMS


class Features(NamedTuple):
    """Holds the encoder outputs of one step: of the pairs and of the independent starts."""

    state: Float[Array, "batch d"]
    later_state: Float[Array, "batch d"]
    constraint: Float[Array, "constraint_batch batch d"]


class Constraints(NamedTuple):
    """Holds E, its two independent estimates, and Q, the estimate of Σ E² in the barrier term."""

    error: Float[Array, "d d"]
    first: Float[Array, "d d"]
    second: Float[Array, "d d"]
    quadratic: Float[Array, ""]


def error_matrix(phi: Float[Array, "batch d"]) -> Float[Array, "d d"]:
    """Computes tril(φᵀ sg(φ) / B − I): gradients flow to row i only, never to column j <= i."""
    batch, d = phi.shape
    return jnp.tril(phi.T @ stop_gradient(phi) / batch - jnp.eye(d))


def graph_term(
    state: Float[Array, "batch d"], later_state: Float[Array, "batch d"]
) -> Float[Array, ""]:
    """Computes Σ_i mean_b (φ_bi − φ'_bi)²: how much the features change along a walk."""
    return jnp.square(state - later_state).mean(0).sum()


def two_batches(features: Features) -> Constraints:
    """Computes `constraint: two`: E from the pairs' starts, Q = 2 Σ E1∘sg(E2).

    E1 = E, and E2 comes from one independent batch.
    """
    first = error_matrix(features.state)
    second = stop_gradient(error_matrix(features.constraint[0]))
    return Constraints(first, first, second, quadratic=2 * (first * second).sum())


def three_batches(features: Features) -> Constraints:
    """Computes `constraint: three` (the paper's code): E = (E1 + E2) / 2, Q = Σ E1∘E2.

    E1 and E2 come from two independent batches.
    """
    first = error_matrix(features.constraint[0])
    second = error_matrix(features.constraint[1])
    return Constraints((first + second) / 2, first, second, quadratic=(first * second).sum())


def visited_constraints(
    table: Float[Array, "states d"], starts: Float[Array, " states"]
) -> Constraints:
    """Computes `constraint: visits`, the expectation over the buffer's starts.

    E = tril(Uᵀ R sg(U) − I), Q = 2 Σ E∘sg(E). Two smooth components with nearly equal eigenvalues
    are sorted by a gradient of the size of the gap, which the noise of sampled E, through the
    barrier, exceeds a hundredfold (gap 0.001, b = 2, batches of 4096).
    """
    error = jnp.tril(table.T @ (starts[:, None] * stop_gradient(table)) - jnp.eye(table.shape[1]))
    quadratic = 2 * (error * stop_gradient(error)).sum()
    return Constraints(error, error, error, quadratic)


def lagrangian(
    graph: Float[Array, ""],
    constraints: Constraints,
    duals: Float[Array, "d d"],
    barrier: Float[Array, ""],
    graph_coef: float,
) -> dict[str, Float[Array, ""]]:
    """Computes the weighted terms of L, whose sum it is; duals and barrier get no gradient."""
    return {
        "graph": graph_coef * graph,
        "dual": (stop_gradient(duals) * constraints.error).sum(),
        "barrier_term": stop_gradient(barrier) * constraints.quadratic,
    }
