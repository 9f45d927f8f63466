"""Velocities: by hand, against the plainest formulas, at the specified speed; and functions that
are no field.
"""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from quatrain.envs.vector_field.fields import box_grid, make_field, region_grid, restore_field
from quatrain.envs.vector_field.kinds import FORMULAS, KINDS, FieldError, register_field
from tests.envs.vector_field.worlds import STILL, field_env, points, raw_field, wind
from tests.torch_numbers import seeded

PROVIDED: dict[str, Any] = {
    "linear": {"matrix": ((-0.5, -1.0), (1.0, -0.5))},
    "table": {"table_file": wind()},
}


def plain(kind: str, x: float, y: float) -> tuple[float, float]:
    """Computes the formulas number by number, with parameters that are not the defaults."""
    r = math.hypot(x, y)
    if kind == "limit_cycle":
        return x * (0.8 - r * r) - 1.5 * y, y * (0.8 - r * r) + 1.5 * x
    if kind == "double_limit_cycle":
        turn = 1.5 * (1.6 - r)
        return x * (0.8 - r) - turn * y, y * (0.8 - r) + turn * x
    if kind == "van_der_pol":
        return y, 0.7 * (1 - x * x) * y - 1.5 * x
    if kind == "duffing":
        return y, -0.2 * y - x * (-0.9 + 1.1 * x * x)
    if kind == "saddle_spiral":
        return y, x * x - 0.36 - 0.4 * y
    assert kind == "snowman", f"write the formula of {kind} here, number by number"
    s = 1 / (1 + math.exp(-5 * x))
    lobes = []
    for v, w in ((x - 0.8, 1.5), (x + 0.8, -1.5)):
        pull = 0.64 - v * v - y * y
        lobes.append((v * pull - w * y, y * pull + w * v))
    return tuple(s * right + (1 - s) * left for right, left in zip(*lobes, strict=True))


OTHERS: dict[str, dict[str, float]] = {
    "limit_cycle": {"w": 1.5, "d": 0.8},
    "double_limit_cycle": {"w": 1.5, "d": 0.8},
    "van_der_pol": {"mu": 0.7, "w": 1.5},
    "duffing": {"a": -0.2, "b": -0.9, "c": 1.1},
    "snowman": {"w": 1.5, "d": 0.8, "beta": 5.0},
    "saddle_spiral": {"c": 0.6, "damping": 0.4},
}


@pytest.mark.parametrize("kind", FORMULAS)
def test_batches_equal_the_formula_point_by_point(kind: str):
    assert kind in OTHERS, f"give parameters of {kind}, other than its defaults, in OTHERS"
    field, x = raw_field(kind, parameters=OTHERS[kind]), points(11, 2, seed=4)
    for result, place in zip(field(x).tolist(), x.tolist(), strict=True):
        assert result == pytest.approx(plain(kind, *place), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("kind", [*KINDS, "mine"])
def test_any_leading_axes_give_the_same_velocities_and_stored_arrays_the_same_field(kind: str):
    register_field("mine")(lambda x: torch.stack([x[:, 1], -(x[:, 0] ** 3)], 1).double())
    env = field_env(kind, normalise="region_rms", **PROVIDED.get(kind, {}))
    field, x = make_field(env, seeded(8)), points(3, 4, 5, 2)
    velocity = field(x)
    assert velocity.dtype == torch.float32
    torch.testing.assert_close(field(x.reshape(60, 2)), velocity.reshape(60, 2), rtol=0, atol=1e-6)
    torch.testing.assert_close(field(x[2, 1, 3]), velocity[2, 1, 3], rtol=0, atol=1e-6)
    assert field(x[:, :0]).shape == (3, 0, 5, 2)
    restored = restore_field(env.field, 2 * field.alpha, field.table.clone())
    assert torch.equal(restored(x), 2 * velocity)


def test_a_linear_field_has_any_number_of_dimensions():
    matrix = torch.randn(3, 3, generator=seeded(2))
    env = field_env("linear", matrix=tuple(map(tuple, matrix.tolist())), normalise="region_rms")
    field, x = make_field(env, seeded(0)), points(7, 3)
    for place, velocity in zip(x, field(x), strict=True):
        torch.testing.assert_close(velocity, field.alpha * (matrix @ place))
    assert field(region_grid(1.5, 3)).square().sum(1).mean() == pytest.approx(1)


@pytest.mark.parametrize("kind", ["duffing", "multi_attractor"])
def test_normalise_sets_the_speed(kind: str):
    field = raw_field(kind, normalise="region_rms", speed=1.3, region_radius=0.7)
    assert field(region_grid(0.7, 2)).square().sum(1).mean().sqrt() == pytest.approx(1.3)
    field, steps = raw_field(kind, normalise="box_max", speed=2.0), torch.linspace(-2, 2, 40)
    assert field(torch.cartesian_prod(steps, steps)).norm(dim=1).max() == pytest.approx(2.0)
    assert raw_field(kind, normalise="none", speed=5.0).alpha == 1


def test_the_region_has_31_points_per_axis_within_its_radius():
    grid = region_grid(1.5, 2)
    assert len(grid.unique(dim=0)) == len(grid) == len(region_grid(0.3, 2)) == 709
    assert grid.norm(dim=1).max() == pytest.approx(1.5)
    for axis in grid.T:
        torch.testing.assert_close(axis.unique(), torch.linspace(-1.5, 1.5, 31), rtol=0, atol=1e-6)
    assert region_grid(1.5, 1).shape == (31, 1)


def test_a_region_of_more_dimensions_is_an_evenly_filled_ball_and_the_box_is_covered():
    grid = region_grid(2.0, 3)
    radius = grid.norm(dim=1)
    assert grid.shape == (2048, 3)
    assert radius.max() <= 2
    assert radius.mean() == pytest.approx(2 * 3 / 4, abs=0.01)
    assert grid.mean(0).abs().max() < 0.01
    torch.testing.assert_close(grid.T @ grid / 2048, torch.eye(3) * 4 / 5, rtol=0, atol=0.02)
    assert torch.equal(grid, region_grid(2.0, 3))
    assert box_grid(3).shape == (2048, 3)
    assert -2 <= box_grid(3).min() < -1.9 < 1.9 < box_grid(3).max() <= 2


PER_STATE = "return one velocity per state, shape (4, 2)."


@pytest.mark.parametrize(
    ("velocity", "message"),
    [
        (lambda x: x[:, 0], f"returned shape (4,) for input (4, 2): {PER_STATE}"),
        (lambda x: x.T, f"returned shape (2, 4) for input (4, 2): {PER_STATE}"),
        (lambda x: x.tolist(), f"returned a list, not a tensor: {PER_STATE}"),
        (lambda x: x / x.norm(dim=1, keepdim=True), "is not finite at x = (0.0, 0.0): return "),
        (lambda x: x.clamp(min=-1.9).add(1.8).sqrt(), "is not finite at x = (-2.0, -2.0): "),
        (lambda x: x.mul_(-1), "changed its argument: compute a new tensor."),
    ],
)
def test_a_function_that_is_no_field_is_refused(velocity: Callable[[Tensor], Any], message: str):
    register_field("my_field")(velocity)
    with pytest.raises(FieldError, match=f"^Field 'my_field' {re.escape(message)}"):
        raw_field("my_field")


def test_a_field_that_is_zero_has_no_factor():
    message = (
        "^Field 'linear' is zero wherever region_rms looks, so no factor gives it speed 1: "
        r"set active_dynamics\.env\.field\.normalise to none\.$"
    )
    with pytest.raises(FieldError, match=message):
        raw_field("linear", matrix=STILL, normalise="region_rms")
    assert raw_field("linear", matrix=STILL)(points(4, 2)).abs().max() == 0
