"""Policies without learning: their actions, by hand."""

import math

import pytest
import torch

from quatrain.envs.colony.config import PARAMETERS, Env
from quatrain.envs.colony.dynamics import Colonies
from quatrain.envs.colony.policies import (
    ColonyPolicy,
    action_bounds,
    constant_policy,
    feedback_policy,
    noisy_policy,
    random_policy,
    with_fixed_parameters,
)
from tests.colonies import DEFAULT, colonies_of, rules

RATIO, GAMMA, ALPHA, NOISE, THETA = range(5)


def sized(*n: int, y: float = 200.0) -> Colonies:
    return colonies_of(DEFAULT, *([(10 + 0.1 * i, y) for i in range(cells)] for cells in n))


def controlled(some_rules: Env, colonies: Colonies) -> torch.Tensor:
    count = len(colonies.n)
    return feedback_policy(some_rules, torch.full((count,), 9.0))(torch.arange(count), colonies)


def test_the_controllers_formulas():
    """r = (n − ⌈Nc/2⌉ + ½)/n and θ = −0.02 (cy − H/2), here with Nc = 37 and H = 400."""
    action = controlled(rules(target_nodes=37), sized(30, y=210))[0]
    assert action.tolist() == pytest.approx([(30 - 19 + 0.5) / 30, 9.0, 0.5, 0.5, -0.2])
    act = feedback_policy(DEFAULT, torch.tensor([1.0, 2.0, 3.0]))
    assert act(torch.tensor([2, 0]), sized(9, 9))[:, GAMMA].tolist() == [3, 1]


def test_random_actions_are_uniform_within_their_bounds():
    low, high = action_bounds(DEFAULT)
    assert PARAMETERS == ("delete_ratio", "gamma", "alpha", "noise", "theta")
    assert low.tolist() == pytest.approx([0, 0.5, 0.5, 0.05, -math.pi / 6])
    assert high.tolist() == pytest.approx([0.7, 15, 4, 0.5, math.pi / 6])
    first, again, other = (
        random_policy(DEFAULT, torch.Generator().manual_seed(seed))(torch.arange(20_000), sized(5))
        for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    share = (first - low) / (high - low)
    assert share.min() >= 0
    assert share.max() <= 1
    # 4.5 standard errors of a mean, a second moment and a correlation of uniform numbers
    torch.testing.assert_close(share.mean(0), torch.full((5,), 0.5), atol=0.0092, rtol=0)
    torch.testing.assert_close(share.square().mean(0), torch.full((5,), 1 / 3), atol=0.0095, rtol=0)
    torch.testing.assert_close(share.T.corrcoef(), torch.eye(5), atol=0.032, rtol=0)


def test_noise_is_a_share_of_each_range_and_leaves_no_bound():
    low, high = action_bounds(DEFAULT)
    middle = constant_policy(((low + high) / 2).expand(9000, 5))
    edge = constant_policy(high.expand(9000, 5))

    def shares(act: ColonyPolicy) -> torch.Tensor:
        noisy = noisy_policy(DEFAULT, act, 0.2, torch.Generator().manual_seed(0))
        return (noisy(torch.arange(9000), sized(5)) - low) / (high - low)

    for statistic, expected in (("amin", 0.3), ("amax", 0.7), ("mean", 0.5)):
        result = getattr(shares(middle), statistic)(0)
        torch.testing.assert_close(result, torch.full((5,), expected), atol=6e-3, rtol=0)
    assert shares(edge).max() <= 1
    torch.testing.assert_close(shares(edge).amin(0), torch.full((5,), 0.8), atol=2e-3, rtol=0)


def test_fixed_parameters_are_replaced_in_a_copy():
    actions = torch.rand(4, 5)
    kept = actions.clone()
    act = with_fixed_parameters({"gamma": 7.3, "theta": 0.0}, lambda *_: actions)
    result = act(torch.arange(4), sized(5, 6, 7, 8))
    assert result[:, GAMMA].unique().tolist() == pytest.approx([7.3])
    assert result[:, THETA].unique().tolist() == [0]
    free = [RATIO, ALPHA, NOISE]
    assert torch.equal(result[:, free], kept[:, free])
    assert torch.equal(actions, kept)
