"""A trainer of seq_vae: all parameters learn, the loss is weighted, updates are those of Adam."""

from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from quatrain.models.active_dynamics.seq_vae import elbo, network
from quatrain.models.active_dynamics.seq_vae.trainer import SeqVaeTrainer, draw_bootstrap
from quatrain.replay import windows
from quatrain.replay.windows import Windows
from tests.models.active_dynamics.small_trainers import channels, configured, make_trainer, replay

AT_ONCE = {"anneal_kind": "none", "beta": 1.0}


def sampled(trainer: SeqVaeTrainer) -> Windows:
    train, ring = trainer.config.train.seq_vae, replay(trainer.config)
    return windows.sample(ring, 0, train.batch_size, train.length, Generator().manual_seed(0))


def trainer_of(dynamics: str, decoder: str = "known", **training: Any) -> SeqVaeTrainer:
    return make_trainer(configured(dynamics, decoder, seq_vae=AT_ONCE | training))


def parameters(trainer: SeqVaeTrainer) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in trainer.network.named_parameters()}


@pytest.mark.parametrize("dynamics", ["ensemble", "rbf"])
def test_the_loss_weighs_terms_and_each_window_of_a_member_by_its_bootstrap(dynamics: str):
    """Metrics are of one transition, and of one channel or dimension."""
    trainer = trainer_of(dynamics, "linear", beta=0.3)
    train, net, batch = trainer.config.train.seq_vae, trainer.network, sampled(trainer)
    draws = Generator()
    draws.set_state(trainer.elbo_rng.get_state())
    loss, metrics = trainer.objective(batch, 29)
    encoded = elbo.encode_windows(net, batch, train.burn_in)
    drawn = elbo.draw(net.members, train.samples, train.horizons, encoded, draws)
    terms = elbo.compute_terms(net, encoded, drawn, net.horizon_mask_weights)
    uses, prior = trainer.bootstrap[batch.starts].T, torch.tensor(0.0)
    if dynamics == "rbf":
        prior = net.dynamics.weight.square().sum() / (2 * net.prior_variance) / 29
    assert (len(uses.unique()) > 1) == (dynamics == "ensemble")
    gained = uses * (terms.ell - 0.3 * (terms.kl_first + terms.kl_steps))
    torch.testing.assert_close(loss, prior - gained.mean() / train.window)
    units = {"ell": 8, "kl_first": 2, "kl_steps": 2}
    expected = {name: (uses * getattr(terms, name)).mean() / unit for name, unit in units.items()}
    expected["elbo_exact"] = elbo.evidence_bound(net, encoded, drawn).mean() / 8
    for name, value in expected.items():
        torch.testing.assert_close(metrics[name], value / train.window)
    torch.testing.assert_close(metrics["weight_prior"], prior)
    assert (float(metrics["beta"]), metrics["loss"]) == (pytest.approx(0.3), loss)


def test_the_bootstrap_is_poisson_for_an_ensemble_and_1_else():
    config = configured("ensemble")
    train = config.train.model_copy(update={"transitions": 20_000})
    drawn = draw_bootstrap(config.model_copy(update={"train": train}), Generator().manual_seed(0))
    assert drawn.shape == (20_000, 3)
    assert float(drawn.mean()) == pytest.approx(1, abs=0.02)
    assert float(drawn.var()) == pytest.approx(1, abs=0.04)
    assert abs(float(torch.corrcoef(drawn.T)[0, 1])) < 0.03
    assert draw_bootstrap(configured("rbf"), Generator()).unique().tolist() == [1]


def test_nothing_is_masked_while_beta_is_zero():
    def loss(mask: float, updates: int) -> Tensor:
        trainer = trainer_of("mlp", anneal_kind="linear", mask=mask)
        trainer.updates = updates
        return trainer.objective(sampled(trainer), 40).loss

    assert torch.equal(loss(0.5, 0), loss(0.0, 0))
    assert not torch.equal(loss(0.5, 1), loss(0.0, 1))


def test_an_update_is_that_of_adam_with_a_clipped_gradient():
    trainer = trainer_of("mlp", "linear", max_grad_norm=0.5, updates=2)
    config = trainer.config
    copy = network.init_network(config, channels(config), 0)
    copy.load_state_dict(trainer.network.state_dict())
    other = SeqVaeTrainer.from_state(config, channels(config), trainer.to_state())
    batch = sampled(trainer)
    other.objective(batch, 40).loss.backward()
    gradients = {name: param.grad for name, param in other.network.named_parameters()}
    norm = torch.stack([gradient.square().sum() for gradient in gradients.values()]).sum().sqrt()
    for name, param in copy.named_parameters():
        param.grad = gradients[name] * 0.5 / norm
    torch.optim.Adam(copy.parameters(), lr=config.train.seq_vae.learning_rate).step()
    torch.testing.assert_close(trainer.update(batch, 40)["grad_norm"], norm)
    assert norm > 0.5
    for name, param in copy.named_parameters():
        actual = parameters(trainer)[name]
        torch.testing.assert_close(actual, param.detach(), atol=1e-6, rtol=1e-4)
    trainer.learn(replay(config), 0)
    assert trainer.updates == 3
    assert {float(state["step"]) for state in trainer.optimizer.state.values()} == {3}


def test_sgd_has_no_moments():
    trainer = trainer_of("mlp", optimizer="sgd", max_grad_norm=None)
    before, rate = parameters(trainer), trainer.config.train.seq_vae.learning_rate
    trainer.learn(replay(trainer.config), 0)
    for name, param in trainer.network.named_parameters():
        torch.testing.assert_close(param.detach(), before[name] - rate * param.grad)
    moments = trainer.to_state().optimizer[:2]
    assert not any(value.any() for moment in moments for value in moment.values())


def test_beliefs_of_the_carried_state_are_those_of_the_whole_episode():
    """Each rollout has episodes of its own."""
    trainer, ends = trainer_of("rbf"), (0, 7, 8)
    rings = [replay(trainer.config, count=20, ends=where) for where in (ends, (5, 19))]
    columns = [torch.cat([ring.observations, ring.actions], 2)[0, :20] for ring in rings]
    ended = torch.stack([ring.truncated[0, :20] for ring in rings], 1)
    mean, variance = trainer.network.encoder.encode_episodes(torch.stack(columns, 1), ended)
    for time in range(20):
        belief = trainer.observe(rings[0].observations[0, time], rings[0].actions[0, time])
        torch.testing.assert_close(belief.mean, mean[time, 0], atol=1e-6, rtol=0)
        torch.testing.assert_close(belief.variance, variance[time, 0], atol=1e-6, rtol=0)
        trainer.restart(ended[time, 0])
        expected = trainer.network.initial_belief if time in ends else belief
        for part, other in zip(trainer.belief, expected, strict=True):
            assert torch.equal(part, other)
