"""Signs of misfit: a right filter shows none, and each way to be wrong shows its own."""

from typing import Any

import numpy as np
import pytest
import torch

from quatrain.models.active_dynamics import evaluate
from quatrain.models.active_dynamics.collect import collect, world_of
from quatrain.models.active_dynamics.references import oracle
from tests.conftest import shapes_unchecked
from tests.models.active_dynamics import filters as small_filters
from tests.models.active_dynamics.small_trials import configured


def scores(seed: int = 0, **noise: float) -> dict[str, float]:
    """Returns what a filter with the true field scores, with wrong noise of the world it is for."""
    env = {"control": [[1.0, 0.0, 1.0], [0.0, 1.0, -1.0]]}
    config = configured(env=env, collect={"held_out_rollouts": 64})
    with shapes_unchecked():
        dataset = collect(config, seed)
        world = world_of(config, dataset)
        env = config.env.model_copy(update={"process_noise": noise.get("process_noise", 0.01)})
        variance = world.emission.noise_variance * noise.get("variance", 1.0)
        world = world._replace(emission=world.emission._replace(noise_variance=variance))
        return oracle(config.model_copy(update={"env": env}), world, dataset.held_out)


def test_innovations_of_a_right_filter_are_white_and_as_large_as_expected():
    """Means of three worlds, whose interval is narrower still."""
    results = [scores(seed) for seed in range(3)]
    result = results[0]
    for name in ("nis", "whiteness"):
        mean = np.mean([other[f"{name}_oracle"] for other in results])
        assert result[f"{name}_expected_low"] < mean < result[f"{name}_expected_high"]
    assert result["nis_expected_high"] - 1 == pytest.approx(1.96 * (2 / (64 * 100 * 2)) ** 0.5)


@pytest.mark.parametrize(
    ("noise", "nis", "whiteness"),
    [
        ({"process_noise": 0.0001}, 1, 1),  # too little: large, and of one sign for long
        ({"process_noise": 0.3}, -1, -1),  # too much: small, and corrected back and forth
        ({"variance": 0.3}, 1, -1),
        ({"variance": 3.0}, -1, 1),
    ],
)
def test_wrong_noise_shows(noise: Any, nis: int, whiteness: int):
    """Signs say on which side of its interval a score is, by more than its length."""
    result = scores(**noise)
    for name, side in (("nis", nis), ("whiteness", whiteness)):
        low, high = (result[f"{name}_expected_{end}"] for end in ("low", "high"))
        assert side * (result[f"{name}_oracle"] - (low + high) / 2) > 2 * (high - low)


@pytest.mark.parametrize("obs", [1, 2, 5])
def test_a_standardized_innovation_has_the_size_of_the_one_of_states(obs: int):
    """Of S = H P Hᵀ + R: ηᵀ (Λ + ΛPΛ)⁺ η is what observations say beside the channels' noise."""
    channels = small_filters.emission(obs=obs)
    inputs = small_filters.filter_of(channels)
    belief = small_filters.some_belief(4, 2)
    y = small_filters.drawn(4, obs, seed=9)
    actual = inputs.standardized_innovation(belief, y)
    h, noise = channels.weight, torch.diag(channels.noise_variance)
    for row in range(4):
        residual = y[row] - channels.mean(belief.mean[row])
        covariance = h @ belief.covariance[row] @ h.T + noise
        gain = h.T @ torch.linalg.inv(noise)
        eta, spread = gain @ residual, gain @ covariance @ gain.T
        expected = eta @ torch.linalg.pinv(spread, rtol=1e-10) @ eta
        assert float(actual[row].square().sum()) == pytest.approx(float(expected))


# Distance.


def test_distances_are_to_the_nearest_state_of_the_own_path():
    path = np.array([[[0.0, 0.0], [1.0, 0.0]], [[0.0, 2.0], [0.0, 2.0]]])
    grid = np.array([[0.0, 0.0], [0.7, 0.4]])
    expected = [[0.0, 0.5], [2.0, np.hypot(0.7, 1.6)]]
    np.testing.assert_allclose(evaluate.nearest_distances(path, grid), expected, atol=1e-7)


def test_errors_are_averaged_by_range_and_none_where_there_is_no_point_or_nothing_expected():
    square, variance = np.array([[1.0, 9.0, 4.0]]), np.array([[4.0, 4.0, 16.0]])
    distance = np.array([[0.01, 0.05, 0.5]])
    error, expected = evaluate.by_distance(square, variance, distance)
    missing = np.nan
    np.testing.assert_allclose(error, [[5**0.5, missing, missing, missing, 2, missing]])
    np.testing.assert_allclose(expected, [[2, missing, missing, missing, 4, missing]])
    assert evaluate.near_error(square, variance, distance) == pytest.approx((10 / 8) ** 0.5)
    for nothing in ((square, 0 * variance, distance), (square, variance, distance + 1)):
        assert np.isnan(evaluate.near_error(*nothing)).all()
