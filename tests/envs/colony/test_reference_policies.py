"""Reference policies: episodes that are played to their end, the search for a constant action, and
the controller's throw.
"""

from collections.abc import Mapping

import numpy as np
import pytest
import torch

from quatrain.envs.colony import policies
from quatrain.envs.colony.config import PARAMETERS, REWARDS, RUNNING
from quatrain.envs.colony.dynamics import Colonies, advance
from quatrain.envs.colony.policies import (
    ColonyPolicy,
    action_bounds,
    best_constant,
    best_gamma,
    constant_policy,
    feedback_policy,
)
from quatrain.envs.colony.rewards import components
from quatrain.envs.colony.world import episodes, returns, select, start
from tests.colonies import world
from tests.conftest import shapes_unchecked
from tests.torch_numbers import seeded

SIZES = {"width": 60, "height": 50, "max_nodes": 32, "target_nodes": 6, "n0_min": 2, "n0_max": 8}
SMALL = world(**SIZES, max_steps=9, left_limit=3)
WEIGHTS = [weight for _, weight in SMALL.rules.reward_weights]
LOW, HIGH = action_bounds(SMALL.rules)


def begun(count: int, seed: int = 0) -> Colonies:
    return start(SMALL, count, seeded(seed))


def by_loop(colonies: Colonies, act: ColonyPolicy) -> list[float]:
    """Computes the return of each colony, simulated alone."""
    result = []
    for row in range(len(colonies.n)):
        single, total, reason = select(colonies, torch.tensor([row])), 0.0, RUNNING
        while reason == RUNNING:
            step = advance(SMALL, single, act(torch.tensor([row]), single))
            paid = components(SMALL, step)[0].tolist()
            total += sum(value * weight for value, weight in zip(paid, WEIGHTS, strict=True))
            single, reason = step.after, int(step.reason[0])
        result.append(total)
    return result


def test_each_colony_plays_one_episode_as_if_alone():
    colonies = begun(17)
    copies = Colonies(*(leaf.clone() for leaf in colonies))
    actions = LOW + (HIGH - LOW) * torch.rand(17, 5, generator=seeded(1))
    for act in (constant_policy(actions), feedback_policy(SMALL.rules, torch.linspace(1, 15, 17))):
        np.testing.assert_allclose(returns(SMALL, colonies, act), by_loop(colonies, act), atol=1e-4)
    assert all(torch.equal(*pair) for pair in zip(colonies, copies, strict=True))


@pytest.mark.parametrize("preset", REWARDS)
def test_a_return_is_that_of_colonies_whose_parents_and_ages_are_known(preset: str):
    reward = SMALL.rules.reward.model_copy(update={"preset": preset})
    paying = world(**SIZES, max_steps=9, left_limit=3, reward=reward)
    act, total = feedback_policy(SMALL.rules, torch.full((17,), 9.0)), torch.zeros(17).double()
    for moment in episodes(paying, begun(17), act):
        total[moment.indices] += moment.reward
    assert torch.equal(returns(paying, begun(17), act), total.float())


def searched(fixed: Mapping[str, float] = {}, seed: int = 0) -> policies.Search:
    with shapes_unchecked():
        return policies.Search(*map(torch.tensor, best_constant(SMALL, 60, fixed, seeded(seed))))


@pytest.fixture(scope="module")
def search() -> policies.Search:
    return searched()


def test_finalists_are_the_best_of_all_points_and_rounds(search: policies.Search):
    assert len(search.actions) == len(search.returns) == 60 + 4 * 48
    best = search.returns.argsort(descending=True)[:8]
    assert torch.equal(search.finalists, search.actions[best])
    assert not torch.equal(search.final_returns, search.returns[best])  # on colonies of their own
    assert ((search.actions >= LOW) & (search.actions <= HIGH)).all()
    rounds = [search.returns[:60], *search.returns[60:].split(48)]
    assert rounds[-1].mean() > rounds[1].mean() > rounds[0].mean()


def test_all_points_are_scored_on_the_same_colonies():
    same = policies._mean_returns(SMALL, ((LOW + HIGH) / 2).repeat(3, 1), 4, seeded(0))
    torch.testing.assert_close(same, same[:1].expand(3))


def test_every_point_has_the_fixed_parameters_and_the_final_comparison_decides(
    search: policies.Search,
):
    winners = {int(search.final_returns.argmax())}
    for seed, fixed in enumerate(({"gamma": 7.3, "noise": 0.1}, {"delete_ratio": 0.5}), start=1):
        result = searched(fixed, seed)
        for column, name in enumerate(PARAMETERS):
            values = result.actions[:, column].unique()
            if name in fixed:
                assert torch.equal(values, torch.tensor([fixed[name]]))
            else:
                assert len(values) > 50
        winners.add(int(result.final_returns.argmax()))
    assert winners != {0}


def test_the_controllers_throw_is_the_best_of_eight_on_the_same_colonies():
    result = best_gamma(SMALL, {}, seeded(5))
    count = policies.GAMMA_COLONIES
    colonies, tried = start(SMALL, count, seeded(5)), torch.linspace(0.5, 15, 8)
    scores = [
        returns(SMALL, colonies, feedback_policy(SMALL.rules, single.expand(count))).mean()
        for single in tried
    ]
    assert len({float(score) for score in scores}) > 1
    assert result == tried[int(np.argmax(scores))]
    # A fixed gamma leaves nothing to search.
    assert best_gamma(SMALL, {"gamma": 3.0}, seeded()) == 0.5
