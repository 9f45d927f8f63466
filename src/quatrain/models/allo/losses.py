"""features of sampled states -> the augmented Lagrangian, term by term.

'Proper Laplacian Representation Learning' (ICLR 2024):

    L = κ Σ_i mean_b (φ_bi − φ'_bi)²  +  Σ_ij sg(β_ij) E_ij  +  sg(b) Q
        graph                            dual                   barrier_term

E_ij measures how far <φ_i, sg(φ_j)> is from δ_ij for j <= i: component i moves, the earlier component j is frozen,
and that asymmetry alone makes the order. At the fixed point A v = λ R v with λ ascending, and β_ii = −4κ λ_i.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.lax import stop_gradient
from jaxtyping import Float

from quatrain.models.allo.config import AlloConfig

TERMS = ("graph", "dual", "barrier_term")


def terms(config: AlloConfig) -> tuple[str, ...]:
    """Returns the names of the terms that are optimised."""
    return TERMS


class Features(NamedTuple):
    """Encoder outputs of one step: the pair, and the batches of independent starts."""

    state: Float[Array, "batch d"]
    later_state: Float[Array, "batch d"]
    constraint: Float[Array, "constraint_batch batch d"]


class Constraints(NamedTuple):
    """E and its two independent estimates, and Q, the estimate of Σ E² that the barrier weighs."""

    error: Float[Array, "d d"]
    first: Float[Array, "d d"]
    second: Float[Array, "d d"]
    quadratic: Float[Array, ""]


class Loss(NamedTuple):
    """Weighted terms, and the constraints that the dual update needs again."""

    terms: dict[str, Float[Array, ""]]
    constraints: Constraints


def error_matrix(phi: Float[Array, "batch d"]) -> Float[Array, "d d"]:
    """tril(φᵀ sg(φ) / B − I): row i moves, column j <= i is frozen (for j = i too)."""
    batch, d = phi.shape
    return jnp.tril(phi.T @ stop_gradient(phi) / batch - jnp.eye(d))


def graph_term(
    state: Float[Array, "batch d"], later_state: Float[Array, "batch d"]
) -> Float[Array, ""]:
    """Σ_i mean_b (φ_bi − φ'_bi)²: how much the features change along a walk."""
    return jnp.square(state - later_state).mean(0).sum()


def two_batches(features: Features) -> Constraints:
    """`constraint: two`: E from the pairs' own starts, Q = 2 Σ E1∘sg(E2) with E2 from one independent batch."""
    first = error_matrix(features.state)
    second = stop_gradient(error_matrix(features.constraint[0]))
    return Constraints(first, first, second, 2 * (first * second).sum())


def three_batches(features: Features) -> Constraints:
    """`constraint: three` (the paper's code): E1, E2 from two independent batches, E their mean, Q = Σ E1∘E2."""
    first, second = error_matrix(features.constraint[0]), error_matrix(features.constraint[1])
    return Constraints((first + second) / 2, first, second, (first * second).sum())


def exact_constraints(
    table: Float[Array, "states d"], starts: Float[Array, " states"]
) -> Constraints:
    """The expectation over the buffer: E = tril(Uᵀ R sg(U) − I), Q = 2 Σ E∘sg(E)."""
    error = jnp.tril(table.T @ (starts[:, None] * stop_gradient(table)) - jnp.eye(table.shape[1]))
    return Constraints(error, error, error, 2 * (error * stop_gradient(error)).sum())


def exact_graph_term(
    table: Float[Array, "states d"], laplacian: Float[Array, "states states"]
) -> Float[Array, ""]:
    """2 Σ_i u_iᵀ A u_i, the expectation of `graph_term` over the buffer's pairs."""
    return 2 * (table * (laplacian @ table)).sum()


def lagrangian(
    graph: Float[Array, ""],
    constraints: Constraints,
    duals: Float[Array, "d d"],
    barrier: Float[Array, ""],
    graph_coef: float,
) -> Loss:
    """The weighted terms of L; only the encoder is differentiated."""
    terms = {
        "graph": graph,
        "dual": (stop_gradient(duals) * constraints.error).sum(),
        "barrier_term": constraints.quadratic,
    }
    weights: dict[str, Any] = {
        "graph": graph_coef,
        "dual": 1.0,
        "barrier_term": stop_gradient(barrier),
    }
    assert terms.keys() == weights.keys() == set(TERMS)
    return Loss({name: weights[name] * terms[name] for name in TERMS}, constraints)


def total(loss: Loss) -> Float[Array, ""]:
    """L."""
    return jax.tree.reduce(jnp.add, loss.terms)
