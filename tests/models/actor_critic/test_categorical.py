"""The policy over indices against torch's categorical distribution."""

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, kl_divergence

from quatrain.models.actor_critic.ppo.categorical import make_categorical
from tests.torch_numbers import wave

POLICY = make_categorical()
BATCH, TIME, ACTIONS = 3, 4, 5


def raw(start: float = 1.0) -> Tensor:
    return 3 * wave(TIME, BATCH, ACTIONS, start=start)


def test_log_probabilities_entropies_and_divergences_are_those_of_torch():
    old, new = raw(), raw(2.0)
    expected, other = Categorical(logits=old), Categorical(logits=new)
    params, other_params = POLICY.distribution(old), POLICY.distribution(new)
    index = torch.arange(TIME * BATCH).reshape(TIME, BATCH) % ACTIONS
    raw_action = index[..., None].float()
    torch.testing.assert_close(POLICY.log_prob(params, raw_action), expected.log_prob(index))
    torch.testing.assert_close(POLICY.entropy(params), expected.entropy())
    torch.testing.assert_close(POLICY.raw_entropy(params), expected.entropy())
    torch.testing.assert_close(POLICY.kl(params, other_params), kl_divergence(expected, other))
    assert POLICY.kl(params, params).abs().max() == 0


def test_draws_come_as_often_as_they_are_likely_and_repeat_with_the_generator():
    params = POLICY.distribution(raw()[0, 0].expand(2, 20_000, ACTIONS))
    draws = POLICY.sample(params, torch.Generator().manual_seed(0))
    assert draws.shape == (2, 20_000, 1)
    counts = torch.bincount(POLICY.action(draws).flatten(), minlength=ACTIONS)
    torch.testing.assert_close(counts / counts.sum(), params[0][0, 0].exp(), atol=0.01, rtol=0)
    assert torch.equal(draws, POLICY.sample(params, torch.Generator().manual_seed(0)))


def test_the_deterministic_action_is_the_most_likely():
    index = POLICY.action(POLICY.mean(POLICY.distribution(raw())))
    assert torch.equal(index, raw().argmax(-1))


def test_a_gradient_raises_the_probability_of_an_action():
    outputs = raw().requires_grad_()
    POLICY.log_prob(
        POLICY.distribution(outputs), torch.full((TIME, BATCH, 1), 2.0)
    ).sum().backward()
    assert outputs.grad is not None
    assert (outputs.grad[..., 2] > 0).all()
    assert outputs.grad.sum().item() == pytest.approx(0, abs=1e-5)
