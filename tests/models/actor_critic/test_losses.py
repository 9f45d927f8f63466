"""The loss of proximal policy optimisation: worked numbers, gradients, the terms of a batch."""

import pytest
import torch

from quatrain.models.actor_critic import losses, ppo
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.ppo import MINIBATCH_METRICS
from quatrain.replay.rollouts import Graphs, Minibatch
from tests.conftest import small
from tests.models.actor_critic.learners import make_learner
from tests.torch_numbers import wave

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


# All terms of a batch.

BATCH, CELLS, ACTIONS, COMPONENTS = 3, 5, 4, 6


def config_of(policy: str, value_heads: str) -> ActorCriticConfig:
    """With all that the terms depend on."""
    bounds = {"delete_ratio": (0.0, 0.7), "gamma": (0.5, 15.0)}
    bounds |= {"alpha": (0.5, 4.0), "theta": (-0.5, 0.5)}
    action = {"bounds": bounds, "active_params": tuple(bounds), "fixed_params": {"noise": 0.5}}
    return small(
        "actor_critic",
        env={"features": "light", "action": action},
        network={"d": 8, "heads": 2, "layers": 2, "policy": policy, "value_heads": value_heads},
        train={"clip": 0.2, "value_clip": 0.3},
    )


def batch_of(values: tuple[int, ...]) -> Minibatch:
    n = torch.tensor([5, 1, 3])
    mask = torch.arange(CELLS) < n[:, None]
    parent = torch.where(mask, torch.tensor([-1, 0, 0, 2, -1]), -1)
    node = wave(BATCH, CELLS, 8, start=1.0) * mask[..., None]
    graphs = Graphs(node, wave(BATCH, 10, start=2.0), parent, mask)
    return Minibatch(
        groups=(graphs,),
        raw_action=0.5 + 0.4 * wave(BATCH, ACTIONS, start=3.0),
        log_prob=torch.tensor([-7.2, -4.3, -3.2]),
        dist_params=torch.stack(
            [2 + wave(BATCH, ACTIONS, start=5.0), 2 + wave(BATCH, ACTIONS, start=6.0)], 1
        ),
        value=wave(BATCH, *values, start=7.0),
        advantage=wave(BATCH, start=8.0),
        returns=wave(BATCH, *values, start=9.0),
    )


@pytest.mark.parametrize(
    ("policy", "value_heads", "expected"),
    [
        ("beta", "total", (-0.264692, 4.894362, -2.404616)),
        ("squashed_gaussian", "components", (-0.355113, 1.966127, -1.995534)),
    ],
)
def test_the_terms_of_a_batch_are_these_numbers(
    policy: str, value_heads: str, expected: tuple[float, ...]
):
    config = config_of(policy, value_heads)
    learner = make_learner(config)
    with torch.no_grad():
        for place, param in enumerate(learner.network.parameters()):
            param.copy_(0.4 * wave(*param.shape, start=float(place)))
    batch = batch_of(() if value_heads == "total" else (COMPONENTS,))
    _, row = ppo.objective(learner, batch, 0.01)
    result = dict(zip(MINIBATCH_METRICS, row.tolist(), strict=True))
    assert [result[term] for term in losses.TERMS] == pytest.approx(expected, rel=1e-4)
