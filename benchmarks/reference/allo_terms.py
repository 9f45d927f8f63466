"""features -> the constraint terms of the loss, in the original's and a proposal's spelling"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jax.lax import stop_gradient

Errors = Callable[[Array, Array], tuple[Array, Array]]
"""Features of two batches -> E1 and E2: how far they are from orthonormal."""
Terms = Callable[[Array, Array, Array, Array], Array]
"""Features of two batches, duals, barrier -> the dual term and the barrier term together."""
Helper = Callable[..., Array]


def by_einsum(phi: Array) -> Array:
    """Computes the products of all pairs of features with einsum, as the original."""
    return jnp.einsum("ij,ik->jk", phi, stop_gradient(phi)) / len(phi)


def by_matmul(phi: Array) -> Array:
    """Computes them with `@` in place of einsum."""
    return phi.T @ stop_gradient(phi) / len(phi)


def two_eyes(product: Helper, phi: Array, phi_2: Array) -> tuple[Array, Array]:
    """Subtracts an identity matrix for each batch, as the original."""
    d = phi.shape[1]
    return jnp.tril(product(phi) - jnp.eye(d)), jnp.tril(product(phi_2) - jnp.eye(d))


def one_eye(product: Helper, phi: Array, phi_2: Array) -> tuple[Array, Array]:
    """Subtracts one identity matrix from both."""
    eye = jnp.eye(phi.shape[1])
    return jnp.tril(product(phi) - eye), jnp.tril(product(phi_2) - eye)


einsum_errors: Errors = partial(two_eyes, by_einsum)
proposed_errors: Errors = partial(one_eye, by_matmul)


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
    "product": terms_with(partial(two_eyes, by_matmul)),
    "one eye": terms_with(partial(one_eye, by_einsum)),
    "helper": terms_with(einsum_errors, all_earlier_below),
    "jitted helper": terms_with(einsum_errors, jax.jit(all_earlier_below)),
}
