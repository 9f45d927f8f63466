"""The Lagrangian by hand, its wiring, and its fixed point."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quatrain.models.allo import losses
from quatrain.models.allo.truth import operator, spectrum
from tests.replay.trajectories import from_trajectories

PHI = jnp.array([[1.0, 0.0], [1.0, 1.0]])
LATER = jnp.array([[0.0, 0.0], [1.0, 3.0]])
OTHER = jnp.array([[2.0, 1.0], [0.0, 1.0]])
DUALS = jnp.array([[-2.0, 0.0], [1.0, -1.0]])


def loss_by_hand(
    phi: jax.Array, later: jax.Array, other: jax.Array
) -> tuple[dict[str, jax.Array], losses.Constraints]:
    constraints = losses.two_batches(losses.Features(phi, later, other[None]))
    graph = losses.graph_term(phi, later)
    return losses.lagrangian(graph, constraints, DUALS, jnp.float32(0.5), 0.5), constraints


def test_each_term_equals_the_value_computed_by_hand():
    terms, constraints = loss_by_hand(PHI, LATER, OTHER)
    assert terms == pytest.approx({"graph": 1.25, "dual": 1.0, "barrier_term": 0.5})
    assert constraints.quadratic == pytest.approx(1.0)
    np.testing.assert_allclose(constraints.first, [[0, 0], [0.5, -0.5]])
    np.testing.assert_allclose(constraints.second, [[1, 0], [1, 0]])


def test_gradients_equal_those_by_hand_and_the_second_constraint_batch_gets_none():
    total = lambda *phis: sum(loss_by_hand(*phis)[0].values())  # noqa: E731
    gradients = jax.grad(total, argnums=(0, 1, 2))(PHI, LATER, OTHER)
    np.testing.assert_allclose(gradients[0], [[0, 1], [-0.5, -0.5]])
    np.testing.assert_allclose(gradients[1], [[-0.5, 0], [0, 1]])
    np.testing.assert_allclose(gradients[2], 0)


def test_duals_and_barrier_get_no_gradient():
    constraints = losses.visited_constraints(PHI, jnp.array([0.5, 0.5]))

    def value(duals: jax.Array, barrier: jax.Array) -> jax.Array:
        terms = losses.lagrangian(jnp.float32(1), constraints, duals, barrier, 0.5)
        return sum(terms.values())

    for gradient in jax.grad(value, argnums=(0, 1))(DUALS, jnp.float32(0.5)):
        np.testing.assert_array_equal(gradient, 0)


def test_error_entry_i_j_moves_component_i_only():
    phi = jax.random.normal(jax.random.key(0), (7, 4))
    gradients = np.asarray(jax.jit(jax.jacrev(losses.error_matrix))(phi))
    for i, j in ((0, 0), (2, 1), (3, 3), (3, 0)):
        assert np.flatnonzero(np.abs(gradients[i, j]).sum(0)).tolist() == [i]


def test_three_batches_have_the_mean_error_and_half_the_barrier_of_two():
    two = losses.two_batches(losses.Features(PHI, LATER, OTHER[None]))
    three = losses.three_batches(losses.Features(LATER, LATER, jnp.stack([PHI, OTHER])))
    np.testing.assert_allclose(three.error, (two.first + two.second) / 2)
    assert three.quadratic == pytest.approx(two.quadratic / 2)


def test_the_truth_with_its_duals_is_a_fixed_point_and_swapped_components_are_not():
    episodes = from_trajectories([[0, 1, 2, 1, 0, 0, 1, 2, 2, 1]])
    op = operator(episodes, 3, (0.9,))
    truth = spectrum(op, 3, tol=0.0)
    duals = jnp.asarray(np.diag(-4 * 0.5 * truth.eigenvalues), jnp.float32)

    def gradient(table: np.ndarray) -> np.ndarray:
        def value(values: jax.Array) -> jax.Array:
            laplacian = jnp.asarray(op.laplacian, jnp.float32)
            graph = 2 * (values * (laplacian @ values)).sum()
            constraints = losses.visited_constraints(values, jnp.asarray(op.starts, jnp.float32))
            terms = losses.lagrangian(graph, constraints, duals, jnp.float32(0.5), 0.5)
            return sum(terms.values())

        return np.asarray(jax.grad(value)(jnp.asarray(table, jnp.float32)))

    assert np.abs(gradient(truth.eigenvectors)).max() < 1e-6
    assert np.abs(gradient(truth.eigenvectors[:, [0, 2, 1]])).max() > 1e-2
