"""The terms of both losses: worked numbers, and the distributions of torch."""

import pytest
import torch
from torch import Generator, Tensor
from torch.distributions import MultivariateNormal, Normal, Poisson, kl_divergence

from quatrain.models.active_dynamics import losses, state
from quatrain.models.active_dynamics.config import SeqVaeTraining
from tests.conftest import small
from tests.models.active_dynamics.small_trials import FAMILIES, configured, run

MEMBER, OBS, D, TIME, BATCH = 2, 5, 3, 4, 6


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=Generator().manual_seed(seed))


def training(**changes: object) -> SeqVaeTraining:
    return small("active_dynamics", train={"seq_vae": changes}).train.seq_vae


@pytest.mark.parametrize(("variance", "expected"), [(0.05, 0.111572), (0.5, 0.812864)])
def test_worked_divergence_of_a_step_takes_its_variance_times_dt(variance: float, expected: float):
    result = losses.kl(*(torch.tensor([number]) for number in (0.2, 0.04, 0.1, variance)))
    assert float(result) == pytest.approx(expected, abs=1e-6)


def test_divergences_are_those_of_normal_distributions():
    mean_q, mean_p = drawn(BATCH, D), drawn(D, seed=1)
    variance_q, variance_p = drawn(BATCH, D, seed=2).exp(), drawn(D, seed=3).exp()
    expected = kl_divergence(
        Normal(mean_q, variance_q.sqrt()), Normal(mean_p, variance_p.sqrt())
    ).sum(1)
    torch.testing.assert_close(losses.kl(mean_q, variance_q, mean_p, variance_p), expected)


def test_worked_weights_of_horizons():
    result = losses.horizon_weights(3, 0.8)
    torch.testing.assert_close(
        result, torch.tensor([0.409836, 0.327869, 0.262295]), atol=1e-6, rtol=0
    )


def test_weights_of_horizons_are_normal_in_the_first_call_too_and_follow_the_decay():
    first, second = (losses.horizon_weights(4, 0.7) for _ in range(2))
    assert torch.equal(first, second)
    assert float(first.sum()) == pytest.approx(1)
    assert not torch.equal(first, losses.horizon_weights(4, 0.6))


def test_horizons_beyond_the_window_do_not_count():
    weights = torch.tensor([0.5, 0.3, 0.2])
    result = losses.horizon_mask_weights(weights, 4)
    assert result.tolist() == torch.tensor([[0.5, 0.5, 0.5], [0.3, 0.3, 0], [0.2, 0, 0]]).tolist()


@pytest.mark.parametrize(
    ("updates", "expected"), [(99, 0), (100, 0), (300, 0.5), (500, 1), (9000, 1)]
)
def test_beta_rises_along_a_line_after_the_warm_up(updates: int, expected: float):
    config = training(anneal_kind="linear", warmup=100, anneal=400)
    assert losses.beta_at(config, updates) == expected


@pytest.mark.parametrize(("updates", "expected"), [(0, 0), (99, 0), (100, 0.7), (101, 0.7)])
def test_beta_is_all_there_after_the_warm_up_without_annealing(updates: int, expected: float):
    config = training(anneal_kind="none", warmup=100, beta=0.7)
    assert losses.beta_at(config, updates) == expected


def test_terms_and_weights_have_the_same_names():
    assert losses.weights(20, 300, 0.5) == {
        "ell": -0.05,
        "kl_first": 0.025,
        "kl_steps": 0.025,
        "weight_prior": 1 / 300,
    }
    assert tuple(losses.weights(1, 1, 1.0)) == losses.TERMS["seq_vae"]
    assert all(
        callable(getattr(losses, term)) for term in (*losses.TERMS["bayes_filter"], "weight_prior")
    )


def test_gaussian_likelihood_is_that_of_normal_distributions():
    error, variance = drawn(MEMBER, OBS, TIME, BATCH), drawn(OBS, seed=1).exp()
    expected = Normal(torch.zeros(OBS), variance.sqrt()).log_prob(error.movedim(1, -1)).sum(-1)
    torch.testing.assert_close(losses.gaussian(error, variance), expected)


def test_likelihood_of_counts_is_that_of_poisson_distributions():
    log_rate = drawn(MEMBER, OBS, TIME, BATCH)
    y = torch.poisson(
        torch.full((OBS, TIME, BATCH), 2.0, dtype=torch.float64), Generator().manual_seed(1)
    )
    expected = Poisson(log_rate.exp()).log_prob(y).sum(1)
    torch.testing.assert_close(losses.poisson(y, log_rate), expected)


def test_worked_prior_of_weights():
    assert float(losses.weight_prior(torch.tensor([[1.0, 2.0], [0.0, 3.0]]), 0.5)) == 14


def test_innovations_are_judged_by_their_own_distribution():
    """As with the covariance of all channels, which is never made."""
    slope, noise = drawn(BATCH, OBS, D), drawn(OBS, seed=1).exp()
    root, residual = drawn(BATCH, D, D, seed=2), drawn(BATCH, OBS, seed=3)
    covariance = root @ root.mT
    weighed = (slope / noise[:, None]).mT
    information_vector = (weighed @ residual[..., None])[..., 0]
    result = losses.innovation_nll(residual, noise, information_vector, weighed @ slope, covariance)
    whole = slope @ covariance @ slope.mT + torch.diag(noise)
    expected = -MultivariateNormal(torch.zeros(BATCH, OBS, dtype=torch.float64), whole).log_prob(
        residual
    )
    torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_records_its_terms_and_none_of_the_other(family: str):
    config = configured(family, seeds=1)
    metrics = run(config).yields[-1].metrics
    assert losses.terms(config) == losses.TERMS[family]
    assert metrics.keys() >= set(losses.terms(config))
    others = {name for other in FAMILIES if other != family for name in losses.TERMS[other]}
    # The innovation is recorded by both families: seq_vae does not optimise it, but is compared by
    # it.
    assert metrics.keys() & others <= {"innovation_nll"}
    assert set(losses.TERMS) == set(FAMILIES) == set(state.FAMILIES)
