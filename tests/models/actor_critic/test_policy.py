"""Distributions of actions: worked numbers, integrals, samples, edges."""

import math

import pytest
import torch
from scipy import stats
from torch import Tensor

from quatrain.envs.colony.rules import PARAMETERS, Bounds
from quatrain.models.actor_critic.ppo import policy as policies
from quatrain.models.actor_critic.ppo.policy import Params, Policy, make_policy
from tests.torch_numbers import seeded

KINDS = ("beta", "squashed_gaussian")
both_kinds = pytest.mark.parametrize("kind", KINDS)
THETA = math.pi / 6
BOUNDS = (Bounds(0, 0.7), Bounds(0.5, 15), Bounds(0.5, 4), Bounds(0.05, 0.5))
BOUNDS += (Bounds(-THETA, THETA),)
FIXED = dict(zip(PARAMETERS, (0.5, 2.0, 1.0, 0.1, 0.0), strict=True))
SAMPLES, CASES = 100_000, 8


def whole(kind: str) -> Policy:
    return make_policy(kind, BOUNDS, PARAMETERS, {})


def of_ratio(kind: str) -> Policy:
    """Of a delete_ratio alone."""
    return make_policy(kind, BOUNDS, PARAMETERS[:1], FIXED)


def params_of(first: float, second: float) -> Params:
    return torch.tensor([float(first)]), torch.tensor([float(second)])


def random_parameters(kind: str, seed: int) -> Params:
    """[case, 1]: concentrations of 1 to 60; Gaussians of all widths, some near an edge."""
    uniform = torch.rand(2, CASES, 1, generator=seeded(seed))
    if kind == "beta":
        return tuple(60**uniform)
    return 6 * uniform[0] - 3, 4 * uniform[1] - 3.5


def sample_many(policy: Policy, parameters: Params, seed: int) -> Tensor:
    """SAMPLES draws of each."""
    many = tuple(part.expand(SAMPLES, *part.shape) for part in parameters)
    return policy.sample(many, seeded(seed))


def assert_is_the_mean(numbers: Tensor, expected: Tensor) -> None:
    """Within 4 standard errors, for each column, and the rounding of float32."""
    numbers = numbers.double()
    error = numbers.std(0) / len(numbers) ** 0.5
    assert ((numbers.mean(0) - expected).abs() <= 4 * error + 2e-6).all()


@both_kinds
def test_draws_and_raw_numbers_are_those_of_the_distribution(kind: str):
    parameters = random_parameters(kind, 5)
    first, second = (part[:, 0].double() for part in parameters)
    law = stats.beta(first.numpy(), second.numpy())
    if kind == "squashed_gaussian":
        law = stats.norm(first.numpy(), second.exp().numpy())
    mean, variance = map(torch.tensor, law.stats())
    policy = of_ratio(kind)
    torch.testing.assert_close(policy.mean(parameters)[:, 0].double(), mean)
    entropy = torch.tensor(law.entropy()).float()
    torch.testing.assert_close(policy.raw_entropy(parameters), entropy, atol=1e-5, rtol=1e-5)
    z = sample_many(policy, parameters, seed=6)[..., 0]
    assert_is_the_mean(z, mean)
    assert_is_the_mean((z.double() - mean).square(), variance)


@both_kinds
def test_entropy_and_kl_are_means_over_samples(kind: str):
    policy = of_ratio(kind)
    old, new = random_parameters(kind, 1), random_parameters(kind, 2)
    if kind == "squashed_gaussian":  # a narrow new one spreads samples too far to tell anything
        new = (old[0] + 0.3 * new[0], old[1] + 0.2 * new[1].sin())
    z = sample_many(policy, old, seed=3)
    log_prob = policy.log_prob(old, z)
    assert_is_the_mean(-log_prob, policy.entropy(old))
    assert_is_the_mean(log_prob - policy.log_prob(new, z), policy.kl(old, new))


@both_kinds
def test_density_of_an_action_integrates_to_1_and_gives_its_entropy(kind: str):
    """Middle sums over the range of the action, from which z is worked out."""
    width, cells = BOUNDS[0].high, 500_000
    policy = of_ratio(kind)
    units = (torch.arange(cells, dtype=torch.float64)[:, None] + 0.5) / cells
    z = units if kind == "beta" else units.logit()
    for case in range(3):
        parameters = tuple(part[case].double().expand_as(z) for part in random_parameters(kind, 8))
        log_prob = policy.log_prob(parameters, z)
        density, cell = log_prob.exp(), width / cells
        assert float(density.sum() * cell) == pytest.approx(1, abs=2e-5)
        entropy = policy.entropy(tuple(part[:1].float() for part in parameters))
        assert float(-(density * log_prob).sum() * cell) == pytest.approx(float(entropy), abs=1e-4)


@both_kinds
def test_a_first_policy_covers_the_range(kind: str):
    """Its draws spread by about a fifth of it, around the middle."""
    unit = make_policy(kind, (Bounds(0, 1),) * 5, PARAMETERS, {})
    parameters = unit.distribution(torch.zeros(20_000, 10))
    units = unit.action(unit.sample(parameters, seeded(14)))
    assert (units.mean(0) - 0.5).abs().max() < 0.01
    assert (units.std(0) - 0.198).abs().max() < 0.01
    if kind == "beta":
        assert parameters[0][0, 0] == pytest.approx(2.7014, abs=1e-4)


@both_kinds
@pytest.mark.parametrize("raw", [-1e4, 30.0, 1e4])
def test_extreme_raw_numbers_give_finite_scores_and_actions_in_bounds(kind: str, raw: float):
    policy = whole(kind)
    numbers = torch.cat([torch.full((7, 5), raw), torch.zeros(7, 5)], 1)
    low, high = torch.tensor(BOUNDS).T
    for each in (numbers, numbers.flip(1), torch.full((7, 10), raw)):
        parameters = policy.distribution(each)
        start = policy.distribution(torch.zeros(7, 10))
        for z in (policy.sample(parameters, seeded(15)), policy.mean(parameters)):
            action = policy.action(z)
            assert ((action >= low) & (action < high)).all()
            assert policy.log_prob(parameters, z).isfinite().all()
        assert policy.entropy(parameters).isfinite().all()
        assert policy.kl(parameters, start).isfinite().all()


@both_kinds
def test_a_draw_at_the_edge_is_the_one_that_is_stored_and_scored(kind: str):
    """Half of the draws of these would be nearer to an edge than EDGE."""
    parameters = params_of(1.0, 100_200.0) if kind == "beta" else params_of(-11.513, 0.5)
    policy = of_ratio(kind)
    many = tuple(part.expand(5000, 1) for part in parameters)
    z = policy.sample(many, seeded(16))
    assert 0.3 < (z == z.min()).float().mean() < 0.75
    action = policy.action(z)[:, 0]
    assert action.min() == pytest.approx(0.7 * policies.EDGE, rel=1e-3)
    unit = action.double() / 0.7
    recovered = (unit if kind == "beta" else unit.logit())[:, None].float()
    torch.testing.assert_close(recovered, z, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        policy.log_prob(many, recovered), policy.log_prob(many, z), rtol=1e-2, atol=1e-2
    )


@both_kinds
def test_a_log_ratio_is_as_exact_as_the_numbers_it_is_made_of(kind: str):
    """Of large parameters that differ in their last bit."""
    policy = whole(kind)
    if kind == "beta":
        parameters = tuple(50 + 50 * torch.rand(2, 256, 5, generator=seeded(17)))
    else:
        parameters = tuple(torch.randn(2, 256, 5, generator=seeded(17)).clamp(-2, 0.5))
    next_to = (torch.nextafter(parameters[0], torch.tensor(1e3)), parameters[1])
    z = policy.sample(parameters, seeded(18))
    assert (policy.log_prob(next_to, z) - policy.log_prob(parameters, z)).abs().max() < 1e-5
    assert policy.kl(parameters, next_to).abs().max() < 1e-9
    assert not policy.kl(parameters, parameters).any()


@both_kinds
def test_parameters_that_stand_still_have_their_constant_and_part_in_nothing_else(kind: str):
    policy = make_policy(kind, BOUNDS, ("delete_ratio", "theta"), FIXED)
    raw = torch.randn(3, 4, generator=seeded(19), requires_grad=True)
    parameters = policy.distribution(raw)
    z = policy.sample(parameters, seeded(20))
    assert z.shape == (3, 2)
    action = policy.action(z)
    assert action[:, 1:4].tolist() == torch.tensor([[2.0, 1.0, 0.1]] * 3).tolist()
    alone = make_policy(kind, (BOUNDS[0], BOUNDS[4], *BOUNDS[2:]), PARAMETERS[:2], FIXED)
    assert torch.equal(action[:, [0, 4]], alone.action(z)[:, :2])
    (policy.log_prob(parameters, z) + policy.entropy(parameters)).sum().backward()
    assert (raw.grad != 0).all()
