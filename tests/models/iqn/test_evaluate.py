"""Scores from outcomes made by hand, and outcomes of small worlds that can be told in advance."""

from collections.abc import Sequence
from functools import cache
from operator import itemgetter
from typing import Any

import jax
import numpy as np
import pytest

from quatrain.models.iqn import network
from quatrain.models.iqn import treasurehunt_scores as scoring
from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.evaluate import evaluate
from quatrain.models.iqn.learn import State, init_params
from quatrain.models.iqn.treasurehunt import Dataset, HeldOut, sizes
from quatrain.models.iqn.treasurehunt_scores import Outcome, gini, income
from tests.conftest import small

# Of an outcome, where it is not looked at.
FILM = np.zeros((1, 1, 1), np.int8), np.zeros((1, 1, 2), np.int16)
BLANK = State(*[None] * len(State._fields))


def config(seeds: int = 1, **env: Any) -> IqnConfig:
    """A config of one small world and five turns in an episode."""
    return small(
        "iqn",
        seeds=seeds,
        env={"worlds": 2, "max_turns": 5} | env,
        train={"turns_per_cycle": 5, "acting": {"epsilon": {"over_transitions": 100}}},
        evaluate={"bootstrap_samples": 300},
    )


def outcome(returns_of: Sequence[Sequence[float]], events: np.ndarray | None = None) -> Outcome:
    """An outcome with these returns (agents, worlds), all paid in the second of three turns."""
    rewards = np.zeros((3, *np.shape(returns_of)), np.float32)
    rewards[1] = returns_of
    happened = np.zeros(rewards.shape, np.int8) if events is None else events
    return Outcome(rewards, happened, np.arange(rewards.shape[2]), *FILM)


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> Any:
    def scored(*learned: Outcome, **references: Outcome) -> dict[str, float]:
        """Of outcomes made by hand; an oracle that is not given earns 1, all others nothing."""
        rewards = np.zeros_like(learned[0].rewards)
        policies = dict.fromkeys(scoring.REFERENCE_POLICIES, learned[0]._replace(rewards=rewards))
        policies["oracle_view"] = learned[0]._replace(rewards=rewards + 1 / len(rewards))
        policies |= references
        monkeypatch.setattr(scoring, "play_held_out", lambda *_: (list(learned), policies))
        selected = config(len(learned), agents=learned[0].rewards.shape[1])
        return evaluate(selected, BLANK, Dataset(None, None), 3).scores

    return scored


@pytest.mark.parametrize(
    ("incomes", "expected"),
    [
        ((80, 100, 100, 100, 120), 0.064),
        ((10, 0, 0, 0, 0), 0.8),
        ((0, 0, 0), 0.0),
        (((0.0, 3.0, 0.0), (0.0, 3.0, 8.0)), (0.0, 0.0, 0.5)),
    ],
)
def test_gini_of_known_incomes_in_each_world(incomes: Any, expected: Any):
    np.testing.assert_allclose(gini(np.array(incomes, float)), expected)


def test_income_counts_items_of_positive_value_and_nothing_else():
    kinds = [("gem", 10.0), ("bone", -10.0), ("food", 5.0)]
    entities = [{"name": name, "value": value, "weight": 1.0} for name, value in kinds]
    events = np.array([1, 1, 2, 3, 0, -1, -2], np.int8)[:, None, None]
    assert income(config(entities=entities).env, outcome([[0.0]], events)).tolist() == [[25.0]]


def test_share_is_of_the_oracle_and_score_begins_at_chance(scored: Any):
    scores = scored(
        outcome([[70.0, 90.0], [70.0, 90.0]]),
        random=outcome([[20.0, 20.0], [20.0, 20.0]]),
        oracle_view=outcome([[110.0, 100.0], [90.0, 100.0]]),
    )
    expected = {
        "return_mean": 80,
        "return_se": 10,
        "share": 0.8,
        "score": 0.75,
        "random_return": 20,
        "oracle_view_return": 100,
        "constant_return": 0,
        "oracle_view_order_gap": 10,
        "return_agent_0": 80,
        "return_agent_1": 80,
    }
    assert {name: scores[name] for name in expected} == pytest.approx(expected)
    references = {"random": outcome([[-10.0, -30.0]]), "oracle_view": outcome([[60.0, 60.0]])}
    assert scored(outcome([[-40.0, -40.0]]), **references)["score"] == pytest.approx(-0.25)


def test_an_oracle_no_better_than_chance_leaves_no_score(scored: Any):
    learned = [outcome([[value, 6.0]]) for value in (5.0, 7.0)]
    scores = scored(*learned, oracle_view=outcome([[0.0, 0.0]]))
    assert np.isnan([scores[name] for name in ("share", "score", "score_sd")]).all()
    assert np.isfinite([scores[name] for name in ("return_mean_sd", "gini_episode")]).all()
    alone = scored(learned[0], oracle_view=outcome([[0.0, 0.0]]))
    assert np.isnan(alone["score"])
    assert "score_held_out_low" not in alone


def test_the_interval_of_the_score_pairs_worlds(scored: Any):
    """At half the way in rich and in poor worlds the score is sure though returns are not."""
    wealth = np.linspace(10, 90, 40)
    references = {"random": outcome([0 * wealth]), "oracle_view": outcome([wealth])}
    scores = scored(outcome([wealth / 2]), **references)
    assert scores["return_se"] > 1.5
    ends = ("score_held_out_low", "score_held_out_high")
    assert [scores[end] for end in ends] == pytest.approx([0.5, 0.5])
    assert not {"score_low", "score_high"} & scores.keys()
    noise = np.where(np.arange(40) % 2, 12.0, -12.0)
    scores = scored(outcome([wealth / 2 + noise]), **references)
    low, high = (scores[end] for end in ends)
    assert 0.38 < low < 0.47 < 0.53 < high < 0.62


def test_events_are_counted_and_luck_of_single_episodes_is_no_systematic_inequality(scored: Any):
    events = np.zeros((3, 2, 4), np.int8)
    events[0, [0, 1], [0, 1]], events[1, 0], events[2, :, 0] = 1, -1, -2
    scores = scored(outcome(np.zeros((2, 4)), events))
    assert (scores["items_gem"], scores["wall_bumps"], scores["blocked"]) == (0.25, 0.5, 0.25)
    assert scores["items_left"] == 1.5
    assert (scores["gini_episode"], scores["gini_systematic"]) == (0.25, 0)


# Played.


UP, RIGHT = 0, 3


def always(actions: Sequence[int], selected: IqnConfig) -> State:
    """The parameters of a learner whose agent always does the same, in each seed another thing."""
    init = jax.eval_shape(
        lambda: network.init(selected.network, jax.random.key(0), selected.inputs, 4)
    )
    shape = (len(actions), selected.env.agents)
    params = jax.tree.map(lambda leaf: np.zeros((*shape, *leaf.shape), np.float32), init)
    for seed, action in enumerate(actions):
        params["advantage"]["bias"][seed, :, action] = 1.0
    return BLANK._replace(params=params, target_params=params)


@cache
def two_cells() -> tuple[IqnConfig, Dataset]:
    """Worlds of two cells in which something always grows in the cell where the agent is not."""
    kinds = [("gem", 10.0), ("bone", -2.0)]
    selected = config(
        seeds=2,
        height=None,
        width=None,
        layout="####\n#A.#\n####",
        vision_radius=1,
        agents=1,
        entities=[{"name": name, "value": value, "weight": 1.0} for name, value in kinds],
        spawn_probability=1.0,
    )
    keys = np.asarray(jax.random.key_data(jax.random.split(jax.random.key(6), 12)))
    held_out = HeldOut(keys, np.ones((12, 1, 2), np.int16), np.zeros((12, 3, 4), np.int8))
    return selected, Dataset(None, held_out)


@cache
def played(name: str, key: int = 0) -> Outcome:
    selected, dataset = two_cells()
    unused = init_params(selected, sizes(selected, dataset), jax.random.key(0))
    return scoring.play_policy(selected, name, unused, dataset, jax.random.key(key))


def learned(state: State, key: int = 0) -> list[Outcome]:
    selected, dataset = two_cells()
    by_seed = [jax.tree.map(itemgetter(seed), state.params) for seed in range(selected.seeds)]
    return [
        scoring.play_policy(selected, "learned", each, dataset, jax.random.key(key))
        for each in by_seed
    ]


def test_every_policy_plays_the_same_worlds_with_the_same_growth():
    """Who is never blocked walks to and fro and takes what grew, whatever the policy or dice."""
    grown = played("free_random").events
    assert grown.shape == (5, 1, 12)
    assert set(grown.ravel()) == {1, 2}
    assert len(np.unique(grown[:, 0], axis=1).T) > 6
    np.testing.assert_array_equal(played("free_random", key=1).events, grown)
    np.testing.assert_array_equal(played("oracle_view").events, grown)
    rewards = played("free_random").rewards
    np.testing.assert_array_equal(rewards, np.where(grown == 1, 10, -2))


def test_what_is_left_after_the_last_turn_is_counted():
    """Who stays leaves the other cell's item; who walks to and fro leaves none."""
    right, up = learned(always([RIGHT, UP], two_cells()[0]))
    np.testing.assert_array_equal(right.events[0], played("free_random").events[0])
    assert (right.events[1:] == -1).all()
    assert (up.rewards == -1).all()
    assert {*right.items_left, *up.items_left} == {1}
    assert {*played("free_random").items_left} == {0}


def test_greedy_evaluation_repeats_bit_for_bit_whatever_the_key():
    state = always([UP, UP], two_cells()[0])
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), state.params)
    drawn = BLANK._replace(params=params, target_params=params)
    np.testing.assert_equal(learned(drawn, key=1), learned(drawn, key=2))
