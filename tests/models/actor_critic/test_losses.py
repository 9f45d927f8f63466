"""The loss of proximal policy optimisation: worked numbers, where gradients flow, and what is
recorded.
"""

import pytest
import torch

from quatrain.models.actor_critic import losses

RATIO = torch.tensor([1.0, 1.5, 1.5, 0.5, 0.5, 1.1])
ADVANTAGE = torch.tensor([2.0, 2.0, -2.0, 2.0, -2.0, -1.0])


def test_worked_policy_loss_takes_the_worse_of_the_ratio_and_the_clipped_one():
    result = losses.policy(RATIO, ADVANTAGE, 0.2)
    torch.testing.assert_close(result, torch.tensor([-2.0, -2.4, 3.0, -1.0, 1.6, 1.1]))


def test_only_moves_that_do_not_yet_pay_enough_have_a_gradient():
    ratio = RATIO.clone().requires_grad_()
    losses.policy(ratio, ADVANTAGE, 0.2).sum().backward()
    assert ratio.grad.tolist() == [-2, 0, 2, -2, 0, 1]


def test_a_ratio_is_that_of_the_probabilities():
    probabilities, old = torch.tensor([0.2, 0.3, 0.9]), torch.tensor([0.4, 0.3, 0.1])
    torch.testing.assert_close(losses.ratio(probabilities.log(), old.log()), probabilities / old)


def test_at_the_policy_that_played_the_gradient_is_the_policy_gradient():
    """d loss = −Σ Â d ln π, not zero though the ratio is 1 and nothing is clipped."""
    log_prob = torch.tensor([-1.0, 0.3, 2.0], requires_grad=True)
    ratio = losses.ratio(log_prob, log_prob.detach())
    losses.policy(ratio, ADVANTAGE[[0, 2, 5]], 0.2).sum().backward()
    assert ratio.tolist() == [1, 1, 1]
    assert float(losses.clip_fraction(ratio, 0.2)) == 0
    assert log_prob.grad.tolist() == [-2, 2, 1]


VALUES, OLD_VALUES = torch.tensor([1.0, 3.0, 0.0, 5.0]), torch.tensor([1.1, 1.0, 0.0, 7.0])
RETURNS, UNIT_WEIGHT = torch.tensor([2.0, 2.0, 2.0, 6.0]), torch.tensor(1.0)


@pytest.mark.parametrize("clip", [0.001, 0.05, 0.5, 3.0])
def test_a_clipped_value_never_lowers_the_error(clip):
    clipped, free = (
        losses.value(VALUES, OLD_VALUES, RETURNS, UNIT_WEIGHT, each) for each in (clip, 0.0)
    )
    assert (clipped >= free).all()


def test_a_value_that_moved_too_far_towards_the_return_learns_no_more():
    values = torch.tensor([0.1, 0.5, -0.5], requires_grad=True)
    losses.value(values, torch.zeros(3), torch.ones(3), UNIT_WEIGHT, 0.2).sum().backward()
    torch.testing.assert_close(values.grad, torch.tensor([-1.8, 0.0, -3.0]))


def test_worked_value_loss():
    free = losses.value(VALUES, OLD_VALUES, RETURNS, UNIT_WEIGHT, 0.0)
    assert free.tolist() == [1, 1, 4, 1]
    clipped = losses.value(VALUES, OLD_VALUES, torch.tensor([0.0, 4.0, 2.0, 4.5]), UNIT_WEIGHT, 0.2)
    torch.testing.assert_close(clipped, torch.tensor([1.0, 2.8**2, 4.0, 2.3**2]))


def test_errors_of_components_count_by_their_weight():
    values, returns = torch.stack([VALUES, VALUES - 1], 1), torch.stack([RETURNS, RETURNS + 1], 1)
    result = losses.value(values, torch.zeros(4, 2), returns, torch.tensor([3.0, 0.5]), 0.0)
    torch.testing.assert_close(result, torch.tensor([3 + 4.5, 3 + 0.5, 12 + 8, 3 + 4.5]))


def test_terms_are_one_number_per_sample_and_all_named_functions():
    entropy = torch.tensor([0.5, -1.0])
    assert losses.entropy(entropy).tolist() == [-0.5, 1]
    assert all(callable(getattr(losses, term.removeprefix("loss_"))) for term in losses.TERMS)


def test_clip_fraction_counts_ratios_outside():
    assert float(losses.clip_fraction(RATIO, 0.2)) == pytest.approx(4 / 6)


def test_explained_variance_of_the_truth_a_constant_and_worse():
    returns = torch.tensor([1.0, 2.0, 6.0])
    assert float(losses.explained_variance(returns, returns)) == 1
    assert float(losses.explained_variance(torch.full((3,), 9.0), returns)) == pytest.approx(0)
    assert float(losses.explained_variance(-returns, returns)) == pytest.approx(-3)
    components = torch.stack([returns, 10 * returns], 1)
    half = torch.stack([returns, torch.zeros(3)], 1)
    assert float(losses.explained_variance(half, components)) == pytest.approx(1 / 101)


def test_nothing_is_explained_where_all_returns_are_equal():
    assert float(losses.explained_variance(torch.randn(300), torch.full((300,), 0.1))) == 0
