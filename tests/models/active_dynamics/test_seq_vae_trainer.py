"""A trainer of seq_vae: all parameters learn, updates are plain Adam's, saved states continue."""

import inspect
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from quatrain.envs.vector_field.fields import make_field, region_grid
from quatrain.frameworks.torch import packing
from quatrain.models.active_dynamics import losses
from quatrain.models.active_dynamics.seq_vae import elbo, network
from quatrain.models.active_dynamics.seq_vae import trainer as trainers
from quatrain.models.active_dynamics.seq_vae.trainer import (
    SeqVaeState,
    SeqVaeTrainer,
    draw_bootstrap,
    init_state,
)
from quatrain.replay import windows
from quatrain.replay.windows import Entry, WindowRing, Windows
from tests.models.active_dynamics.small_trainers import (
    COUNTS,
    channels,
    configured,
    gradients,
    make_trainer,
    replay,
)

FORMS: list[dict[str, Any]] = [
    {"dynamics": "linear", "decoder": "linear"},
    {"dynamics": "deep", "decoder": "mlp"},
    {"dynamics": "rbf", "decoder": "loglinear", "observation": COUNTS},
    {"dynamics": "ensemble", "decoder": "linear"},
]
EARLY = {"warmup": 0, "anneal_kind": "none", "beta": 1.0}


def sampled(trainer: SeqVaeTrainer, ring: WindowRing, seed: int = 0) -> Windows:
    train = trainer.config.train.seq_vae
    return windows.sample(ring, 0, train.batch_size, train.length, Generator().manual_seed(seed))


def alike(first: SeqVaeState, other: SeqVaeState) -> bool:
    first, second = packing.to_arrays(first), packing.to_arrays(other)
    return all(np.array_equal(first[name], second[name]) for name in first.keys() | second.keys())


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form['dynamics']} {form['decoder']}")
def test_every_parameter_gets_a_gradient_after_two_updates(form: dict[str, Any]):
    trainer = make_trainer(config := configured(**form, seq_vae=EARLY))
    ring = replay(config)
    for _ in range(3):
        trainer.update(sampled(trainer, ring), 40)
    result = gradients(trainer)
    assert {"raw_noise", "first_mean", "raw_first_variance"} <= result.keys()
    for name, gradient in result.items():
        each = gradient if name.startswith(("dynamics", "encoder.heads")) else gradient[None]
        assert (each.abs().flatten(1).amax(1) > 0).all(), (
            name
        )  # of each member; of mean and variance


def test_at_the_first_update_only_the_hidden_layer_of_the_variance_gets_none():
    trainer = make_trainer(config := configured("mlp", "linear", seq_vae=EARLY))
    trainer.update(sampled(trainer, replay(config)), 40)
    hidden = gradients(trainer)["encoder.heads.weights.0"]
    assert (hidden.abs().amax((1, 2)) > 0).tolist() == [True, False]


def test_the_noise_of_a_step_gets_a_gradient_at_every_update():
    trainer = make_trainer(config := configured("mlp", seq_vae=EARLY))
    ring, values = replay(config), []
    for _ in range(5):
        trainer.learn(ring, 0)
        assert (gradients(trainer)["raw_noise"] != 0).all()
        values.append(trainer.network.raw_noise.detach().clone())
    assert all(not torch.equal(first, other) for first, other in pairwise(values))


def test_known_channels_are_frozen():
    trainer = make_trainer(config := configured("mlp", "known", seq_vae=EARLY))
    truth, ring = channels(config), replay(config)
    for _ in range(3):
        trainer.learn(ring, 0)
    assert not any(name.startswith("decoder") for name, _ in trainer.network.named_parameters())
    for name in ("weight", "bias", "noise_variance"):
        assert torch.equal(getattr(trainer.network.decoder, name), getattr(truth, name))


def test_members_of_an_ensemble_differ_and_learn_different_fields():
    trainer = make_trainer(config := configured("ensemble", seq_vae=EARLY))
    ring = replay(config)
    for _ in range(4):
        trainer.learn(ring, 0)
    values = trainer.network.dynamics.field()(torch.ones(3, 2, 1))
    assert (values[0] - values[1]).abs().max() > 1e-3
    assert (values[1] - values[2]).abs().max() > 1e-3


def test_the_loss_weighs_terms_members_and_windows():
    """Weighs each window for a member as often as its bootstrap says."""
    trainer = make_trainer(
        config := configured("ensemble", "linear", seq_vae={**EARLY, "beta": 0.3})
    )
    ring, train = replay(config), config.train.seq_vae
    batch, state = sampled(trainer, ring), trainer.elbo_rng.get_state()
    result = trainer.objective(batch, 29).loss
    draws, scene = Generator(), elbo.encode_windows(trainer.network, batch, train.burn_in)
    draws.set_state(state)
    drawn = elbo.draw(3, train.samples, train.horizons, scene, draws)
    scored, expected = (
        elbo.compute_terms(trainer.network, scene, drawn, trainer.network.horizon_mask_weights),
        torch.zeros(()),
    )
    for place, start in enumerate(batch.starts.tolist()):
        for member in range(3):
            divergence = scored.kl_first[place] + scored.kl_steps[member, place]
            gained = scored.ell[member, place] - 0.3 * divergence
            expected -= (
                trainer.bootstrap[start, member] * gained / train.window / 3 / len(batch.starts)
            )
    torch.testing.assert_close(result, expected)


def test_the_prior_of_weights_counts_less_the_more_was_seen():
    trainer = make_trainer(config := configured("rbf", seq_vae=EARLY))
    batch, state = sampled(trainer, replay(config)), trainer.elbo_rng.get_state()
    result = []
    for transitions in (10, 40):
        trainer.elbo_rng.set_state(state)
        result.append(trainer.objective(batch, transitions).loss)
    square = trainer.network.dynamics.weight.square().sum() / (2 * trainer.network.prior_variance)
    torch.testing.assert_close(result[0] - result[1], square / 10 - square / 40)


def test_the_bootstrap_is_poisson_and_once_for_all_without_an_ensemble():
    config = configured("ensemble", seq_vae=EARLY)
    config = config.model_copy(
        update={"train": config.train.model_copy(update={"transitions": 20_000})}
    )
    drawn = draw_bootstrap(config, Generator().manual_seed(0))
    assert drawn.shape == (20_000, 3)
    assert float(drawn.mean()) == pytest.approx(1, abs=0.02)
    assert float(drawn.var()) == pytest.approx(1, abs=0.04)
    assert abs(float(torch.corrcoef(drawn.T)[0, 1])) < 0.03
    assert draw_bootstrap(configured("rbf"), Generator()).unique().tolist() == [1]


def test_two_losses_share_one_backward_and_gradients_add_up():
    """Masks are drawn anew for each loss."""
    trainer = make_trainer(config := configured("mlp", "linear", seq_vae={**EARLY, "mask": 0.5}))
    batches = [sampled(trainer, replay(config), seed) for seed in (0, 1)]
    state = trainer.elbo_rng.get_state()
    (trainer.objective(batches[0], 40).loss + trainer.objective(batches[1], 40).loss).backward()
    together = gradients(trainer)
    trainer.network.zero_grad()
    trainer.elbo_rng.set_state(state)
    for batch in batches:
        trainer.objective(batch, 40).loss.backward()
    for name, gradient in gradients(trainer).items():
        torch.testing.assert_close(gradient, together[name])


def test_nothing_is_masked_while_beta_is_zero():
    def loss(mask: float, updates: int) -> Tensor:
        trainer = make_trainer(
            config := configured("mlp", seq_vae={**EARLY, "warmup": 5, "mask": mask})
        )
        trainer.updates = updates
        return trainer.objective(sampled(trainer, replay(config)), 40).loss

    assert torch.equal(loss(0.5, 4), loss(0.0, 4))
    assert not torch.equal(loss(0.5, 5), loss(0.0, 5))


@pytest.mark.parametrize("mask", [0.0, 0.5])
def test_metrics_are_per_time_and_channel_or_dimension(mask: float):
    trainer = make_trainer(
        config := configured("mlp", "linear", seq_vae={**EARLY, "mask": mask, "beta": 0.5})
    )
    result = trainer.learn(replay(config), 0)
    assert result.keys() == {*losses.TERMS["seq_vae"], "elbo_exact", "loss", "beta", "grad_norm"}
    channels_each, d_each = config.env.observation.channels, config.env.d
    loss = -result["ell"] * channels_each + 0.5 * d_each * (result["kl_first"] + result["kl_steps"])
    torch.testing.assert_close(result["loss"], loss)
    assert float(result["beta"]) == 0.5
    assert all(value.shape == () and not value.requires_grad for value in result.values())


def plain_step(trainer: SeqVaeTrainer, batch: Windows) -> dict[str, Tensor]:
    """Parameters after a step of torch's own Adam of a copy, clipped by hand."""
    copy = network.init_network(trainer.config, channels(trainer.config), 0)
    copy.load_state_dict(trainer.network.state_dict())
    other = SeqVaeTrainer.from_state(trainer.config, channels(trainer.config), trainer.to_state())
    other.objective(batch, 40).loss.backward()
    params = dict(other.network.named_parameters())
    norm = torch.stack([param.grad.square().sum() for param in params.values()]).sum().sqrt()
    limit = trainer.config.train.seq_vae.max_grad_norm
    for name, param in copy.named_parameters():
        param.grad = params[name].grad * min(1.0, limit / float(norm))
    torch.optim.Adam(copy.parameters(), lr=trainer.config.train.seq_vae.learning_rate).step()
    return {name: param.detach() for name, param in copy.named_parameters()}


def test_the_first_update_is_that_of_adam_with_a_clipped_gradient():
    trainer = make_trainer(
        config := configured("mlp", "linear", seq_vae={**EARLY, "max_grad_norm": 0.5})
    )
    batch = sampled(trainer, replay(config))
    expected = plain_step(trainer, batch)
    norm = trainer.update(batch, 40)["grad_norm"]
    assert float(norm) > 0.5
    for name, param in trainer.network.named_parameters():
        torch.testing.assert_close(param.detach(), expected[name], atol=1e-6, rtol=1e-4)


def test_the_optimiser_is_one_for_the_whole_run_and_counts_its_steps():
    trainer = make_trainer(config := configured("mlp", seq_vae={**EARLY, "updates": 2}))
    ring, optimizer = replay(config), trainer.optimizer
    for _ in range(3):
        trainer.learn(ring, 0)
    assert trainer.optimizer is optimizer
    assert trainer.updates == 6
    assert {float(state["step"]) for state in optimizer.state.values()} == {6}


def test_sgd_without_moments_may_be_asked_for():
    trainer = make_trainer(
        config := configured("mlp", seq_vae={**EARLY, "optimizer": "sgd", "max_grad_norm": None})
    )
    before, rate = dict(trainer.to_state().params), config.train.seq_vae.learning_rate
    trainer.learn(replay(config), 0)
    for name, param in trainer.network.named_parameters():
        torch.testing.assert_close(param.detach(), before[name] - rate * param.grad)
    saved = trainer.to_state()
    assert not any(moment.any() for moments in saved.optimizer[:2] for moment in moments.values())


def test_learning_begins_with_enough_windows():
    trainer = make_trainer(config := configured("mlp", seq_vae={**EARLY, "min_windows": 6}))
    length = config.train.seq_vae.length
    assert trainer.learn(replay(config, count=length + 4), 0) == {}
    assert trainer.updates == 0
    assert trainer.learn(replay(config, count=length + 5), 0)
    assert trainer.updates == 1


@pytest.mark.parametrize("dynamics", ["rbf", "ensemble"])
def test_saved_and_loaded_a_row_goes_on_bit_for_bit(dynamics: str):
    config = configured(dynamics, "linear", seq_vae={**EARLY, "mask": 0.3})
    ring = replay(config, count=53, ends=(15, 33))

    def go_on(trainer: SeqVaeTrainer, numbers: range) -> SeqVaeTrainer:
        for number in numbers:
            trainer.observe(ring.observations[0, number], ring.actions[0, number])
            trainer.restart(ring.truncated[0, number])
            trainer.learn(ring, 0)
        return trainer

    whole = go_on(make_trainer(config), range(30))
    half = go_on(make_trainer(config), range(14)).to_state()
    arrays = packing.to_arrays(half)
    loaded = packing.from_arrays(init_state(config, channels(config), 99), arrays)
    resumed = go_on(SeqVaeTrainer.from_state(config, channels(config), loaded), range(14, 30))
    assert alike(whole.to_state(), resumed.to_state())
    assert all(
        np.array_equal(value, arrays[name]) for name, value in packing.to_arrays(half).items()
    )


def test_a_fresh_row_depends_on_its_seed_alone():
    config = configured("ensemble")
    first, same, other = (init_state(config, channels(config), seed) for seed in (1, 1, 2))
    assert alike(first, same)
    for name in ("encoder.cell.weight_hh", "dynamics.layers.weights.0"):
        assert not torch.equal(first.params[name], other.params[name])
    assert not torch.equal(first.bootstrap, other.bootstrap)
    assert not torch.equal(first.batch_rng, first.elbo_rng)


def test_beliefs_of_the_carried_state_are_those_of_the_whole_episode():
    trainer, ends = make_trainer(config := configured("rbf")), (7,)
    ring = replay(config, count=20, ends=ends)
    inputs = torch.cat([ring.observations, ring.actions], 2)[0, :20]
    full = trainer.network.encoder.belief(
        trainer.network.encoder.encode_episodes(inputs, ring.truncated[0, :20])
    )
    first = trainer.network.initial_belief
    for number in range(20):
        result = trainer.observe(ring.observations[0, number], ring.actions[0, number])
        torch.testing.assert_close(result.mean, full.mean[number], atol=1e-6, rtol=0)
        torch.testing.assert_close(result.variance, full.variance[number], atol=1e-6, rtol=0)
        trainer.restart(ring.truncated[0, number])
        for now, belief, before in zip(trainer.belief, result, first, strict=True):
            assert torch.equal(now, before if number in ends else belief)


def test_a_belief_follows_what_is_seen_and_done():
    config = configured("rbf")
    y, action = torch.ones(config.env.observation.channels), torch.ones(2)
    means = [
        make_trainer(config).observe(*pair).mean
        for pair in ((y, action), (y + 1, action), (y, -action))
    ]
    assert not torch.equal(means[0], means[1])
    assert not torch.equal(means[0], means[2])


def test_no_module_of_the_family_moves_tensors_between_devices_or_empties_caches():
    sources = [inspect.getsource(module) for module in (trainers, elbo, network, windows)]
    assert not any(
        word in source
        for source in sources
        for word in ("empty_cache", ".cuda(", ".item(", "tolist")
    )


def walked(config: Any, count: int) -> WindowRing:
    """Returns a limit cycle with random actions, observed by the known channels."""
    draws, emission = Generator().manual_seed(0), channels(config)
    flow, x = make_field(config.env.world.field, draws), torch.zeros(1, 2)
    ring = windows.allocate(1, count, config.env.observation.channels, 2)
    for _ in range(count):
        action = torch.rand(1, 2, generator=draws) * 2 - 1
        x = x + (flow(x) + action) * config.env.dt + 0.03 * torch.randn(1, 2, generator=draws)
        entry = Entry(emission.sample(x, None, draws), action, torch.zeros(1, dtype=torch.bool))
        windows.write(ring, entry, config.train.seq_vae.length)
    return ring


def test_the_bound_rises_and_the_field_beats_none():
    training = {
        "batch_size": 16,
        "samples": 3,
        "window": 15,
        "burn_in": 5,
        "learning_rate": 0.01,
        "anneal": 30,
    }
    trainer = make_trainer(config := configured("rbf", seq_vae=training))
    with torch.no_grad():
        trainer.network.dynamics.weight.zero_()
    ring, grid = walked(config, 301), region_grid(1.5, 2)
    truth = make_field(config.env.world.field, Generator().manual_seed(0))(grid)
    bounds = [float(trainer.learn(ring, 0)["elbo_exact"]) for _ in range(150)]
    assert np.mean(bounds[-20:]) > np.mean(bounds[:20]) + 0.5
    with torch.no_grad():
        error = trainer.network.dynamics.field()(grid.T[None])[0].T - truth
    assert float((error.square().sum() / truth.square().sum()).sqrt()) < 0.7
