"""The original and seed 003 are right and wrong where their docstrings say so."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.reference import active_dynamics as plain
from benchmarks.reference import active_dynamics_seed as seed
from benchmarks.reference import active_dynamics_world as plain_world
from benchmarks.reference.active_dynamics_rollout import RecentRollout, Rollout, SeedRollout

SHAPE = plain.Shape(obs=7, action=2, d=2, hidden=5, head=6, dynamics_hidden=8)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


def window_of(times: int, windows: int = 1) -> plain.Window:
    return plain.Window(
        torch.randn(windows, times, SHAPE.obs), torch.randn(windows, times, SHAPE.action)
    )


# Copies of the latest transitions.


@pytest.mark.parametrize("kind", [RecentRollout, SeedRollout])
def test_recent_transitions_are_the_last_of_all(kind):
    all_of_them, recent = Rollout(), kind(7)
    for number in range(30):
        transition = {"state": torch.full((3,), float(number)), "reward": torch.tensor(number / 2)}
        all_of_them.add(transition)
        recent.add(transition)
        expected = all_of_them.last(7)
        assert {name: value.tolist() for name, value in recent.copy().data.items()} == {
            name: value.tolist() for name, value in expected.items()
        }


def test_conditional_clone_copies_as_much_and_loses_what_is_no_tensor():
    rollouts = [RecentRollout(4), SeedRollout(4)]
    for rollout in rollouts:
        for _ in range(6):
            rollout.add({"state": torch.randn(3, requires_grad=True), "told": {"truncated": False}})
    assert not any(
        value.requires_grad for value in rollouts[1].data.values() if isinstance(value, Tensor)
    )
    before, after = (rollout.copy().data for rollout in rollouts)
    assert before["state"].numel() == after["state"].numel() == 12
    for rollout, copied in zip(rollouts, (before, after), strict=True):
        assert copied["state"].data_ptr() != rollout.data["state"].data_ptr()
    assert "told" in before
    assert "told" not in after


def test_pool_is_never_used_and_storage_is_made_anew_in_each_step():
    rollout = SeedRollout(4)
    for _ in range(4):
        rollout.add({"state": torch.randn(3)})
    before = rollout.data["state"]
    rollout.add({"state": torch.randn(3)})
    assert rollout.pool == {}
    assert rollout.data["state"].data_ptr() != before.data_ptr()


def test_a_transfer_on_a_cpu_copies_nothing():
    batch = torch.randn(4, 3)
    assert seed.moved(batch, torch.device("cpu")).data_ptr() == batch.data_ptr()


def test_device_checks_say_the_same():
    for name in ("cpu", "cuda:1"):
        checks = seed.DeviceChecks(torch.device(name))
        assert checks.before() == checks.seed() == (name != "cpu")


# Weights of horizons.


def test_cached_weights_are_not_normalised_when_they_are_made():
    cached, expected = seed.KlWeights(), plain.horizon_weights(5, 0.8)
    first, second = cached(5, 0.8), cached(5, 0.8)
    torch.testing.assert_close(first.sum(), torch.tensor((1 - 0.8**5) / 0.2))
    torch.testing.assert_close(second, expected)
    assert expected.tolist() == pytest.approx([0.2975, 0.2380, 0.1904, 0.1523, 0.1218], abs=1e-4)


def test_cached_weights_make_the_first_divergence_several_times_as_large():
    model, window, cached = plain.Model(SHAPE), window_of(20), seed.KlWeights()
    settings, result = plain.Settings(samples=2), []
    for weights in (None, cached(5, 0.8), cached(5, 0.8)):
        draws = torch.Generator().manual_seed(3)
        draw = lambda *shape, draws=draws: torch.randn(*shape, generator=draws)  # noqa: E731
        result.append(plain.terms(model, window, settings, draw, weights).kl_steps.item())
    assert result[1] / result[0] == pytest.approx(3.3616, rel=1e-4)
    assert result[2] == pytest.approx(result[0], rel=1e-6)


def test_cached_weights_stay_where_the_decay_changes():
    cached = seed.KlWeights()
    cached(3, 0.8)
    torch.testing.assert_close(cached(3, 0.5), plain.horizon_weights(3, 0.8))
    assert not torch.allclose(plain.horizon_weights(3, 0.5), plain.horizon_weights(3, 0.8))


# Mask, variance, belief.


def test_a_mask_in_one_buffer_breaks_two_losses_with_one_backward():
    x = torch.randn(9, 2, requires_grad=True)
    before = [(seed.mask_before(9, 0.3) * x).square().sum() for _ in range(2)]
    sum(before).backward()
    assert x.grad is not None
    masked = seed.Mask(9)
    after = [(masked(0.3) * x).square().sum() for _ in range(2)]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        sum(after).backward()


def test_masks_keep_as_many():
    masked = seed.Mask(4000)
    for mask in (masked(0.3), seed.mask_before(4000, 0.3)):
        assert set(mask.unique().tolist()) == {0.0, 1.0}
        assert mask.mean().item() == pytest.approx(0.7, abs=0.03)


def test_a_cached_variance_cannot_learn():
    cached = seed.CachedVariance(2)
    cached().sum().backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        cached().sum().backward()
    recorded = seed.CachedVariance(2)
    with torch.no_grad():
        recorded()
    assert not recorded().requires_grad


def test_a_cached_variance_stays_where_its_parameter_moves():
    cached = seed.CachedVariance(2)
    first = cached().detach().clone()
    with torch.no_grad():
        cached.raw += 1
    torch.testing.assert_close(cached(), first)
    assert not torch.allclose(plain.Model.variance(cached.raw), first)


def agents_of_a_wrong_model() -> list[plain.Agent]:
    """Channels are the state itself, so that encoding is exact; the model's field is 0."""

    def encode(window: plain.Window) -> plain.Gaussian:
        return plain.Gaussian(window.observations, torch.ones_like(window.observations))

    def predict(x: Tensor, u: Tensor) -> plain.Gaussian:
        return plain.Gaussian(x + 0.1 * u, torch.ones_like(x))

    return [
        plain.Agent(encode, predict, RecentRollout(20)),
        seed.PredictingAgent(encode, predict, SeedRollout(20)),
    ]


def test_fewer_encoder_calls_lose_the_state():
    agents = agents_of_a_wrong_model()
    x, errors = torch.tensor([1.0, 0.0]), [[], []]
    for _ in range(200):
        u = 2 * torch.rand(2) - 1
        x = x + 0.1 * (torch.tensor(plain_world.limit_cycle(x.tolist())) + u)
        for agent, errs in zip(agents, errors, strict=True):
            errs.append((agent.step(x, u) - x).norm().item())
    assert max(errors[0]) == 0
    assert errors[1][0] == 0
    assert np.mean(errors[1][100:]) > 0.5


def test_fewer_encoder_calls_hear_no_observation_but_the_first():
    agents = agents_of_a_wrong_model()
    for agent in agents:
        agent.step(torch.zeros(2), torch.zeros(2))
    beliefs = [agent.step(torch.full((2,), 5.0), torch.ones(2)).tolist() for agent in agents]
    assert beliefs[0] == [5, 5]
    assert beliefs[1] == pytest.approx([0.1, 0.1])


def test_belief_of_an_agent_is_the_encoding_of_its_window():
    model, window = plain.Model(SHAPE), window_of(9)
    agent = plain.Agent(model.encoder, model.predicted, RecentRollout(4))
    for time in range(9):
        belief = agent.step(window.observations[0, time], window.actions[0, time])
    expected = model.encoder(plain.Window(*(part[:, -4:] for part in window))).mean[0, -1]
    torch.testing.assert_close(belief, expected)


# Learning.


def test_divergence_is_the_one_worked_out_by_hand():
    q = plain.Gaussian(torch.tensor([0.2]), torch.tensor([0.04]))
    for variance, expected in ((0.05, 0.111572), (0.5, 0.812864)):
        result = plain.kl(q, plain.Gaussian(torch.tensor([0.1]), torch.tensor([variance])))
        assert result.item() == pytest.approx(expected, abs=1e-6)


def test_horizons_have_fewer_transitions_one_after_another():
    model, window = plain.Model(SHAPE), window_of(6, 3)
    q = model.encoder(window)
    result = list(plain.horizons(model, window, q, q.mean.expand(4, -1, -1, -1), torch.zeros))
    assert [tuple(each.shape) for each in result] == [(4, 3, times) for times in (5, 4, 3, 2, 1)]
    x = q.mean[:, 0]
    for time in (1, 2):
        x = model.predicted(x, window.actions[:, time]).mean
    expected = plain.kl(
        plain.Gaussian(q.mean[:, 2], q.variance[:, 2]), plain.Gaussian(x, model.step_variance)
    )
    torch.testing.assert_close(result[1][0, :, 0], expected)


@pytest.mark.parametrize("centres", [0, 5])
def test_a_plain_step_learns_and_forgets_its_moments(centres):
    model, window = plain.Model(SHAPE._replace(centres=centres)), window_of(8)
    before = {name: param.detach().clone() for name, param in model.named_parameters()}
    plain.train_step(
        model, window, plain.Settings(samples=2, horizons=3, max_grad_norm=1e9), torch.randn
    )
    moved = {
        name: (param.detach() - before[name]).abs().max().item()
        for name, param in model.named_parameters()
    }
    # A first step of Adam has the length of the learning rate, and each step here is a first.
    assert all(result == pytest.approx(3e-3, rel=0.02) for result in moved.values())
