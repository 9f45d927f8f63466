"""How sure the last layer is, and what a planner sees of several rows of seq_vae at once."""

from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from quatrain.envs.vector_field.fields import region_grid
from quatrain.models.active_dynamics import acquisition
from quatrain.models.active_dynamics.learner import Surrogate
from quatrain.models.active_dynamics.seq_vae import planning, posterior
from quatrain.models.active_dynamics.seq_vae.decoder import Decoder, MlpDecoder
from quatrain.models.active_dynamics.seq_vae.posterior import REFRESH_EVERY, Posterior
from quatrain.models.active_dynamics.seq_vae.trainer import SeqVaeTrainer
from tests.models.active_dynamics.plain_elbo import field
from tests.models.active_dynamics.small_trainers import (
    COUNTS,
    channels,
    configured,
    make_trainer,
    replay,
)

ROWS, POINTS = 4, 5
SINGLE = ("linear", "mlp", "deep", "rbf")
TRUSTED = {"atol": 1e-5, "rtol": 1e-4}


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=Generator().manual_seed(seed))


def make_trainers(**form: Any) -> list[SeqVaeTrainer]:
    """Rows with beliefs of their own."""
    config = configured(**form)
    trainer = [make_trainer(config, seed) for seed in range(ROWS)]
    for row, each_trainer in enumerate(trainer):
        for step in range(3):
            entry = drawn(config.env.observation.channels + 2, seed=10 * row + step)
            each_trainer.observe(entry[:-2], entry[-2:])
    return trainer


def surrogate_of(trainer: list[SeqVaeTrainer]) -> Surrogate:
    return planning.make_surrogate(trainer[0].config, trainer, region_grid(1.5, 2))


def features(trainer: SeqVaeTrainer, x: Tensor) -> Tensor:
    """Computes the features [point, feature] by plain formulas."""
    network = trainer.network
    if network.is_rbf:
        centres = torch.cartesian_prod(*[network.dynamics.axis] * 2)
        return torch.exp(-(x[:, None] - centres).square().sum(2) / (2 * network.dynamics.length**2))
    layers = network.dynamics.layers
    for weight, bias in list(zip(layers.weights, layers.biases, strict=True))[:-1]:
        x = torch.tanh(x @ weight[0].T + bias[0].T)
    return torch.cat([x, torch.ones(len(x), 1)], 1)


@pytest.mark.parametrize("dynamics", [*SINGLE, "ensemble"])
@torch.no_grad()
def test_each_row_sees_its_own_field(dynamics: str):
    trainer = make_trainers(dynamics=dynamics)
    surrogate, x = surrogate_of(trainer), drawn(ROWS, POINTS, 2)
    value = surrogate.field(x)
    for row, each_trainer in enumerate(trainer):
        for point in range(POINTS):
            each = [
                field(each_trainer.network, member, x[row, point])
                for member in range(each_trainer.network.members)
            ]
            torch.testing.assert_close(
                value.value[row, point], torch.stack(each).mean(0), **TRUSTED
            )
            if surrogate.members is not None:
                torch.testing.assert_close(
                    surrogate.members(x)[row, point], torch.stack(each), **TRUSTED
                )
        if dynamics != "ensemble":
            torch.testing.assert_close(
                value.features[row], features(each_trainer, x[row]), **TRUSTED
            )
    assert (surrogate.members is not None) == (dynamics == "ensemble")


@pytest.mark.parametrize("dynamics", [*SINGLE, "ensemble"])
def test_jacobians_are_those_of_autograd(dynamics: str):
    surrogate, x = surrogate_of(make_trainers(dynamics=dynamics)), drawn(ROWS, POINTS, 2)
    expected = torch.autograd.functional.jacobian(
        lambda at: surrogate.field(at).value.sum((0, 1)), x
    )
    torch.testing.assert_close(surrogate.jacobian(x), expected.permute(1, 2, 0, 3), **TRUSTED)


@torch.no_grad()
def test_fields_side_by_side_keep_their_order():
    trainer = make_trainers(dynamics="ensemble")
    fields = [each_trainer.network.dynamics.field() for each_trainer in trainer]
    x = drawn(ROWS * 3, 2, POINTS)
    parts = [each_trainer(x[3 * row : 3 * row + 3]) for row, each_trainer in enumerate(fields)]
    torch.testing.assert_close(fields[0].concatenate(fields)(x), torch.cat(parts))


@pytest.mark.parametrize("dynamics", ["mlp", "rbf"])
@torch.no_grad()
def test_what_is_known_of_weights_and_region_is_each_row_s(dynamics: str):
    trainer, grid = make_trainers(dynamics=dynamics), region_grid(1.5, 2)
    surrogate = surrogate_of(trainer)
    assert surrogate.full_covariance is None
    for row, each_trainer in enumerate(trainer):
        assert torch.equal(surrogate.state[row], each_trainer.belief.mean)
        assert torch.equal(surrogate.covariance[row], each_trainer.posterior.covariance)
        assert torch.equal(surrogate.step_variance[row], each_trainer.posterior.step_variance)
        actual = features(each_trainer, grid)
        torch.testing.assert_close(surrogate.region[row], actual.T @ actual / len(grid), **TRUSTED)


def test_an_ensemble_has_no_posterior_and_shows_its_members_instead():
    trainer = make_trainers(dynamics="ensemble")
    surrogate = surrogate_of(trainer)
    assert (surrogate.covariance, surrogate.full_covariance, surrogate.region) == (None, None, None)
    value = surrogate.field(drawn(ROWS, POINTS, 2))
    assert value.features.shape == (ROWS, POINTS, 0)
    posteriors = [each_trainer.posterior for each_trainer in trainer]
    assert all(part.covariance.numel() == 0 for part in posteriors)
    assert all(float(part.step_variance) > 0 for part in posteriors)


def test_the_joint_covariance_is_made_where_it_is_asked_for():
    trainer = make_trainers(dynamics="mlp", weights={"fisher_d": 1.0})
    surrogate = surrogate_of(trainer)
    for row in range(ROWS):
        expected = torch.block_diag(*[trainer[row].posterior.covariance] * 2)
        assert torch.equal(surrogate.full_covariance[row], expected)


DECODERS: list[dict[str, Any]] = [
    {"decoder": "known"},
    {"decoder": "linear"},
    {"decoder": "mlp"},
    {"decoder": "loglinear", "observation": {"kind": "loglinear"}},
    {"decoder": "loglinear", "observation": COUNTS},
]


def expected_mean(decoder: Decoder | MlpDecoder, x: Tensor) -> Tensor:
    if isinstance(decoder, MlpDecoder):
        weights, biases = decoder.layers.weights, decoder.layers.biases
        return (
            weights[1][0] @ torch.tanh(weights[0][0] @ x + biases[0][0, :, 0]) + biases[1][0, :, 0]
        )
    drive = decoder.weight @ x + decoder.bias
    return drive.exp() if decoder.kind == "loglinear" else drive


@pytest.mark.parametrize("form", DECODERS, ids=["known", "linear", "mlp", "loglinear", "counts"])
def test_precision_is_what_an_observation_tells_where_the_state_is(form: dict[str, Any]):
    trainer = make_trainers(dynamics="mlp", **form)
    surrogate = surrogate_of(trainer)
    for row, each_trainer in enumerate(trainer):
        decoder, x = each_trainer.network.decoder, each_trainer.belief.mean
        slope = torch.autograd.functional.jacobian(
            lambda at, decoder=decoder: expected_mean(decoder, at), x
        )
        variances = decoder.channels()
        noise = variances.mean(x) if form.get("observation") is COUNTS else variances.variance(x)
        torch.testing.assert_close(surrogate.precision[row], (slope.T / noise) @ slope, **TRUSTED)
        torch.testing.assert_close(variances.mean(x), expected_mean(decoder, x), **TRUSTED)
        y = variances.mean(x) + 1
        torch.testing.assert_close(
            variances.information_vector(y, x), slope.T @ (1 / noise).expand(len(slope)), **TRUSTED
        )


@pytest.mark.parametrize("dynamics", ["rbf", "mlp", "ensemble"])
def test_a_planner_can_ask_it_anything_it_has(dynamics: str):
    asked = (
        {"disagreement": 1.0} if dynamics == "ensemble" else {"information": 1.0, "fisher_a": 1.0}
    )
    trainer = make_trainers(dynamics=dynamics, weights={"variance": 0.0, **asked})
    train = trainer[0].config.train
    score = acquisition.scorer(surrogate_of(trainer), train.acquisition, train.planner.hold)
    result = score(torch.rand(ROWS, 6, 3, 2, generator=Generator().manual_seed(0)))
    assert result.shape == (ROWS, 6)
    assert result.isfinite().all()
    assert (result.std(1) > 0).all()


@pytest.mark.parametrize("dynamics", SINGLE)
@torch.no_grad()
def test_before_anything_is_seen_weights_have_their_prior(dynamics: str):
    trainer = make_trainer(config := configured(dynamics=dynamics))
    posterior_now = trainer.posterior
    widths = {"linear": 2, "mlp": 6, "deep": 4}
    grid = features(trainer, region_grid(1.5, 2))
    variance = 1 / widths[dynamics] if dynamics in widths else 1 / grid.square().sum(1).mean()
    expected = torch.eye(grid.shape[1]) * variance
    torch.testing.assert_close(posterior_now.covariance, expected)
    noise = torch.nn.functional.softplus(torch.tensor(-3.0))
    torch.testing.assert_close(
        posterior_now.step_variance, noise * config.env.dt + 2 * noise, atol=1e-5, rtol=0
    )


def test_worked_posterior_of_one_weight():
    """Features of 1, Σ = 1, q = .5: 1/3, and then .2."""
    trainer = make_trainer(configured(dynamics="linear"))
    posterior_now = Posterior(
        torch.diag(torch.tensor([1.0, 1.0, 0.0])), torch.tensor(0.5 * trainer.network.dt**2)
    )
    for expected in (1 / 3, 0.2):
        posterior_now = posterior.add_state(
            trainer.network, posterior_now, torch.tensor([1.0, 0.0])
        )
        torch.testing.assert_close(
            posterior_now.covariance, torch.diag(torch.tensor([expected, 1.0, 0.0]))
        )


@pytest.mark.parametrize("dynamics", SINGLE)
@torch.no_grad()
def test_the_field_is_uncertain_everywhere_also_where_the_state_is_0(dynamics: str):
    """Checks that the bias is as uncertain as other weights."""
    trainer = make_trainer(configured(dynamics=dynamics))
    field, x = trainer.network.dynamics.field(), torch.zeros(1, 2, 1)
    variances = []
    for _ in range(2):
        at = field.features(x)[0, :, 0]
        variances.append(float(at @ trainer.posterior.covariance @ at))
        trainer.posterior = posterior.add_state(trainer.network, trainer.posterior, torch.zeros(2))
    assert variances[0] >= (0.0 if trainer.network.is_rbf else trainer.network.prior_variance)
    assert 0 < variances[1] < variances[0]


@pytest.mark.parametrize("dynamics", SINGLE)
@torch.no_grad()
def test_the_field_is_linear_in_its_features(dynamics: str):
    field = make_trainer(configured(dynamics=dynamics)).network.dynamics.field()
    each_trainer, other = (field.features(drawn(1, 2, POINTS, seed=seed)) for seed in (1, 2))
    mixed = 2 * field.from_features(each_trainer) - 0.5 * field.from_features(other)
    torch.testing.assert_close(
        field.from_features(2 * each_trainer - 0.5 * other), mixed, **TRUSTED
    )


def test_a_posterior_that_cannot_be_found_is_not_finite():
    trainer = make_trainer(config := configured(dynamics="mlp"))
    trainer.network.prior_variance = -1.0
    assert posterior.recompute(trainer.network, replay(config), 0).covariance.isnan().all()


@pytest.mark.parametrize("dynamics", SINGLE)
@torch.no_grad()
def test_the_posterior_is_that_of_regression_on_all_beliefs(dynamics: str):
    """Computes it from the replay, and transition by transition from the prior."""
    trainer = make_trainer(config := configured(dynamics=dynamics))
    ring, prior = replay(config, count=30, ends=(11,)), trainer.posterior
    for number in range(30):
        trainer.observe(ring.observations[0, number], ring.actions[0, number])
        trainer.restart(ring.truncated[0, number])
    network, cell = trainer.network, trainer.network.encoder.cell
    hidden, means, variances = cell.weight_hh.new_zeros(1, cell.hidden_size), [], []
    for number in range(30):
        hidden = cell(
            torch.cat([ring.observations[0, number], ring.actions[0, number]])[None], hidden
        )
        mean, variance = network.encoder.belief(hidden)
        means.append(mean[0])
        variances.append(variance[0])
        hidden = hidden * (number != 11)
    result = features(trainer, torch.stack(means)).double()

    def regression(step_variance: Tensor) -> Tensor:
        q = step_variance.double() / network.dt**2
        return torch.linalg.inv(
            torch.eye(result.shape[1]) / network.prior_variance + result.T @ result / q
        ).float()

    torch.testing.assert_close(
        trainer.posterior.covariance, regression(prior.step_variance), **TRUSTED
    )
    refreshed = posterior.recompute(network, ring, 0)
    expected = (network.step_variance + 2 * torch.stack(variances)).mean()
    torch.testing.assert_close(refreshed.step_variance, expected)
    torch.testing.assert_close(refreshed.covariance, regression(expected), **TRUSTED)


def test_the_posterior_is_refreshed_every_so_many_transitions():
    trainer = make_trainer(config := configured(dynamics="rbf", seq_vae={"min_windows": 40}))
    for count in (REFRESH_EVERY - 1, REFRESH_EVERY):
        ring, before = replay(config, count=count), trainer.posterior
        trainer.learn(ring, 0)
        fresh = posterior.recompute(trainer.network, ring, 0)
        for actual, old, new in zip(trainer.posterior, before, fresh, strict=True):
            assert torch.equal(actual, old if count < REFRESH_EVERY else new)


def test_rows_keep_to_themselves_in_any_order():
    trainer, x = make_trainers(dynamics="mlp"), drawn(ROWS, POINTS, 2)
    order = [2, 0, 3, 1]
    each_trainer, other = surrogate_of(trainer), surrogate_of([trainer[row] for row in order])
    torch.testing.assert_close(other.field(x[order]).value, each_trainer.field(x).value[order])
    torch.testing.assert_close(other.covariance, each_trainer.covariance[order])


def test_the_control_is_that_of_the_environment():
    config = configured(dynamics="mlp")
    env = config.env.model_copy(update={"control": ((1.0, 0.0, 0.5), (0.0, 2.0, 0.0))})
    config = config.model_copy(update={"env": env})
    trainer = make_trainer(config)
    assert trainer.network.encoder.cell.input_size == config.env.observation.channels + 3
    assert torch.equal(surrogate_of([trainer]).control, torch.tensor(env.control))
    assert channels(config).weight.shape == (config.env.observation.channels, 2)
