"""How actions move encoded states is measured, and networks keep what they predict when turned."""

import pytest
import torch
from torch import Generator, Tensor

from quatrain.envs.vector_field.fields import region_grid
from quatrain.frameworks.torch import adam_state
from quatrain.models.active_dynamics.seq_vae import gauge
from quatrain.models.active_dynamics.seq_vae.network import SeqVae
from quatrain.models.active_dynamics.seq_vae.trainer import SeqVaeTrainer, encode_replay
from quatrain.replay import windows
from tests.models.active_dynamics.small_trainers import configured, make_trainer, replay

DT = 0.1
G = torch.tensor([[0.0, 1.3], [-0.7, 0.2]])
CONTROLS = {
    "identity": torch.eye(2),
    "three actions": torch.tensor([[1.0, 0.0, 0.5], [0.0, 2.0, 0.0]]),
    "one action": torch.tensor([[1.0], [0.5]]),
}


def walk(control: Tensor, count: int, noise: float) -> tuple[Tensor, Tensor, Tensor]:
    """Returns states after each transition, its actions, and ends of episodes at 0 again."""
    draws = Generator().manual_seed(0)
    actions = 2 * torch.rand(count, control.shape[1], generator=draws) - 1
    ended, x, states = torch.arange(count) % 37 == 36, torch.zeros(2), []
    for action, end in zip(actions, ended, strict=True):
        field = torch.stack([x[1], (1 - x[0] ** 2) * x[1] - x[0]])
        x = x + DT * (field + control @ action) + noise * torch.randn(2, generator=draws)
        states.append(x)
        x = x * ~end
    return torch.stack(states), actions, ended


def transform_of(matrix: Tensor) -> gauge.Transform:
    return gauge.Transform(matrix, torch.linalg.inv(matrix), torch.tensor(0.0).double())


@pytest.mark.parametrize("name", CONTROLS)
def test_the_effect_is_g_b_within_its_standard_error(name: str):
    control = CONTROLS[name]
    x, actions, ended = walk(control, 600, 0.02)
    effect = gauge.measure_effect(x @ G.T, actions, ended, DT)
    error = (effect.mean - G @ control).abs() / effect.error
    assert (error < 4).all()
    assert float(effect.uncertainty(control)) < 0.1
    assert float(effect.misalignment(control)) > 1
    aligned = gauge.measure_effect(x, actions, ended, DT)
    assert aligned.misalignment(control) < 3 * aligned.uncertainty(control)


def test_the_effect_of_a_few_transitions_is_unknown():
    x, actions, ended = walk(CONTROLS["identity"], 9, 0.02)
    assert (gauge.measure_effect(x, actions, ended, DT).error == gauge.UNKNOWN).all()
    x, actions, ended = walk(CONTROLS["identity"], 16, 0.02)
    assert (gauge.measure_effect(x, actions, ended, DT).error < gauge.UNKNOWN).all()


def test_actions_have_their_known_effect_in_transformed_coordinates():
    for control in CONTROLS.values():
        effect = gauge.Effect((G @ control).double(), torch.full(control.shape, 0.1).double())
        matrix, inverse, error = effect.transform(control)
        torch.testing.assert_close(inverse @ effect.mean.float(), control, atol=1e-5, rtol=0)
        torch.testing.assert_close(matrix @ inverse, torch.eye(2), atol=1e-5, rtol=0)
        expected = (inverse.double() @ effect.error).norm() / control.double().norm()
        torch.testing.assert_close(error, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("dynamics", "decoder"), [("deep", "linear"), ("ensemble", "mlp"), ("rbf", "loglinear")]
)
@torch.no_grad()
def test_a_network_predicts_the_same_in_other_coordinates(dynamics: str, decoder: str):
    config = configured(dynamics, decoder)
    network = make_trainer(config).network
    if dynamics == "rbf":
        network.dynamics.weight.mul_(0).add_(smooth_weights(network.dynamics.weight.shape))
    transform = transform_of(0.9 * G)
    z = region_grid(1.0, 2) @ transform.matrix.mT
    hidden = torch.randn(len(z), config.network.seq_vae.hidden, generator=Generator())
    before, encoded = predicted(network, z), network.encoder.belief(hidden)
    gauge.change_coordinates(network, transform, region_grid(config.network.rbf.range, 2))
    after = predicted(network, z @ transform.inverse.mT)
    torch.testing.assert_close(after[0], before[0], atol=1e-4, rtol=1e-4)
    expected, actual = transform.inverse @ before[1], after[1]
    near = 0.1 if dynamics == "rbf" else 1e-5
    assert (actual - expected).norm() < near * expected.norm()
    turned = network.encoder.belief(hidden)
    torch.testing.assert_close(turned.mean, encoded.mean @ transform.inverse.mT)
    torch.testing.assert_close(turned.variance, transform.moved(encoded).variance, rtol=0.1, atol=0)


def predicted(network: SeqVae, z: Tensor) -> tuple[Tensor, Tensor]:
    fields = network.dynamics(z.mT.repeat(network.members, 1, 1))
    return network.decoder.channels().mean(z), fields


def smooth_weights(shape: torch.Size) -> Tensor:
    side = round(shape[-1] ** 0.5)
    line = torch.linspace(-1, 1, side)
    first, second = line[:, None].expand(side, side), line.expand(side, side)
    return 0.3 * torch.stack([first, second - first]).flatten(1)[None]


def refreshed(decoder: str, **limits: float) -> tuple[SeqVaeTrainer, SeqVaeTrainer]:
    """Returns a trainer whose states are turned, before and after it was refreshed."""
    config = configured("mlp", decoder, seq_vae=limits)
    trainers = [make_trainer(config) for _ in range(2)]
    for trainer in trainers:
        trainer.updates = 1
    ring = replay(config, count=60, ends=(30,))
    trainers[1].refresh(windows.window(ring, 0, 0, 60))
    return trainers[0], trainers[1]


def test_learned_coordinates_are_set_where_the_effect_is_clear_and_known_ones_never():
    stored = windows.window(replay(configured("mlp"), count=60, ends=(30,)), 0, 0, 60)
    loose = {"alignment_error": 1e3}
    before, after = refreshed("linear", **loose)
    assert after.misalignment < 1e-3
    assert not torch.equal(before.network.decoder.weight, after.network.decoder.weight)
    expected = encode_replay(after.network, stored).mean
    measured = gauge.measure_effect(expected, stored.actions, stored.truncated, after.network.dt)
    torch.testing.assert_close(measured.mean, after.effect.mean)
    for decoder, limits in (("known", loose), ("linear", {"alignment_error": 0.0})):
        before, after = refreshed(decoder, max_misalignment=0.0, **limits)
        assert after.misalignment > 0.3
        assert after.can_plan == (decoder == "known")
        for param, other in zip(
            before.network.parameters(), after.network.parameters(), strict=True
        ):
            assert torch.equal(param, other)


def test_the_optimiser_starts_anew_in_new_coordinates():
    """Moments are those of gradients in the coordinates before; where these stay, so do they."""
    for limit in (1e3, 0.0):
        config = configured("mlp", "linear", seq_vae={"alignment_error": limit})
        trainer, ring = make_trainer(config), replay(config, count=60, ends=(30,))
        trainer.learn(ring, 0)
        before = adam_state(trainer.optimizer, trainer.network)
        assert before.steps > 0
        trainer.refresh(windows.window(ring, 0, 0, 60))
        after = adam_state(trainer.optimizer, trainer.network)
        assert after.steps == (before.steps if limit == 0 else 0)
        for param, moment in before.exp_avg.items():
            expected = moment if limit == 0 else torch.zeros_like(moment)
            assert torch.equal(after.exp_avg[param], expected)


def test_a_learner_plans_only_below_its_limit_by_two_standard_errors():
    trainer = make_trainer(configured("mlp", "linear", seq_vae={"max_misalignment": 0.5}))
    assert not trainer.can_plan
    exact, root = torch.eye(2).double(), 2**0.5
    for size, error, can_plan in ((0.3, 0.09, True), (0.3, 0.11, False), (0.6, 0.0, False)):
        spread = torch.full((2, 2), error * root / 2).double()
        trainer.effect = gauge.Effect(exact * (1 + size), spread)
        assert bool(trainer.can_plan) == can_plan
