"""The posterior of the last layer, and what a planner uses of several learners of seq_vae."""

from typing import Any

import pytest
import torch
from torch import Tensor

from quatrain.envs.vector_field.fields import region_grid
from quatrain.models.active_dynamics.family import Surrogate
from quatrain.models.active_dynamics.seq_vae import trainer as trainers
from quatrain.models.active_dynamics.seq_vae.encoder import Belief
from quatrain.models.active_dynamics.seq_vae.learner import SeqVaeLearner
from quatrain.models.active_dynamics.seq_vae.trainer import REFRESH_EVERY, SeqVaeTrainer
from quatrain.replay import windows
from tests.models.active_dynamics import filters
from tests.models.active_dynamics.plain_elbo import field, through
from tests.models.active_dynamics.small_trainers import COUNTS, configured, make_trainer, replay

LEARNERS, POINTS = 4, 5
SINGLE = ("mlp", "deep", "rbf")
NEAR = {"atol": 1e-5, "rtol": 1e-4}


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return filters.drawn(*shape, seed=seed).float()


def make_trainers(**form: Any) -> list[SeqVaeTrainer]:
    """Returns trainers with different networks and beliefs."""
    config = configured(**form)
    trainers = [make_trainer(config, seed) for seed in range(LEARNERS)]
    for seed, trainer in enumerate(trainers):
        channels, actions = config.env.observation.channels, trainer.network.control.shape[1]
        trainer.observe(drawn(channels, seed=seed), drawn(actions, seed=seed))
    return trainers


def surrogate_of(trainers: list[SeqVaeTrainer]) -> Surrogate:
    return SeqVaeLearner(trainers[0].config, trainers, {}, region_grid(1.5, 2)).surrogate(
        slice(None)
    )


def features(trainer: SeqVaeTrainer, x: Tensor) -> Tensor:
    """Computes the features [point, feature] by plain formulas."""
    dynamics = trainer.network.dynamics
    if dynamics.rbf is not None:
        centres = torch.cartesian_prod(*[dynamics.rbf.axis] * 2)
        squares = (x[:, None] - centres).square().sum(2)
        return torch.exp(-squares / (2 * dynamics.rbf.length**2))
    *hidden, _ = zip(dynamics.layers.weights, dynamics.layers.biases, strict=True)
    for weight, bias in hidden:
        x = torch.tanh(x @ weight[0].T + bias[0].T)
    return torch.cat([x, torch.ones(len(x), 1)], 1)


@pytest.mark.parametrize("dynamics", [*SINGLE, "ensemble"])
@torch.no_grad()
def test_each_learner_has_its_own_field_posterior_and_region(dynamics: str):
    """An ensemble has members, but no posterior."""
    trainers, x = make_trainers(dynamics=dynamics), drawn(LEARNERS, POINTS, 2)
    surrogate = surrogate_of(trainers)
    assert torch.equal(surrogate.control, torch.eye(2))
    slopes = torch.autograd.functional.jacobian(lambda at: surrogate.field(at).value.sum((0, 1)), x)
    torch.testing.assert_close(surrogate.jacobian(x), slopes.permute(1, 2, 0, 3), **NEAR)
    value, phi = surrogate.field(x)
    for row, trainer in enumerate(trainers):
        members = range(trainer.network.members)
        fields = [
            torch.stack([field(trainer.network, member, at) for at in x[row]]) for member in members
        ]
        torch.testing.assert_close(value[row], torch.stack(fields).mean(0), **NEAR)
        assert torch.equal(surrogate.state[row], trainer.belief.mean)
        assert torch.equal(surrogate.step_variance[row], trainer.posterior.step_variance)
        if dynamics == "ensemble":
            torch.testing.assert_close(surrogate.members(x)[row], torch.stack(fields, 1), **NEAR)
            assert surrogate.covariance is surrogate.full_covariance is surrogate.region is None
            assert phi.shape[2] == 0
            continue
        torch.testing.assert_close(phi[row], features(trainer, x[row]), **NEAR)
        assert torch.equal(surrogate.covariance[row], trainer.posterior.covariance)
        on_grid = features(trainer, region_grid(1.5, 2))
        expected = on_grid.T @ on_grid / len(on_grid)
        torch.testing.assert_close(surrogate.region[row], expected, **NEAR)


def test_a_joint_covariance_is_that_of_independent_outputs_and_made_where_it_is_asked_for():
    trainers = make_trainers(dynamics="mlp", weights={"fisher_a": 1.0})
    joint = surrogate_of(trainers).full_covariance
    for row, trainer in enumerate(trainers):
        covariance = trainer.posterior.covariance
        assert torch.equal(joint[row], torch.block_diag(covariance, covariance))
    assert surrogate_of(make_trainers(dynamics="mlp")).full_covariance is None


DECODERS: list[dict[str, Any]] = [
    {"decoder": "known"},
    {"decoder": "mlp"},
    {"decoder": "loglinear", "observation": {"kind": "loglinear"}},
    {"decoder": "loglinear", "observation": COUNTS},
]


@pytest.mark.parametrize("form", DECODERS)
def test_precision_is_what_an_observation_tells_where_the_state_is(form: dict[str, Any]):
    trainers = make_trainers(dynamics="mlp", **form)
    surrogate = surrogate_of(trainers)
    for row, trainer in enumerate(trainers):
        decoder, x = trainer.network.decoder, trainer.belief.mean
        channels = decoder.channels()

        def mean(at: Tensor, decoder: Any = decoder, channels: Any = channels) -> Tensor:
            if form["decoder"] == "mlp":
                parts = decoder.layers.weights, decoder.layers.biases
                return through(*([part[0] for part in layer] for layer in parts), at)
            drive = channels.weight @ at + channels.bias
            return drive.exp() if channels.kind == "loglinear" else drive

        slope = torch.autograd.functional.jacobian(mean, x)
        noise = mean(x) if form.get("observation") == COUNTS else channels.variance(x)
        torch.testing.assert_close(channels.mean(x), mean(x), **NEAR)
        torch.testing.assert_close(surrogate.precision[row], (slope.T / noise) @ slope, **NEAR)
        information_vector = channels.information_vector(mean(x) + 1, x)
        torch.testing.assert_close(information_vector, (slope / noise[:, None]).sum(0), **NEAR)


# The posterior.


@pytest.mark.parametrize("dynamics", SINGLE)
@torch.no_grad()
def test_the_posterior_is_that_of_regression_on_all_beliefs(dynamics: str):
    """From the prior, transition by transition; or recomputed from the replay."""
    trainer = make_trainer(config := configured(dynamics=dynamics))
    network, ring, prior = trainer.network, replay(config, count=30, ends=(11,)), trainer.posterior
    grid = features(trainer, region_grid(1.5, 2))
    inputs = {"mlp": 6, "deep": 4, "rbf": grid.square().sum(1).mean()}
    identity = torch.eye(grid.shape[1]).double()
    torch.testing.assert_close(prior.covariance, (identity / inputs[dynamics]).float())
    noise = torch.nn.functional.softplus(torch.tensor(-3.0))
    expected = noise * config.env.dt + 2 * noise
    torch.testing.assert_close(prior.step_variance, expected, atol=1e-5, rtol=0)
    beliefs = []
    for time in range(30):
        beliefs.append(trainer.observe(ring.observations[0, time], ring.actions[0, time]))
        trainer.restart(ring.truncated[0, time])
    belief = Belief(*map(torch.stack, zip(*beliefs, strict=True)))
    phi = features(trainer, belief.mean).double()

    def regression(step_variance: Tensor) -> Tensor:
        gained = phi.T @ phi * network.dt**2 / step_variance.double()
        return torch.linalg.inv(identity / network.prior_variance + gained).float()

    covariance = regression(prior.step_variance)
    torch.testing.assert_close(trainer.posterior.covariance, covariance, **NEAR)
    recomputed = trainers.recompute(network, belief)
    expected = (network.step_variance + 2 * belief.variance).mean()
    torch.testing.assert_close(recomputed.step_variance, expected)
    torch.testing.assert_close(recomputed.covariance, regression(expected), **NEAR)
    network.prior_variance = -1.0
    assert trainers.recompute(network, belief).covariance.isnan().all()


def test_the_posterior_is_recomputed_when_it_is_due():
    trainer = make_trainer(config := configured(dynamics="rbf", seq_vae={"min_windows": 40}))
    for count in (REFRESH_EVERY - 1, REFRESH_EVERY):
        ring, before = replay(config, count=count), trainer.posterior
        trainer.learn(ring, 0)
        encoded = trainers.encode_replay(trainer.network, windows.window(ring, 0, 0, count))
        after = trainers.recompute(trainer.network, encoded)
        expected = before if count < REFRESH_EVERY else after
        for part, other in zip(trainer.posterior, expected, strict=True):
            assert torch.equal(part, other)
