"""Policies without learning: what they do, what is measured of them, and the best constant."""

import numpy as np
import pytest
from jaxtyping import Float32

from quatrain.envs.host import references
from quatrain.envs.host.config import HostEnv
from quatrain.envs.host.envs import HostEnvs
from quatrain.envs.host.episodes import Act, Episodes, play_episodes
from quatrain.envs.host.spaces import Interface

INDICES = Interface(("agent",), 4, 7, (), (), False, 9)
VECTORS = Interface(("agent",), 4, 0, (-1.0, 0.0), (3.0, 1.0), False, 9)
CART_POLE = HostEnv.model_validate(
    {"kind": "gymnasium", "id": "CartPole-v1", "import": None, "kwargs": {}}
    | {"max_episode_steps": 20}
)
OBS: Float32[np.ndarray, "env agent obs"] = np.zeros((3, 2, 4), np.float32)


def draws() -> np.random.Generator:
    return np.random.default_rng(5)


@pytest.mark.parametrize(("interface", "shape"), [(INDICES, (3, 2)), (VECTORS, (3, 2, 2))])
def test_policies_act_for_every_agent(interface: Interface, shape: tuple[int, ...]):
    drawn = references.random_policy(interface, draws())
    assert drawn(OBS).shape == shape
    assert not np.array_equal(drawn(OBS), drawn(OBS))
    action = references.constant_candidates(interface, 2, draws())[1]
    repeated = references.constant_policy(np.asarray(action))(OBS)
    assert repeated.shape == shape
    assert (repeated == action).all()


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


def test_the_search_keeps_the_action_of_highest_mean_return_over_episodes_and_agents():
    def play(act: Act) -> Episodes:
        paid = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 0.0]]) * (4 - act(OBS)[0, 0]) ** 2
        return Episodes(-paid, np.ones(3, int), np.ones(3, bool))

    search = references.search_constant(np.array([1, 3, 4, 6]), play)
    assert search.returns.tolist() == [-22.5, -2.5, 0, -10]
    assert search.best == 4


def test_moments_are_those_of_what_the_policy_observes():
    act = references.constant_policy(np.array(1))
    envs, again = HostEnvs(CART_POLE, 3, 0), HostEnvs(CART_POLE, 3, 0)
    moments = references.measure(envs, act, 30)
    obs = np.concatenate([again.step(act(again.obs)).obs[:, 0] for _ in range(30)])
    np.testing.assert_allclose(moments.mean, obs.mean(0, np.float64))
    np.testing.assert_allclose(moments.variance, obs.var(0, np.float64))


def test_scores_of_a_policy_and_of_the_references():
    episodes = play_episodes(CART_POLE, 9, 0, references.constant_policy(np.array(0)))
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
