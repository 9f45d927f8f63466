"""A score of returns means the same whatever the rewards are counted in."""

import numpy as np
import pytest

from quatrain.envs.host.scoring import score_of

RANDOM = np.array([20.0, 22.0, 24.0])  # mean 22, deviation 2


@pytest.mark.parametrize(
    ("returns", "score"),
    [
        ([22.0, 22.0], 0),
        ([24.0, 24.0], 1),
        ([28.0, 28.0], 2),
        ([36.0, 36.0], 3),
        ([20.0, 20.0], -1),
        ([10.0, 42.0], np.log2(3)),
    ],
)
@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("shift", [0.0, -1e3])
def test_a_score_counts_deviations_of_random_returns_in_doublings(
    returns: list[float], score: float, scale: float, shift: float
):
    values = scale * (np.array(returns) + shift)
    references = {"random": scale * (RANDOM + shift), "constant": scale * (np.ones(5) + shift)}
    assert score_of(values, references) == pytest.approx(score, abs=1e-6)


def test_a_score_is_counted_from_the_best_policy_without_learning():
    references = {"random": RANDOM, "constant": np.array([30.0, 34.0]), "untrained": np.zeros(4)}
    scores = [score_of(each, references) for each in (*references.values(), np.array([38.0, 38]))]
    assert scores == pytest.approx([-np.log2(6), 0, -np.log2(17), np.log2(4)])


def test_random_returns_that_are_all_alike_leave_the_deviation_of_the_others_or_the_sign():
    alike = np.full(7, 10 * 0.1 - 1.3)  # their computed deviation is not exactly 0
    only = {"random": alike}
    others = alike + np.array([0.0, 2, 4, 0, 2, 4, 2])
    assert score_of(others, only) == pytest.approx(np.log2(1 + 2 / 1.6330), rel=1e-4)
    assert score_of(alike, only) == 0
    assert score_of(alike + 1e-4, only) == 1
    assert score_of(alike - 50, only) == -1
