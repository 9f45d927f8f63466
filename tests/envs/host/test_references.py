"""Policies without learning: what they do, what is measured of them, and the best constant."""

from contextlib import closing
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest

from quatrain.envs.host import references
from quatrain.envs.host.config import HostEnv
from quatrain.envs.host.envs import HostEnvs, play_episodes
from quatrain.envs.host.sizes import held_out_sizes
from quatrain.envs.host.spaces import Interface

INDICES = Interface(("agent",), 4, (), False, (7,), (), (), False, 9)
VECTORS = Interface(("agent",), 4, (), False, (), (-1.0, 0.0), (3.0, 1.0), False, 9)
CART_POLE = HostEnv.model_validate(
    {"kind": "gymnasium", "id": "CartPole-v1", "import": None, "kwargs": {}}
    | {"max_episode_steps": 20, "wrappers": [], "vectorization": "sync"}
)


def draws() -> np.random.Generator:
    return np.random.default_rng(5)


def test_candidates_are_all_indices_or_a_draw_and_of_vectors_the_middle_too():
    every = references.constant_candidates(INDICES, 7, draws())
    some = references.constant_candidates(INDICES, 3, draws())
    assert every.tolist() == [*range(7)]
    assert len(set(some.tolist())) == 3
    vectors = references.constant_candidates(VECTORS, 40, draws())
    assert vectors[0].tolist() == [1, 0.5]
    assert vectors.shape == (40, 2)
    assert (vectors >= [-1, 0]).all()
    assert (vectors <= [3, 1]).all()


# What is played.


class Paying(gymnasium.Env):
    """Pays for nearness to action 4, and ends after a number of steps that the seed draws."""

    observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(7)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # noqa: ARG002
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(2, 7))
        return np.float32([self.left]), {}

    def step(self, action: Any) -> Any:
        self.left -= 1
        return np.float32([self.left]), -abs(4.0 - action), self.left == 0, False, {}


PAYING = HostEnv.model_validate(
    {"kind": "gymnasium", "id": None, "import": f"{__name__}:Paying", "kwargs": {}}
    | {"max_episode_steps": 9, "wrappers": [], "vectorization": "sync"}
)


def test_all_policies_play_the_same_episodes_as_many_as_fit_into_the_budget():
    sizes = held_out_sizes(None, budget=4 * 400.0, collected=320)
    constants = [
        partial(references.constant_policy, INDICES, np.array(action)) for action in (4, 3)
    ]
    with closing(HostEnvs(PAYING, 3, 0)) as envs:
        best, other = references.play_policies(envs, constants, sizes["learned"])
        played = references.play_references(envs, sizes, 7, constants[1])
    assert 0.9 * 400 < best.lengths.sum() < 1.1 * 400
    np.testing.assert_array_equal(other.returns[:, 0], -best.lengths)
    np.testing.assert_array_equal(best.returns, 0)
    assert played["constant"].returns.sum() == 0  # action 4
    for name, transitions in {"random": 80, "constant": 200, "untrained": 200}.items():
        lengths = played[name].lengths
        np.testing.assert_array_equal(lengths, best.lengths[: len(lengths)])
        assert 0.6 * transitions < lengths.sum() < 1.1 * transitions


def test_the_fewest_episodes_are_played_of_any_budget_and_a_number_is_what_it_says():
    with closing(HostEnvs(PAYING, 3, 0)) as envs:
        for episodes, counts in ((None, [8, 8, 4, 4]), (11, [11] * 4)):
            sizes = held_out_sizes(episodes, budget=1.0)
            begin = partial(references.constant_policy, INDICES, np.array(0))
            learned = references.play_policies(envs, [begin] * 2, sizes["learned"])
            played = references.play_references(envs, sizes, 3, begin)
            assert [len(each.lengths) for each in (learned[1], *played.values())] == counts
            every = [*learned, *played.values()]
            spent = sum(int(each.lengths.sum()) for each in every)
            references.warn_if_exceeded("mine", every, sizes, trained=spent)
            if episodes is None:
                with pytest.warns(UserWarning, match=rf"mine: .* the training {spent - 1}:"):
                    references.warn_if_exceeded("mine", every, sizes, trained=spent - 1)
            else:
                references.warn_if_exceeded("mine", every, sizes, trained=1)


def test_scores_of_a_policy_and_of_the_references():
    begin = partial(references.constant_policy, INDICES, np.array(0))
    episodes = play_episodes(CART_POLE, 9, 0, begin)
    returns = episodes.returns[:, 0]
    alone = {"random": returns - 1, "constant": returns - 4}
    scores = references.seed_scores(episodes, alone) | references.reference_scores(alone)
    assert scores["return_mean"] == returns.mean() == scores["random_return"] + 1
    assert scores["return_least"] == returns.min()
    assert scores["return_se"] == pytest.approx(returns.std(ddof=1) / 3)
    assert scores["score"] > scores["random_score"] == 0 > scores["constant_score"]
    interval = references.return_interval(episodes, 0, 200)
    low, high = interval.values()
    assert low <= returns.mean() <= high


# Scores.

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
    by_name = {"random": scale * (RANDOM + shift), "constant": scale * (np.ones(5) + shift)}
    assert references.score_of(values, by_name) == pytest.approx(score, abs=1e-6)


def test_a_score_is_counted_from_the_best_policy_without_learning():
    by_name = {"random": RANDOM, "constant": np.array([30.0, 34.0]), "untrained": np.zeros(4)}
    scores = [
        references.score_of(each, by_name) for each in (*by_name.values(), np.array([38.0, 38]))
    ]
    assert scores == pytest.approx([-np.log2(6), 0, -np.log2(17), np.log2(4)])


def test_random_returns_that_are_all_alike_leave_the_deviation_of_the_others_or_the_sign():
    alike = np.full(7, 10 * 0.1 - 1.3)  # their computed deviation is not exactly 0
    only = {"random": alike}
    others = alike + np.array([0.0, 2, 4, 0, 2, 4, 2])
    assert references.score_of(others, only) == pytest.approx(np.log2(1 + 2 / 1.6330), rel=1e-4)
    assert references.score_of(alike, only) == 0
    assert references.score_of(alike + 1e-4, only) == 1
    assert references.score_of(alike - 50, only) == -1
