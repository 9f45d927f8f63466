"""Scores from outcomes made by hand, and outcomes of small worlds that can be told in advance."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest

from quatrain.models.iqn import evaluate as room
from quatrain.models.iqn import network
from quatrain.models.iqn.collect import Dataset, HeldOut
from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.evaluate import Outcome, evaluate, gini, income, order_gap, returns
from quatrain.models.iqn.train import State
from tests.conftest import params_with

CHANCE, ORACLE = "random", "oracle_view"


def config(env: dict[str, Any], **sections: Any) -> IqnConfig:
    """A config of one small world and five turns in an episode."""
    small = {
        "env": {"worlds": 2, "max_turns": 5} | env,
        "collect": {"turns": 10, "held_out_worlds": 12},
        "network": {"frames": 2, "hidden": 8},
        "train": {
            "turns": 15,
            "turns_per_cycle": 5,
            "batch_size": 7,
            "capacity": 40,
            "record_every": 32,
        },
        "evaluate": {"bootstrap_samples": 300},
    }
    small["train"] |= {"evaluate_every": 0, "acting": {"epsilon": {"over_transitions": 30}}}
    return params_with({"iqn": small | sections}).iqn


def outcome(returns_of: Sequence[Sequence[float]], events: np.ndarray | None = None) -> Outcome:
    """An outcome with these returns (agents, worlds), all paid in the second of three turns."""
    rewards = np.zeros((3, *np.shape(returns_of)), np.float32)
    rewards[1] = returns_of
    happened = np.zeros(rewards.shape, np.int8) if events is None else events
    return Outcome(rewards, happened, np.arange(rewards.shape[2]))


def scored(
    monkeypatch: pytest.MonkeyPatch, learned: list[Outcome], references: dict[str, Outcome]
) -> dict[str, float]:
    """What `evaluate` makes of outcomes made by hand; an oracle that is not given earns 1, all
    others nothing.
    """
    rewards = np.zeros_like(learned[0].rewards)
    nothing, oracle = (
        learned[0]._replace(rewards=rewards),
        learned[0]._replace(rewards=rewards + 1 / len(rewards)),
    )
    policies = dict.fromkeys(room.REFERENCE_POLICIES, nothing) | {ORACLE: oracle} | references
    monkeypatch.setattr(room, "evaluate_policy", lambda *_: learned)
    monkeypatch.setattr(room, "evaluate_reference_policy", lambda _config, name, *_: policies[name])
    selected = config({"agents": learned[0].rewards.shape[1]}, seeds=len(learned))
    return evaluate(selected, State(*[None] * len(State._fields)), Dataset(None, None), 3)


@pytest.mark.parametrize(
    ("incomes", "expected"),
    [
        ((80, 100, 100, 100, 120), 0.064),
        ((0, 0, 0, 0, 10), 0.8),
        ((10, 0, 0, 0, 0), 0.8),
        ((3, 3, 3), 0.0),
        ((0, 0, 0), 0.0),
        ((7,), 0.0),
    ],
)
def test_gini_of_known_incomes(incomes: tuple[float, ...], expected: float):
    assert float(gini(np.array(incomes, float))) == pytest.approx(expected)


def test_gini_takes_each_world_by_itself():
    worlds = np.array([[0.0, 3.0, 0.0], [0.0, 3.0, 8.0]])
    assert gini(worlds).tolist() == [0.0, 0.0, 0.5]


def test_order_gap_is_the_first_agent_minus_the_last():
    assert order_gap(outcome([[9.0, 7.0], [100.0, 100.0], [1.0, 3.0]])) == 6.0


def test_returns_are_sums_over_turns():
    rewards = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
    np.testing.assert_array_equal(
        returns(Outcome(rewards, rewards.astype(np.int8), np.arange(2))), [[12, 15], [18, 21]]
    )


def test_income_counts_items_of_positive_value_and_nothing_else():
    kinds = [("gem", 10.0), ("bone", -10.0), ("food", 5.0)]
    env = config(
        {"entities": [{"name": name, "value": value, "weight": 1.0} for name, value in kinds]}
    ).env
    events = np.array([1, 1, 2, 3, 0, -1, -2], np.int8)[:, None, None]
    assert income(env, outcome([[0.0]], events)).tolist() == [[25.0]]


def test_share_is_of_the_oracle_and_score_begins_at_chance(monkeypatch: pytest.MonkeyPatch):
    references = {
        CHANCE: outcome([[20.0, 20.0], [20.0, 20.0]]),
        ORACLE: outcome([[110.0, 100.0], [90.0, 100.0]]),
    }
    scores = scored(monkeypatch, [outcome([[70.0, 90.0], [70.0, 90.0]])], references)
    assert scores["return_mean"] == 80
    assert scores["return_se"] == 10
    assert scores["share"] == pytest.approx(0.8)
    assert scores["score"] == pytest.approx(0.75)
    assert (scores["random_return"], scores["oracle_view_return"], scores["constant_return"]) == (
        20,
        100,
        0,
    )
    assert scores["oracle_view_order_gap"] == 10
    assert [scores[f"return_agent_{agent}"] for agent in range(2)] == [80, 80]


def test_a_score_may_be_negative_and_a_random_return_too(monkeypatch: pytest.MonkeyPatch):
    references = {CHANCE: outcome([[-10.0, -30.0]]), ORACLE: outcome([[60.0, 60.0]])}
    assert scored(monkeypatch, [outcome([[-40.0, -40.0]])], references)["score"] == pytest.approx(
        -0.25
    )


def test_an_oracle_no_better_than_chance_leaves_no_score(monkeypatch: pytest.MonkeyPatch):
    learned = [outcome([[value, 6.0]]) for value in (5.0, 7.0)]
    scores = scored(monkeypatch, learned, {ORACLE: outcome([[0.0, 0.0]])})
    assert np.isnan(
        [scores["share"], scores["score"], scores["score_low"], scores["score_high"]]
    ).all()
    assert np.isfinite(
        [scores["return_mean"], scores["return_mean_low"], scores["gini_episode"]]
    ).all()


def test_the_interval_of_the_score_pairs_worlds(monkeypatch: pytest.MonkeyPatch):
    """Rich worlds are rich for all: at half the way in each world, the score is sure though returns
    are not.
    """
    wealth = np.linspace(10, 90, 40)
    references = {CHANCE: outcome([0 * wealth]), ORACLE: outcome([wealth])}
    scores = scored(monkeypatch, [outcome([wealth / 2])], references)
    assert scores["return_se"] > 1.5
    assert scores["score_low"] == pytest.approx(0.5)
    assert scores["score_high"] == pytest.approx(0.5)
    noise = np.where(np.arange(40) % 2, 12.0, -12.0)
    scores = scored(monkeypatch, [outcome([wealth / 2 + noise])], references)
    assert 0.38 < scores["score_low"] < 0.47 < 0.53 < scores["score_high"] < 0.62


def test_standard_error_is_over_worlds_not_over_agents(monkeypatch: pytest.MonkeyPatch):
    by_world = [2.0, 4.0, 6.0]
    item = scored(monkeypatch, [outcome([by_world])], {})
    many = scored(monkeypatch, [outcome([by_world] * 5)], {})
    assert item["return_se"] == many["return_se"] == pytest.approx(2 / 3**0.5)


def test_several_seeds_give_means_and_t_intervals_over_seeds(monkeypatch: pytest.MonkeyPatch):
    references = {CHANCE: outcome([[0.0, 0.0]]), ORACLE: outcome([[100.0, 100.0]])}
    seeds = [outcome([[value - 1, value + 1]]) for value in (60.0, 70.0, 80.0)]
    scores = scored(monkeypatch, seeds, references)
    half = 4.302653 * 10 / 3**0.5
    assert scores["return_mean"] == scores["return_iqm"] == 70
    assert scores["return_mean_sd"] == pytest.approx(10)
    assert scores["return_mean_low"] == pytest.approx(70 - half)
    assert scores["return_mean_high"] == pytest.approx(70 + half)
    assert scores["score_high"] - scores["score"] == pytest.approx(half / 100)
    assert scores["share_low"] == pytest.approx(scores["score_low"])


def test_events_are_counted_per_agent_and_episode(monkeypatch: pytest.MonkeyPatch):
    events = np.zeros((3, 2, 4), np.int8)
    events[0] = 1
    events[1, 0] = -1
    events[2, :, 0] = -2
    scores = scored(monkeypatch, [outcome(np.zeros((2, 4)), events)], {})
    assert (scores["items_gem"], scores["wall_bumps"], scores["blocked"]) == (1, 0.5, 0.25)
    assert scores["items_left"] == 1.5
    assert scores["gini_episode"] == scores["gini_systematic"] == 0


def test_luck_of_single_episodes_is_no_systematic_inequality(monkeypatch: pytest.MonkeyPatch):
    events = np.zeros((3, 2, 2), np.int8)
    events[0, [0, 1], [0, 1]] = 1
    scores = scored(monkeypatch, [outcome(np.zeros((2, 2)), events)], {})
    assert (scores["gini_episode"], scores["gini_systematic"]) == (0.5, 0)


UP, RIGHT = 0, 3


def always(actions: Sequence[int], selected: IqnConfig) -> State:
    """A learner whose agent always does the same, in each seed another thing; of a learner only the
    parameters.
    """
    template = network.init(selected.network, jax.random.key(0), selected.inputs)
    params = jax.tree.map(
        lambda leaf: np.zeros((len(actions), selected.env.agents, *leaf.shape), np.float32),
        template,
    )
    for seed, action in enumerate(actions):
        params["advantage"]["bias"][seed, :, action] = 1.0
    blank = State(*[None] * len(State._fields))
    return blank._replace(params=params, target_params=params)


@cache
def two_cells() -> tuple[IqnConfig, Dataset]:
    """Worlds of two cells in which something, good or bad, always grows in the cell where the only
    agent is not.
    """
    kinds = [
        {"name": name, "value": value, "weight": 1.0}
        for name, value in (("gem", 10.0), ("bone", -2.0))
    ]
    rows = ("####", "#A.#", "####")
    env = {
        "height": None,
        "width": None,
        "layout": "\n".join(rows),
        "vision_radius": 1,
        "agents": 1,
        "entities": kinds,
    }
    keys = np.asarray(jax.random.key_data(jax.random.split(jax.random.key(6), 12)))
    held_out = HeldOut(keys, np.ones((12, 1, 2), np.int16), np.zeros((12, 3, 4), np.int8))
    return config(env | {"spawn_probability": 1.0}, seeds=2), Dataset(None, held_out)


def played(name: str, key: int = 0) -> Outcome:
    return room.evaluate_reference_policy(two_cells()[0], name, two_cells()[1], jax.random.key(key))


def test_every_policy_plays_the_same_worlds_with_the_same_growth():
    """Who is never blocked walks to and fro, and takes what grew: whatever the policy, and whatever
    its dice.
    """
    grown = played("free_random").events
    assert grown.shape == (5, 1, 12)
    assert set(grown.ravel()) == {1, 2}
    assert len(np.unique(grown[:, 0], axis=1).T) > 6
    np.testing.assert_array_equal(played("free_random", key=1).events, grown)
    np.testing.assert_array_equal(played(ORACLE).events, grown)
    selected, dataset = two_cells()
    learned = room.evaluate_policy(
        selected, always([RIGHT, UP], selected), dataset, jax.random.key(0)
    )
    np.testing.assert_array_equal(learned[0].events[0], grown[0])
    assert (learned[0].events[1:] == -1).all()


def test_rewards_are_those_of_the_events_up_to_the_last_turn():
    outcome = played("free_random")
    np.testing.assert_array_equal(outcome.rewards, np.where(outcome.events == 1, 10, -2))


def test_what_is_left_after_the_last_turn_is_counted():
    """Who stays leaves the other cell's item; who walks to and fro leaves none, under it or behind
    it.
    """
    selected, dataset = two_cells()
    right, up = room.evaluate_policy(
        selected, always([RIGHT, UP], selected), dataset, jax.random.key(0)
    )
    assert (up.rewards == -1).all()
    assert (up.items_left == 1).all()
    assert (right.items_left == 1).all()
    assert (played("free_random").items_left == 0).all()


def test_greedy_evaluation_repeats_bit_for_bit_whatever_the_key():
    selected, dataset = two_cells()
    seeds = [
        network.init(selected.network, jax.random.key(seed), selected.inputs) for seed in range(2)
    ]
    params = jax.tree.map(lambda *leaves: np.stack(leaves)[:, None], *seeds)
    state = always([UP, UP], selected)._replace(params=params)
    runs = [room.evaluate_policy(selected, state, dataset, jax.random.key(key)) for key in (1, 2)]
    for first, again in zip(*runs, strict=True):
        assert all(np.array_equal(item, other) for item, other in zip(first, again, strict=True))
