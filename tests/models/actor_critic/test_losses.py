"""The loss of proximal policy optimisation: worked numbers, and where gradients flow."""

import pytest
import torch

from quatrain.models.actor_critic import losses

RATIO = torch.tensor([1.0, 1.5, 1.5, 0.5, 0.5, 1.1])
ADVANTAGE = torch.tensor([2.0, 2.0, -2.0, 2.0, -2.0, -1.0])
VALUES, RETURNS = torch.tensor([1.0, 3.0, 0.0, 5.0]), torch.tensor([2.0, 2.0, 2.0, 6.0])
UNIT_WEIGHT = torch.tensor(1.0)


def test_policy_loss_takes_the_worse_of_the_ratio_and_the_clipped_one():
    """Only moves that do not yet pay enough have a gradient."""
    ratio = RATIO.clone().requires_grad_()
    result = losses.policy(ratio, ADVANTAGE, 0.2)
    torch.testing.assert_close(result, torch.tensor([-2.0, -2.4, 3.0, -1.0, 1.6, 1.1]))
    result.sum().backward()
    assert ratio.grad.tolist() == [-2, 0, 2, -2, 0, 1]
    assert float(losses.clip_fraction(RATIO, 0.2)) == pytest.approx(4 / 6)


def test_at_the_policy_that_played_the_gradient_is_the_policy_gradient():
    """d loss = −Σ Â d ln π, not zero though the ratio is 1 and nothing is clipped."""
    log_prob = torch.tensor([-1.0, 0.3, 2.0], requires_grad=True)
    ratio = losses.ratio(log_prob, log_prob.detach())
    losses.policy(ratio, ADVANTAGE[[0, 2, 5]], 0.2).sum().backward()
    assert ratio.tolist() == [1, 1, 1]
    assert log_prob.grad.tolist() == [-2, 2, 1]
    halved = losses.ratio(torch.tensor([0.2]).log(), torch.tensor([0.4]).log())
    assert float(halved) == pytest.approx(0.5)


def test_a_value_that_moved_too_far_towards_the_return_learns_no_more():
    values = torch.tensor([0.1, 0.5, -0.5], requires_grad=True)
    losses.value(values, torch.zeros(3), torch.ones(3), UNIT_WEIGHT, 0.2).sum().backward()
    torch.testing.assert_close(values.grad, torch.tensor([-1.8, 0.0, -3.0]))


def test_worked_value_losses_of_which_those_of_components_count_by_their_weight():
    old, returns = torch.tensor([1.1, 1.0, 0.0, 7.0]), torch.tensor([0.0, 4.0, 2.0, 4.5])
    clipped = losses.value(VALUES, old, returns, UNIT_WEIGHT, 0.2)
    torch.testing.assert_close(clipped, torch.tensor([1.0, 2.8**2, 4.0, 2.3**2]))
    values, returns = torch.stack([VALUES, VALUES - 1], 1), torch.stack([RETURNS, RETURNS + 1], 1)
    result = losses.value(values, torch.zeros(4, 2), returns, torch.tensor([3.0, 0.5]), 0.0)
    torch.testing.assert_close(result, torch.tensor([3 + 4.5, 3 + 0.5, 12 + 8, 3 + 4.5]))


def test_explained_variance_of_the_truth_a_constant_and_worse():
    returns = torch.tensor([1.0, 2.0, 6.0])
    assert float(losses.explained_variance(returns, returns)) == 1
    assert float(losses.explained_variance(-returns, returns)) == pytest.approx(-3)
    components = torch.stack([returns, 10 * returns], 1)
    half = torch.stack([returns, torch.zeros(3)], 1)
    assert float(losses.explained_variance(half, components)) == pytest.approx(1 / 101)
    assert float(losses.explained_variance(torch.randn(300), torch.full((300,), 0.1))) == 0
