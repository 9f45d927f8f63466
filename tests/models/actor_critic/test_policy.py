"""Distributions of actions: worked numbers, integrals, samples, edges; what each of DISTRIBUTIONS
promises.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, get_args

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.distributions import Categorical, kl_divergence

from quatrain.models.actor_critic import policy as policies
from quatrain.models.actor_critic.config import Distribution
from quatrain.models.actor_critic.network import ILLEGAL
from quatrain.models.actor_critic.policy import DISTRIBUTIONS, Params, Policy, make_policy
from quatrain.replay.rollouts import Spec
from tests.torch_numbers import seeded, wave


class Law(NamedTuple):
    """What the tests know of a distribution: add a row for a new one.

    of: parameters -> the law of z. raw: unit -> z. wide, large: uniform numbers -> parameters of
    all widths, and ones whose last bit matters. edge: those of draws of which half are at an edge.
    """

    of: Callable[[Any, Any], Any]
    raw: Callable[[Tensor], Tensor]
    wide: Callable[[Tensor], Params]
    large: Callable[[Tensor], Params]
    edge: tuple[float, float]


LAWS = {
    "beta": Law(
        of=stats.beta,
        raw=lambda unit: unit,
        wide=lambda uniform: tuple(60**uniform),
        large=lambda uniform: tuple(50 + 50 * uniform),
        edge=(1.0, 100_200.0),
    ),
    "squashed_gaussian": Law(
        of=lambda mean, log_std: stats.norm(mean, np.exp(log_std)),
        raw=torch.logit,
        wide=lambda uniform: (6 * uniform[0] - 3, 4 * uniform[1] - 3.5),
        large=lambda uniform: (4 * uniform[0] - 2, 2.5 * uniform[1] - 2),
        edge=(-11.513, 0.5),
    ),
}
of_bounds = pytest.mark.parametrize("kind", DISTRIBUTIONS)
every_kind = pytest.mark.parametrize("kind", [*DISTRIBUTIONS, "categorical"])
THETA = math.pi / 6
BOUNDS = ((0.0, 0.7), (0.5, 15.0), (0.5, 4.0), (0.05, 0.5), (-THETA, THETA))
SAMPLES, CASES = 100_000, 8
INDICES = 5


def between(kind: str, *bounds: tuple[float, float]) -> Policy:
    low, high = zip(*bounds, strict=True)
    return make_policy(kind, Spec(0, 0, 3, low, high, (), 1))


def over_indices(*counts: int) -> Policy:
    return make_policy("beta", Spec(0, 0, 3, (), (), counts or (INDICES,), 1))


def whole(kind: str) -> Policy:
    return over_indices() if kind == "categorical" else between(kind, *BOUNDS)


def of_ratio(kind: str) -> Policy:
    """Of the first number alone."""
    return between(kind, BOUNDS[0])


def params_of(first: float, second: float) -> Params:
    return torch.tensor([float(first)]), torch.tensor([float(second)])


def random_parameters(kind: str, seed: int) -> Params:
    """[case, 1]: of all widths, some near an edge."""
    return LAWS[kind].wide(torch.rand(2, CASES, 1, generator=seeded(seed)))


def sample_many(policy: Policy, parameters: Params, seed: int) -> Tensor:
    """SAMPLES draws of each."""
    many = tuple(part.expand(SAMPLES, *part.shape) for part in parameters)
    return policy.sample(many, seeded(seed))


def assert_is_the_mean(numbers: Tensor, expected: Tensor) -> None:
    """Within 4 standard errors, for each column, and the rounding of float32."""
    numbers = numbers.double()
    error = numbers.std(0) / len(numbers) ** 0.5
    assert ((numbers.mean(0) - expected).abs() <= 4 * error + 2e-6).all()


@of_bounds
def test_draws_and_raw_numbers_are_those_of_the_distribution(kind: str):
    parameters = random_parameters(kind, 5)
    first, second = (part[:, 0].double() for part in parameters)
    law = LAWS[kind].of(first.numpy(), second.numpy())
    mean, variance = map(torch.tensor, law.stats())
    policy = of_ratio(kind)
    torch.testing.assert_close(policy.mean(parameters)[:, 0].double(), mean)
    entropy = torch.tensor(law.entropy()).float()
    recorded = policy.metrics(parameters)["raw_entropy"]
    torch.testing.assert_close(recorded, entropy.mean(), atol=1e-5, rtol=1e-5)
    z = sample_many(policy, parameters, seed=6)[..., 0]
    assert_is_the_mean(z, mean)
    assert_is_the_mean((z.double() - mean).square(), variance)


def test_every_name_of_the_config_has_a_class():
    assert tuple(DISTRIBUTIONS) == get_args(Distribution)


@every_kind
def test_entropy_and_kl_are_means_over_samples(kind: str):
    """Of raw outputs that are near, for samples of a distant one tell nothing."""
    policy = whole(kind)
    count, size = policy.dist_params
    raw = 2 * torch.randn(CASES, count * size, generator=seeded(1))
    old, new = map(policy.distribution, (raw, raw + 0.3 * wave(CASES, count * size, start=2.0)))
    z = sample_many(policy, old, seed=3)
    log_prob, of_new = (
        policy.log_prob(tuple(part.expand(SAMPLES, *part.shape) for part in params), z)
        for params in (old, new)
    )
    assert_is_the_mean(-log_prob, policy.entropy(old))
    assert_is_the_mean(log_prob - of_new, policy.kl(old, new))


@every_kind
def test_draws_repeat_with_their_generator_and_carry_no_gradient(kind: str):
    policy = whole(kind)
    count, size = policy.dist_params
    raw = torch.randn(4, 3, count * size, generator=seeded(19), requires_grad=True)
    params = policy.distribution(raw)
    assert [part.shape for part in params] == [(4, 3, size)] * count
    z = policy.sample(params, seeded(20))
    assert torch.equal(z, policy.sample(params, seeded(20)))
    assert z.shape == (4, 3, policy.actions)
    assert not z.requires_grad
    (policy.log_prob(params, z) + policy.entropy(params)).sum().backward()
    assert (raw.grad != 0).all()


@of_bounds
def test_density_of_an_action_integrates_to_1(kind: str):
    """Middle sums over the range of the action, from which z is worked out."""
    (_, width), cells = BOUNDS[0], 500_000
    policy = of_ratio(kind)
    units = (torch.arange(cells, dtype=torch.float64)[:, None] + 0.5) / cells
    z = LAWS[kind].raw(units)
    for case in range(3):
        parameters = tuple(part[case].double().expand_as(z) for part in random_parameters(kind, 8))
        log_prob = policy.log_prob(parameters, z)
        assert float(log_prob.exp().sum() * width / cells) == pytest.approx(1, abs=2e-5)


@of_bounds
def test_a_first_policy_covers_the_range(kind: str):
    """Its draws spread by about a fifth of it, around the middle."""
    unit = between(kind, *[(0.0, 1.0)] * 5)
    parameters = unit.distribution(torch.zeros(20_000, 10))
    units = unit.action(unit.sample(parameters, seeded(14)))
    assert (units.mean(0) - 0.5).abs().max() < 0.01
    assert (units.std(0) - 0.198).abs().max() < 0.01
    if kind == "beta":
        assert parameters[0][0, 0] == pytest.approx(2.7014, abs=1e-4)


@of_bounds
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


@of_bounds
def test_a_draw_at_the_edge_is_the_one_that_is_stored_and_scored(kind: str):
    """Half of the draws of these would be nearer to an edge than EDGE."""
    parameters = params_of(*LAWS[kind].edge)
    policy = of_ratio(kind)
    many = tuple(part.expand(5000, 1) for part in parameters)
    z = policy.sample(many, seeded(16))
    assert 0.3 < (z == z.min()).float().mean() < 0.75
    action = policy.action(z)[:, 0]
    assert action.min() == pytest.approx(0.7 * policies.EDGE, rel=1e-3)
    recovered = LAWS[kind].raw(action.double() / 0.7)[:, None].float()
    torch.testing.assert_close(recovered, z, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        policy.log_prob(many, recovered), policy.log_prob(many, z), rtol=1e-2, atol=1e-2
    )


@of_bounds
def test_a_log_ratio_is_as_exact_as_the_numbers_it_is_made_of(kind: str):
    """Of large parameters that differ in their last bit."""
    policy = whole(kind)
    parameters = LAWS[kind].large(torch.rand(2, 256, 5, generator=seeded(17)))
    next_to = (torch.nextafter(parameters[0], torch.tensor(1e3)), parameters[1])
    z = policy.sample(parameters, seeded(18))
    assert (policy.log_prob(next_to, z) - policy.log_prob(parameters, z)).abs().max() < 1e-5
    assert policy.kl(parameters, next_to).abs().max() < 1e-9
    assert not policy.kl(parameters, parameters).any()


# Over indices.


def raw_of_indices(start: float = 1.0) -> Tensor:
    return 3 * wave(4, 3, INDICES, start=start)


def test_over_several_indices_numbers_are_sums_over_them():
    policy, alone = over_indices(2, 5), [over_indices(2), over_indices(5)]
    raw, old_raw = torch.randn(2, 6, 7, generator=seeded(3)).unbind()
    raw[0, 1] = old_raw[0, 1] = ILLEGAL
    params, old = policy.distribution(raw), policy.distribution(old_raw)
    singles, olds = (
        [each.distribution(part) for each, part in zip(alone, both.split([2, 5], 1), strict=True)]
        for both in (raw, old_raw)
    )
    z = policy.sample(params, seeded(4))
    assert z[0, 0] == 0
    assert policy.action(z).shape == z.shape == (6, 2)
    pairs = list(zip(alone, singles, olds, z.split(1, 1), strict=True))
    expected = {
        "log_prob": sum(each.log_prob(single, part) for each, single, _, part in pairs),
        "entropy": sum(each.entropy(single) for each, single, _, _ in pairs),
        "kl": sum(each.kl(before, single) for each, single, before, _ in pairs),
    }
    torch.testing.assert_close(policy.log_prob(params, z), expected["log_prob"])
    torch.testing.assert_close(policy.entropy(params), expected["entropy"])
    torch.testing.assert_close(policy.kl(old, params), expected["kl"])
    modes = [each.mean(single) for each, single, _, _ in pairs]
    assert policy.mean(params).tolist() == torch.cat(modes, 1).tolist()


def test_over_indices_numbers_are_those_of_torch():
    policy = over_indices()
    old, new = raw_of_indices(), raw_of_indices(2.0)
    expected, other = Categorical(logits=old), Categorical(logits=new)
    params, other_params = policy.distribution(old), policy.distribution(new)
    index = torch.arange(12).reshape(4, 3) % INDICES
    log_prob = policy.log_prob(params, index[..., None].float())
    torch.testing.assert_close(log_prob, expected.log_prob(index))
    torch.testing.assert_close(policy.entropy(params), expected.entropy())
    torch.testing.assert_close(policy.kl(params, other_params), kl_divergence(expected, other))
    assert policy.kl(params, params).abs().max() == 0
    assert torch.equal(policy.action(policy.mean(params)), old.argmax(-1))
