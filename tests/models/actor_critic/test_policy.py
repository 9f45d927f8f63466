"""Distributions of actions: worked numbers, Monte Carlo, what is stored is what is scored and
executed.
"""

import math

import pytest
import torch
from scipy import stats
from torch import Tensor

from quatrain.envs.colony.rules import PARAMETERS, Bounds
from quatrain.models.actor_critic.ppo import policy as policies
from quatrain.models.actor_critic.ppo.policy import Params, Policy, make_policy

KINDS = ("beta", "squashed_gaussian")
BOUNDS = (
    Bounds(0, 0.7),
    Bounds(0.5, 15),
    Bounds(0.5, 4),
    Bounds(0.05, 0.5),
    Bounds(-math.pi / 6, math.pi / 6),
)
FIXED = dict(zip(PARAMETERS, (0.5, 2.0, 1.0, 0.1, 0.0), strict=True))
SAMPLES, CASES = 400_000, 20


def whole(kind: str) -> Policy:
    return make_policy(kind, BOUNDS, PARAMETERS, {})


def of_range(kind: str, width: float) -> Policy:
    """Of a delete_ratio of 0 to width alone."""
    return make_policy(kind, (Bounds(0, width), *BOUNDS[1:]), PARAMETERS[:1], FIXED)


def params_of(first: float, second: float) -> Params:
    return torch.tensor([float(first)]), torch.tensor([float(second)])


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_parameters(kind: str, seed: int, count: int = CASES) -> Params:
    """[count, 1]: concentrations of 1 to 60; Gaussians of all widths, some near an edge."""
    uniform = torch.rand(2, count, 1, generator=generator(seed))
    if kind == "beta":
        return tuple(60**uniform)
    return 6 * uniform[0] - 3, 4 * uniform[1] - 3.5


def sample_many(policy: Policy, parameters: Params, seed: int) -> Tensor:
    """SAMPLES draws of each."""
    return policy.sample(
        tuple(part.expand(SAMPLES, *part.shape) for part in parameters), generator(seed)
    )


def assert_is_the_mean(numbers: Tensor, expected: Tensor) -> None:
    """Within 4 standard errors, for each column, and the rounding of float32."""
    numbers = numbers.double()
    error = numbers.std(0) / len(numbers) ** 0.5
    assert ((numbers.mean(0) - expected).abs() <= 4 * error + 2e-6).all()


def test_worked_beta():
    policy, parameters = of_range("beta", 1.0), params_of(2, 3)
    assert float(policy.entropy(parameters)) == pytest.approx(-0.2349066, abs=1e-6)
    assert float(policy.log_prob(parameters, torch.tensor([0.25]))) == pytest.approx(
        0.5232481, abs=1e-6
    )
    assert float(policy.kl(parameters, params_of(4, 1.5))) == pytest.approx(1.4897366, abs=1e-6)
    assert float(policy.mean(parameters)) == pytest.approx(0.4)


def test_worked_entropy_of_an_action():
    policy = of_range("beta", 0.7)
    assert float(policy.entropy(params_of(2, 3))) == pytest.approx(-0.5915816, abs=1e-6)
    assert float(policy.raw_entropy(params_of(2, 3))) == pytest.approx(-0.2349066, abs=1e-6)


def test_worked_squashed_gaussian():
    policy, parameters, z = (
        of_range("squashed_gaussian", 0.7),
        params_of(0, math.log(0.5)),
        torch.tensor([0.3]),
    )
    assert float(policy.action(z)[0]) == pytest.approx(0.4021098, abs=1e-6)
    assert float(policy.log_prob(parameters, z)) == pytest.approx(1.3595941, abs=1e-6)
    five = (torch.zeros(5), torch.full((5,), -0.5))
    assert float(whole("squashed_gaussian").raw_entropy(five)) == pytest.approx(4.5946927, abs=1e-6)
    assert float(policy.kl(parameters, params_of(0.1, math.log(0.6)))) == pytest.approx(
        0.0434327, abs=1e-6
    )


def test_the_entropy_of_a_squashed_action_falls_while_that_of_the_gaussian_rises():
    policy, widths = of_range("squashed_gaussian", 0.5), (-0.5, 0.5, 1.0)
    result = [float(policy.entropy(params_of(0, log_s))) for log_s in widths]
    assert result == pytest.approx([-1.2487, -0.7051, -0.8706], abs=6e-5)
    raw = [float(policy.raw_entropy(params_of(0, log_s))) for log_s in widths]
    assert raw == sorted(raw)


@pytest.mark.parametrize("kind", KINDS)
def test_entropy_and_kl_are_means_over_samples(kind):
    policy = of_range(kind, 0.7)
    old, new = random_parameters(kind, 1), random_parameters(kind, 2)
    if (
        kind == "squashed_gaussian"
    ):  # narrow new ones make the spread of samples too large to tell anything
        new = (old[0] + 0.3 * new[0], old[1] + 0.2 * new[1].sin())
    z = sample_many(policy, old, seed=3)
    log_prob = policy.log_prob(old, z)
    assert_is_the_mean(-log_prob, policy.entropy(old))
    assert_is_the_mean(log_prob - policy.log_prob(new, z), policy.kl(old, new))


def test_worked_numbers_are_means_over_samples():
    policy, parameters = of_range("beta", 1.0), params_of(2, 3)
    z = sample_many(policy, parameters, seed=4)
    log_prob = policy.log_prob(parameters, z)
    assert_is_the_mean(-log_prob, torch.tensor(-0.2349066))
    assert_is_the_mean(log_prob - policy.log_prob(params_of(4, 1.5), z), torch.tensor(1.4897366))


def test_beta_draws_have_its_mean_and_variance():
    parameters = random_parameters("beta", 5)
    a, b = (part[:, 0].double() for part in parameters)
    z = sample_many(of_range("beta", 0.7), parameters, seed=6)
    mean = a / (a + b)
    assert_is_the_mean(z[..., 0], mean)
    assert_is_the_mean(
        (z[..., 0].double() - mean).square(), a * b / ((a + b).square() * (a + b + 1))
    )


def test_gaussian_draws_have_its_mean_and_variance():
    parameters = random_parameters("squashed_gaussian", 5)
    mean, log_s = (part[:, 0].double() for part in parameters)
    z = sample_many(of_range("squashed_gaussian", 0.7), parameters, seed=6)
    assert_is_the_mean(z[..., 0], mean)
    assert_is_the_mean((z[..., 0].double() - mean).square(), (2 * log_s).exp())


@pytest.mark.parametrize("shape", [1.0, 2.5, 40.0])
def test_gamma_draws_are_gamma_distributed_and_only_the_generator_decides(shape):
    concentration = torch.full((20_000,), shape)
    result = policies.standard_gamma(concentration, generator(7))
    assert stats.kstest(result.numpy(), stats.gamma(shape).cdf).pvalue > 0.01
    torch.manual_seed(0)
    assert torch.equal(result, policies.standard_gamma(concentration, generator(7)))
    assert not torch.equal(result, policies.standard_gamma(concentration, generator(8)))


@pytest.mark.parametrize("kind", KINDS)
def test_density_of_an_action_integrates_to_1_and_gives_its_entropy(kind):
    """Middle sums over the range of the action, from which z is worked out."""
    width, cells = 0.7, 2_000_000
    policy = of_range(kind, width)
    units = (torch.arange(cells, dtype=torch.float64)[:, None] + 0.5) / cells
    z = units if kind == "beta" else units.logit()
    for case in range(4):
        parameters = tuple(part[case].double().expand_as(z) for part in random_parameters(kind, 8))
        log_prob = policy.log_prob(parameters, z)
        density, cell = log_prob.exp(), width / cells
        assert float(density.sum() * cell) == pytest.approx(1, abs=2e-5)
        entropy = policy.entropy(tuple(part[:1].float() for part in parameters))
        assert float(-(density * log_prob).sum() * cell) == pytest.approx(float(entropy), abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_log_prob_entropy_and_kl_sum_over_the_active_parameters(kind):
    policy, alone = whole(kind), [make_policy(kind, BOUNDS, (name,), FIXED) for name in PARAMETERS]
    old, new = (
        policy.distribution(torch.randn(3, 10, generator=generator(seed))) for seed in (1, 2)
    )
    z = policy.sample(old, generator(3))
    parts = [
        (tuple(x[:, i : i + 1] for x in old), tuple(x[:, i : i + 1] for x in new)) for i in range(5)
    ]
    log_probs = [
        each.log_prob(part, z[:, i : i + 1])
        for i, (each, (part, _)) in enumerate(zip(alone, parts, strict=True))
    ]
    torch.testing.assert_close(policy.log_prob(old, z), torch.stack(log_probs).sum(0))
    entropies = [each.entropy(part) for each, (part, _) in zip(alone, parts, strict=True)]
    torch.testing.assert_close(policy.entropy(old), torch.stack(entropies).sum(0))
    moved = [each.kl(*pair) for each, pair in zip(alone, parts, strict=True)]
    torch.testing.assert_close(policy.kl(old, new), torch.stack(moved).sum(0))


def test_beta_agrees_with_torch_distributions():
    old, new = random_parameters("beta", 9), random_parameters("beta", 10)
    theirs, other = (
        torch.distributions.Beta(*(part[:, 0].double() for part in each)) for each in (old, new)
    )
    policy, z = of_range("beta", 1.0), torch.rand(CASES, 1, generator=generator(11))
    torch.testing.assert_close(
        policy.log_prob(old, z).double(), theirs.log_prob(z[:, 0].double()), rtol=1e-6, atol=1e-6
    )
    torch.testing.assert_close(policy.entropy(old).double(), theirs.entropy(), rtol=1e-4, atol=1e-4)
    kl = torch.distributions.kl_divergence(theirs, other)
    torch.testing.assert_close(policy.kl(old, new).double(), kl, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_log_prob_and_entropy_are_their_slopes(kind):
    policy = whole(kind)
    raw = torch.randn(3, 10, generator=generator(12), dtype=torch.float64, requires_grad=True)
    z = policy.sample(policy.distribution(raw.detach().float()), generator(13)).double()
    assert torch.autograd.gradcheck(lambda raw: policy.log_prob(policy.distribution(raw), z), raw)
    if kind == "beta":
        assert torch.autograd.gradcheck(lambda raw: policy.entropy(policy.distribution(raw)), raw)
        return
    points, weights = (
        torch.tensor(x)
        for x in policies.np.polynomial.hermite_e.hermegauss(policies.QUADRATURE_POINTS)
    )
    entropy = policies.squashed_entropy
    assert torch.autograd.gradcheck(
        lambda raw: entropy(policy.distribution(raw), points, weights), raw
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_first_policy_covers_the_range(kind):
    """Its draws spread by about a fifth of it, around the middle."""
    policy = whole(kind)
    unit = make_policy(kind, (Bounds(0, 1),) * 5, PARAMETERS, {})
    parameters = policy.distribution(torch.zeros(20_000, 10))
    units = unit.action(policy.sample(parameters, generator(14)))
    assert (units.mean(0) - 0.5).abs().max() < 0.01
    assert (units.std(0) - 0.198).abs().max() < 0.01
    if kind == "beta":
        assert parameters[0][0, 0] == pytest.approx(2.7014, abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("raw", [-1e4, -30.0, 30.0, 1e4])
def test_extreme_raw_numbers_give_finite_scores_and_actions_inside_their_bounds(kind, raw):
    policy = whole(kind)
    numbers = torch.cat([torch.full((7, 5), raw), torch.zeros(7, 5)], 1)
    for each in (numbers, numbers.flip(1), torch.full((7, 10), raw)):
        parameters = policy.distribution(each)
        start = policy.distribution(torch.zeros(7, 10))
        low, high = torch.tensor(BOUNDS).T
        for z in (policy.sample(parameters, generator(15)), policy.mean(parameters)):
            action = policy.action(z)
            assert (action >= low).all()
            assert (action < high).all()
            assert policy.log_prob(parameters, z).isfinite().all()
        assert policy.entropy(parameters).isfinite().all()
        assert policy.kl(parameters, start).isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_draw_at_the_edge_is_the_one_that_is_stored_and_scored(kind):
    """Half of the draws of these would be nearer to an edge than EDGE."""
    parameters = params_of(1.0, 501.0) if kind == "beta" else params_of(-11.513, 0.5)
    policy = of_range(kind, 0.7)
    many = tuple(part.expand(5000, 1) for part in parameters)
    many = (many[0], many[1] * (200 if kind == "beta" else 1))
    z = policy.sample(many, generator(16))
    assert 0.3 < (z == z.min()).float().mean() < 0.75
    action = policy.action(z)[:, 0]
    assert action.min() == pytest.approx(0.7 * policies.EDGE, rel=1e-3)
    unit = action.double() / 0.7
    recovered = (unit if kind == "beta" else unit.logit())[:, None].float()
    torch.testing.assert_close(recovered, z, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        policy.log_prob(many, recovered), policy.log_prob(many, z), rtol=1e-2, atol=1e-2
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_log_ratio_is_as_exact_as_the_numbers_it_is_made_of(kind):
    """The same parameters but for their last bit, and large: a ratio of 1 within 1e-5, a divergence
    of none.
    """
    policy = whole(kind)
    if kind == "beta":
        parameters = tuple(50 + 50 * torch.rand(2, 256, 5, generator=generator(17)))
    else:
        parameters = tuple(torch.randn(2, 256, 5, generator=generator(17)).clamp(-2, 0.5))
    near = (torch.nextafter(parameters[0], torch.tensor(1e3)), parameters[1])
    z = policy.sample(parameters, generator(18))
    assert (policy.log_prob(near, z) - policy.log_prob(parameters, z)).abs().max() < 1e-5
    assert policy.kl(parameters, near).abs().max() < 1e-9
    assert not policy.kl(parameters, parameters).any()


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_that_stand_still_have_their_constant_and_part_in_nothing_else(kind):
    active = ("delete_ratio", "theta")
    policy, bounds = make_policy(kind, BOUNDS, active, FIXED), (BOUNDS[0], BOUNDS[4])
    raw = torch.randn(3, 4, generator=generator(19), requires_grad=True)
    parameters = policy.distribution(raw)
    z = policy.sample(parameters, generator(20))
    assert z.shape == (3, 2)
    action = policy.action(z)
    assert action[:, 1:4].tolist() == torch.tensor([[2.0, 1.0, 0.1]] * 3).tolist()
    alone = make_policy(kind, (*bounds, *BOUNDS[2:]), PARAMETERS[:2], FIXED)
    assert torch.equal(action[:, [0, 4]], alone.action(z)[:, :2])
    (policy.log_prob(parameters, z) + policy.entropy(parameters)).sum().backward()
    assert (raw.grad != 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_draws_carry_no_gradient_and_only_the_generator_decides(kind):
    policy = whole(kind)
    parameters = policy.distribution(torch.zeros(3, 7, 10, requires_grad=True))
    z = policy.sample(parameters, generator(21))
    assert z.shape == (3, 7, 5)
    assert not z.requires_grad
    assert torch.equal(z, policy.sample(parameters, generator(21)))
    assert not torch.equal(z, policy.sample(parameters, generator(22)))


def test_what_is_played_when_nothing_is_drawn():
    assert whole("beta").action(of_range("beta", 0.7).mean(params_of(3, 1)).expand(5))[
        0
    ] == pytest.approx(0.525)
    squashed = of_range("squashed_gaussian", 0.7)
    assert squashed.action(squashed.mean(params_of(math.log(3), -1)))[0] == pytest.approx(0.525)
