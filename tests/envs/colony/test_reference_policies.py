"""Floors: episodes that are played to their end, the search for a constant action, and the
controller's throw.
"""

from collections.abc import Mapping

import numpy as np
import pytest
import torch

from quatrain.envs.colony import reference_policies
from quatrain.envs.colony.dynamics import Colonies, World, advance
from quatrain.envs.colony.episodes import episodes, repeat, returns, select
from quatrain.envs.colony.policies import (
    ColonyPolicy,
    action_bounds,
    constant_policy,
    feedback_policy,
    random_policy,
)
from quatrain.envs.colony.reference_policies import best_constant, best_gamma
from quatrain.envs.colony.rewards import components
from quatrain.envs.colony.rules import RUNNING
from quatrain.envs.colony.world import start
from tests.colonies import wandering, world

SIZES = {"width": 60, "height": 50, "max_nodes": 32, "target_nodes": 6, "n0_min": 2, "n0_max": 8}
SMALL = world(**SIZES, max_steps=9, left_limit=3)
HELD_OUT = {"gamma": 7.3, "noise": 0.1}
WEIGHTS = [weight for _, weight in SMALL.rules.reward]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def begun(count: int, seed: int = 0) -> Colonies:
    return start(SMALL, count, generator(seed))


def by_loop(some_world: World, colonies: Colonies, act: ColonyPolicy) -> list[float]:
    """Computes the return of each colony, simulated alone."""
    result = []
    for row in range(len(colonies.n)):
        single, total, reason = select(colonies, torch.tensor([row])), 0.0, RUNNING
        while reason == RUNNING:
            step = advance(some_world, single, act(torch.tensor([row]), single))
            paid = components(some_world, step)[0].tolist()
            total += sum(value * weight for value, weight in zip(paid, WEIGHTS, strict=True))
            single, reason = step.after, int(step.reason[0])
        result.append(total)
    return result


def test_each_colony_plays_one_episode_as_if_alone():
    colonies = begun(17)
    low, high = action_bounds(SMALL.rules)
    act = constant_policy(low + (high - low) * torch.rand(17, 5, generator=generator(1)))
    np.testing.assert_allclose(
        returns(SMALL, colonies, act), by_loop(SMALL, colonies, act), atol=1e-4
    )
    steady = feedback_policy(SMALL.rules, torch.linspace(1, 15, 17))
    np.testing.assert_allclose(
        returns(SMALL, colonies, steady), by_loop(SMALL, colonies, steady), atol=1e-4
    )


def test_ended_colonies_leave_the_batch_and_all_colonies_end():
    colonies = begun(40)
    ended, before = [], None
    for moment in episodes(SMALL, colonies, random_policy(SMALL.rules, generator(2))):
        assert before is None or moment.indices.tolist() == before
        over = moment.transition.reason != RUNNING
        ended += moment.indices[over].tolist()
        before = moment.indices[~over].tolist()
    assert before == []
    assert sorted(ended) == list(range(40))
    assert ended != sorted(ended)


def test_an_episode_has_at_most_max_steps():
    still = constant_policy(torch.tensor([[0.5, 0.5, 4.0, 0.05, 0.0]]).expand(8, 5))
    moments = list(episodes(SMALL, begun(8), still))
    assert len(moments) == SMALL.rules.max_steps
    assert [int(moment.transition.after.t[0]) for moment in moments] == list(range(1, 10))


def test_episodes_do_not_modify_their_colonies():
    colonies = begun(9)
    copies = Colonies(*(leaf.clone() for leaf in colonies))
    returns(SMALL, colonies, random_policy(SMALL.rules, generator()))
    assert all(torch.equal(*pair) for pair in zip(colonies, copies, strict=True))


def test_the_order_of_colonies_does_not_matter():
    colonies, order = begun(30), torch.randperm(30, generator=generator(3))
    gamma = torch.linspace(1, 15, 30)
    result = returns(SMALL, colonies, feedback_policy(SMALL.rules, gamma))
    again = returns(SMALL, select(colonies, order), feedback_policy(SMALL.rules, gamma[order]))
    assert torch.equal(again, result[order])


def test_a_batch_is_repeated_as_a_whole():
    colonies = wandering(SMALL, 3, 2)
    twice = repeat(colonies, 2)
    assert all(
        torch.equal(both, torch.cat([leaf, leaf]))
        for both, leaf in zip(twice, colonies, strict=True)
    )


def searched(
    fixed: Mapping[str, float] = {}, points: int = 60, seed: int = 0
) -> reference_policies.Search:
    return best_constant(SMALL, points, fixed, generator(seed))


@pytest.fixture(scope="module")
def search() -> reference_policies.Search:
    return searched()


def test_the_search_evaluates_its_points_and_four_rounds(
    search: reference_policies.Search,
):
    assert len(search.actions) == len(search.returns) == 60 + 4 * 48
    assert len(search.finalists) == len(search.final_returns) == 8


def test_half_of_the_first_points_hold_a_size_and_go_straight(search: reference_policies.Search):
    half, others = search.actions[:30], search.actions[30:60]
    assert ((half[:, 0] >= 0.45) & (half[:, 0] <= 0.57)).all()
    assert (half[:, 4] == 0).all()
    assert (others[:, 4] != 0).all()
    assert others[:, 0].min() < 0.2
    assert others[:, 0].max() > 0.6
    assert len(half[:, 0].unique()) == 30


def test_every_point_lies_within_the_bounds(search: reference_policies.Search):
    low, high = action_bounds(SMALL.rules)
    assert ((search.actions >= low) & (search.actions <= high)).all()


def test_finalists_are_the_best_that_were_tried(search: reference_policies.Search):
    best = search.returns.sort(descending=True).values[:8]
    scores = {
        tuple(action.tolist()): float(score)
        for action, score in zip(search.actions, search.returns, strict=True)
    }
    assert [scores[tuple(single.tolist())] for single in search.finalists] == best.tolist()
    assert not torch.equal(search.final_returns, best)  # on colonies of their own


def test_the_final_comparison_selects_the_best_action(search: reference_policies.Search):
    result = [search, *(searched(seed=seed) for seed in (1, 2))]
    winners = [int(single.final_returns.argmax()) for single in result]
    assert set(winners) != {0}
    assert all(
        torch.equal(single.best, single.finalists[winner])
        for single, winner in zip(result, winners, strict=True)
    )


def test_later_rounds_have_higher_returns(search: reference_policies.Search):
    rounds = [search.returns[:60], *search.returns[60:].split(48)]
    assert rounds[-1].mean() > rounds[1].mean() > rounds[0].mean()
    assert search.actions[-48:].std(0).sum() < search.actions[60:108].std(0).sum()


def test_a_score_is_the_mean_return_of_colonies_that_all_points_share(
    monkeypatch: pytest.MonkeyPatch,
):
    batches = []

    def recorded(some_world: World, colonies: Colonies, act: ColonyPolicy) -> torch.Tensor:
        batches.append((colonies, returns(some_world, colonies, act)))
        return batches[-1][1]

    monkeypatch.setattr(reference_policies, "returns", recorded)
    search = searched()
    assert [len(scores) for _, scores in batches] == [60 * 16, *[48 * 32] * 4, 8 * 512]
    first, scores = batches[0]
    assert torch.equal(first.pos[:16], first.pos[16:32])
    torch.testing.assert_close(search.returns[:60], scores.view(60, 16).mean(1))
    last, scores = batches[-1]
    assert torch.equal(last.pos[:512], last.pos[-512:])
    torch.testing.assert_close(search.final_returns, scores.view(8, 512).mean(1))


@pytest.mark.parametrize("fixed", [HELD_OUT, {"delete_ratio": 0.5, "theta": 0.2}, {"alpha": 1.7}])
def test_every_point_has_the_fixed_parameters(fixed: dict[str, float]):
    search = searched(fixed)
    for column, name in enumerate(("delete_ratio", "gamma", "alpha", "noise", "theta")):
        values = search.actions[:, column].unique()
        assert (
            torch.equal(values, torch.tensor([fixed[name]])) if name in fixed else len(values) > 50
        )


def test_the_same_seed_gives_the_same_search(search: reference_policies.Search):
    assert all(torch.equal(*pair) for pair in zip(searched(), search, strict=True))
    assert not torch.equal(searched(seed=1).actions, search.actions)


def test_the_controllers_throw_is_the_best_of_eight_on_the_same_colonies():
    result = best_gamma(SMALL, {}, generator(5))
    colonies = start(SMALL, reference_policies.GAMMA_COLONIES, generator(5))
    tried = torch.linspace(0.5, 15, 8)
    scores = [
        returns(
            SMALL, colonies, feedback_policy(SMALL.rules, single.expand(len(colonies.n)))
        ).mean()
        for single in tried
    ]
    assert len({float(score) for score in scores}) > 1
    assert result == tried[int(np.argmax(scores))]


def test_a_fixed_gamma_leaves_nothing_to_search():
    assert best_gamma(SMALL, {"gamma": 3.0}, generator()) == 0.5
