"""The pole on its cart: by hand, against the plain formulas, where it starts and what is seen."""

import math

import pytest
import torch

from quatrain.envs import cartpole
from quatrain.envs.cartpole import observe, reset, step


def rows(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))


def plain(phi: float, phi_speed: float, theta: float, theta_speed: float, a: float) -> list[float]:
    """Computes the equations number by number."""
    m, total, l, g, radius, tau = 0.1, 1.1, 1.0, 9.8, 4.8 / (2 * math.pi), 0.01  # noqa: E741
    force = 30 * a - 0.05 * radius * phi_speed
    t = (force + m * l * theta_speed**2 * math.sin(theta)) / total
    theta_speedup = (g * math.sin(theta) - math.cos(theta) * t - 0.01 * theta_speed / (m * l)) / (
        l * (4 / 3 - m * math.cos(theta) ** 2 / total)
    )
    phi_speedup = (t - m * l * theta_speedup * math.cos(theta) / total) / radius
    phi_speed += tau * phi_speedup
    theta_speed += tau * theta_speedup
    return [phi + tau * phi_speed, phi_speed, theta + tau * theta_speed, theta_speed]


def test_the_first_push_by_hand():
    result = step(torch.zeros(1, 4), torch.ones(1, 1))[0].tolist()
    assert result == pytest.approx([0.00383121, 0.383121, -0.00219512, -0.219512], rel=1e-5)


def test_batches_equal_the_formulas_env_by_env():
    states, action = rows(7), 2 * torch.rand(7, 1, generator=torch.Generator().manual_seed(1)) - 1
    for number in range(20):
        following = step(states, action * (-1) ** number)
        for row in range(7):
            expected = plain(*states[row].tolist(), action[row].item() * (-1) ** number)
            assert following[row].tolist() == pytest.approx(expected, rel=1e-4, abs=1e-5)
        states = following


def test_pushes_are_clamped_and_the_argument_is_unchanged():
    states = rows(3)
    before = states.clone()
    for push in (1.0, -1.0):
        pushed = step(states, torch.full((3, 1), push))
        assert torch.equal(step(states, torch.full((3, 1), 7 * push)), pushed)
    assert torch.equal(states, before)


def test_envs_start_near_upright_at_the_same_place():
    start = reset(5000, torch.Generator().manual_seed(3))
    assert start[:, 0].eq(0).all()
    assert start[:, 1:].abs().max() <= cartpole.SPREAD
    torch.testing.assert_close(
        start[:, 1:].var(0), torch.full((3,), 0.05**2 / 3), rtol=0.06, atol=0
    )
    assert torch.equal(start, reset(5000, torch.Generator().manual_seed(3)))
    assert not torch.equal(start, reset(5000, torch.Generator().manual_seed(4)))


def test_observations_by_kind():
    expected = {
        "full": [math.sin(1), math.cos(1), 2, math.sin(3), math.cos(3), 4],
        "partial": [math.sin(1), math.cos(1), math.sin(3), math.cos(3)],
        "angles": [1, 3],
    }
    states = torch.tensor([[1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 0.0, 0.0]])
    for kind, numbers in expected.items():
        assert observe(states, kind)[0].tolist() == pytest.approx(numbers)
