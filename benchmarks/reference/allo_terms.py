"""features -> the constraint terms of the loss, in the original's and a proposal's spelling"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.lax import stop_gradient

Errors = Callable[[Array, Array], tuple[Array, Array]]
"""Features of two batches -> E1 and E2: how far they are from orthonormal."""
Terms = Callable[[Array, Array, Array, Array], Array]
"""Features of two batches, duals, barrier -> the dual term and the barrier term together."""
Helper = Callable[[Array, Array], Array]


def einsum_errors(phi: Array, phi_2: Array) -> tuple[Array, Array]:
    """Computes the errors as the original: einsum, and an identity matrix for each."""
    n, d = phi.shape
    inner_product_1 = jnp.einsum("ij,ik->jk", phi, stop_gradient(phi)) / n
    inner_product_2 = jnp.einsum("ij,ik->jk", phi_2, stop_gradient(phi_2)) / n
    return jnp.tril(inner_product_1 - jnp.eye(d)), jnp.tril(inner_product_2 - jnp.eye(d))


def product_errors(phi: Array, phi_2: Array) -> tuple[Array, Array]:
    """Computes the errors with `@` in place of einsum."""
    n, d = phi.shape
    inner_product_1 = phi.T @ stop_gradient(phi) / n
    inner_product_2 = phi_2.T @ stop_gradient(phi_2) / n
    return jnp.tril(inner_product_1 - jnp.eye(d)), jnp.tril(inner_product_2 - jnp.eye(d))


def one_eye_errors(phi: Array, phi_2: Array) -> tuple[Array, Array]:
    """Computes the errors with one identity matrix for both."""
    n, d = phi.shape
    eye = jnp.eye(d)
    inner_product_1 = jnp.einsum("ij,ik->jk", phi, stop_gradient(phi)) / n
    inner_product_2 = jnp.einsum("ij,ik->jk", phi_2, stop_gradient(phi_2)) / n
    return jnp.tril(inner_product_1 - eye), jnp.tril(inner_product_2 - eye)


def proposed_errors(phi: Array, phi_2: Array) -> tuple[Array, Array]:
    """Computes the errors with `@` and one identity matrix."""
    n, d = phi.shape
    eye = jnp.eye(d)
    error_1 = jnp.tril(phi.T @ stop_gradient(phi) / n - eye)
    return error_1, jnp.tril(phi_2.T @ stop_gradient(phi_2) / n - eye)


def all_earlier_below(matrix: Array, threshold: Array) -> Array:
    """Returns 1 for rows where all earlier rows are below the threshold, else 0 (the original)."""
    below = (jnp.abs(matrix) < threshold).all(axis=1).astype(matrix.dtype)
    earlier = jnp.concatenate([jnp.ones(1, matrix.dtype), jnp.cumprod(below)[:-1]])
    return earlier[:, None]


def terms_with(errors: Errors, helper: Helper | None = None) -> Terms:
    """Returns the function of both terms; a helper masks rows of E (infinite threshold: none)."""

    def terms(phi: Array, phi_2: Array, duals: Array, barrier: Array) -> Array:
        error_1, error_2 = errors(phi, phi_2)
        if helper is not None:
            error_1 = helper(stop_gradient(error_1), jnp.inf + barrier) * error_1
        return (duals * error_1).sum() + barrier * (2 * error_1 * stop_gradient(error_2)).sum()

    return terms


TERMS: dict[str, Terms] = {
    "einsum": terms_with(einsum_errors),
    "product": terms_with(product_errors),
    "one eye": terms_with(one_eye_errors),
    "helper": terms_with(einsum_errors, all_earlier_below),
    "jitted helper": terms_with(einsum_errors, jax.jit(all_earlier_below)),
}
