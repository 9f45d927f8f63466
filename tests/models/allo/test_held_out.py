"""What held-out pairs tell of functions on a ring, whose eigenvalues are known."""

import numpy as np
import pytest

from quatrain.models.allo.held_out import measure

SIZE, TURN = 20_000, 0.5
ANGLES = np.random.default_rng(0).uniform(0, 2 * np.pi, SIZE)
MIXED = np.random.default_rng(1).normal(size=(3, 3))


def waves(angles: np.ndarray, number: int = 1) -> np.ndarray:
    """Returns the constant, sine and cosine: eigenvectors of walks that turn by an angle."""
    parts = np.sqrt(2) * np.stack([np.cos(number * angles), np.sin(number * angles)], 1)
    return np.concatenate([np.ones((len(angles), 1)), parts], 1)


def pair(number: int = 1, mixed: np.ndarray | None = None) -> list[np.ndarray]:
    """Returns the functions before and after a turn, in one direction or the other."""
    sign = np.where(np.arange(SIZE) % 2, 1, -1)
    mixing = np.eye(3) if mixed is None else mixed
    return [waves(angles, number) @ mixing for angles in (ANGLES, ANGLES + sign * TURN)]


def test_quotients_are_the_eigenvalues_and_orthonormal_functions_have_no_overlap():
    measured = measure(*(part[None] for part in pair()))
    expected = [[0, 1 - np.cos(TURN), 1 - np.cos(TURN)]]
    np.testing.assert_allclose(measured["held_out_eigenvalue"], expected, atol=0.01)
    np.testing.assert_allclose(measured["held_out_orthogonality"], 0, atol=0.02)
    assert "consistency" not in measured


@pytest.mark.parametrize("mixed", [None, MIXED])
def test_autocorrelation_is_that_of_the_span(mixed: np.ndarray | None):
    measured = measure(*(part[None] for part in pair(mixed=mixed)))
    np.testing.assert_allclose(measured["autocorrelation"], np.cos(TURN), atol=0.01)


def test_permuted_pairs_and_one_function_three_times_keep_nothing():
    start, later = (part[None] for part in pair())
    permuted = np.random.default_rng(2).permutation(later, axis=1)
    assert abs(measure(start, permuted)["autocorrelation"][0]) < 0.02
    collapsed = measure(np.ones((1, SIZE, 3)), np.ones((1, SIZE, 3)))
    np.testing.assert_allclose(collapsed["autocorrelation"], 0, atol=1e-9)
    np.testing.assert_allclose(collapsed["held_out_orthogonality"], 1)


def test_learners_are_consistent_with_those_of_their_span_alone():
    learners = [pair(), pair(mixed=MIXED), pair(number=2)]
    start, later = (np.stack(parts) for parts in zip(*learners, strict=True))
    np.testing.assert_allclose(measure(start[:2], later[:2])["consistency"], 1, atol=1e-6)
    np.testing.assert_allclose(measure(start, later)["consistency"], [0.5, 0.5, 0], atol=0.02)
