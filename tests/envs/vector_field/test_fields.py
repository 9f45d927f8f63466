"""Velocities: by hand, against the plainest formulas, at the asked speed; and functions that are no
field.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from quatrain.envs.vector_field.fields import box_grid, make_field, region_grid, restore_field
from quatrain.envs.vector_field.kinds import KINDS, FieldError, register_field
from tests.envs.vector_field.worlds import (
    SIX,
    STILL,
    field_spec,
    fields_registered_here,
    points,
    raw_field,
    seeded,
    wind,
)

SPIRAL = ((-0.5, -1.0), (1.0, -0.5))


@pytest.fixture(autouse=True)
def _forgotten_afterwards() -> Iterator[None]:
    with fields_registered_here():
        yield


@pytest.mark.parametrize(
    ("kind", "parameters", "x", "velocity"),
    [
        ("limit_cycle", {}, (0.5, 0), (0.375, 0.5)),
        ("limit_cycle", {"w": 2.0, "d": 3.0}, (0.5, 0), (1.375, 1)),
        ("double_limit_cycle", {}, (0.5, 0), (0.25, 0.75)),
        ("van_der_pol", {}, (2, 1), (1, -5)),
        ("duffing", {"a": 0.1, "b": -0.1, "c": 0.1}, (2, 1), (1, -0.5)),
        ("duffing", {}, (2, 1), (1, -6.1)),
        ("snowman", {}, (0, 1), (0, -2)),
        ("snowman", {}, (1, 0), (-2.724e-4, -9.080e-5)),
    ],
)
def test_velocities_by_hand(kind: str, parameters: dict[str, float], x: tuple, velocity: tuple):
    field = raw_field(kind, parameters=tuple(parameters.items()))
    assert field(torch.tensor([x], dtype=torch.float32))[0].tolist() == pytest.approx(
        velocity, rel=1e-3, abs=1e-7
    )


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
}


@pytest.mark.parametrize("kind", OTHERS)
def test_batches_equal_the_formula_point_by_point(kind: str):
    field, x = raw_field(kind, parameters=tuple(OTHERS[kind].items())), points(3, 5, 2, seed=4)
    velocity = field(x)
    assert velocity.shape == (3, 5, 2)
    for result, place in zip(
        velocity.reshape(-1, 2).tolist(), x.reshape(-1, 2).tolist(), strict=True
    ):
        assert result == pytest.approx(plain(kind, *place), rel=1e-4, abs=1e-5)


def test_every_kind_is_the_field_it_names():
    """All fields differ."""
    x = points(11, 2)
    velocities = [raw_field(kind)(x) for kind in SIX]
    for single in range(len(SIX)):
        for other in range(single):
            assert (velocities[single] - velocities[other]).abs().max() > 0.1


@pytest.mark.parametrize("kind", [*KINDS, "mine"])
def test_any_leading_axes_give_the_same_velocities(kind: str):
    register_field("mine")(lambda x: torch.stack([x[:, 1], -(x[:, 0] ** 3)], 1))
    provided = {"linear": {"matrix": SPIRAL}, "table": {"table": wind()}}.get(kind, {})
    field, x = raw_field(kind, **provided), points(3, 4, 5, 2)
    velocity = field(x)
    torch.testing.assert_close(field(x.reshape(60, 2)), velocity.reshape(60, 2), rtol=0, atol=1e-6)
    torch.testing.assert_close(field(x[2, 1, 3]), velocity[2, 1, 3], rtol=0, atol=1e-6)
    assert field(x[:, :0]).shape == (3, 0, 5, 2)


def test_a_linear_field_has_any_number_of_dimensions():
    matrix = torch.randn(3, 3, generator=seeded(2))
    rows = tuple(map(tuple, matrix.tolist()))
    field, x = (
        make_field(field_spec("linear", matrix=rows, normalise="region_rms"), seeded(0)),
        points(7, 3),
    )
    for place, velocity in zip(x, field(x), strict=True):
        torch.testing.assert_close(velocity, field.alpha * (matrix @ place))
    assert field(region_grid(1.5, 3)).square().sum(1).mean() == pytest.approx(1)


@pytest.mark.parametrize(
    ("kind", "alpha"),
    [
        ("limit_cycle", 0.7585),
        ("double_limit_cycle", 1.0536),
        ("van_der_pol", 0.8332),
        ("duffing", 1.1565),
        ("snowman", 0.8949),
    ],
)
def test_the_factor_that_gives_the_region_unit_speed(kind: str, alpha: float):
    assert raw_field(kind, normalise="region_rms").alpha == pytest.approx(alpha, abs=5e-5)


@pytest.mark.parametrize("kind", SIX)
@pytest.mark.parametrize("radius", [1.5, 0.7])
def test_region_rms_sets_the_mean_square_speed_over_the_region(kind: str, radius: float):
    field = raw_field(kind, normalise="region_rms", speed=1.3, region_radius=radius)
    assert field(region_grid(radius, 2)).square().sum(1).mean().sqrt() == pytest.approx(1.3)


@pytest.mark.parametrize("kind", SIX)
def test_box_max_sets_the_greatest_speed_of_the_box(kind: str):
    field, steps = raw_field(kind, normalise="box_max", speed=2.0), torch.linspace(-2, 2, 40)
    speeds = [field(torch.stack([x, y])).norm() for x in steps for y in steps]
    assert max(speeds) == pytest.approx(2.0)


def test_normalise_none_keeps_the_speed():
    assert raw_field("duffing", normalise="none", speed=5.0).alpha == 1


def test_the_region_has_31_points_per_axis_within_its_radius():
    grid = region_grid(1.5, 2)
    assert grid.shape == (709, 2)
    assert grid.norm(dim=1).max() == pytest.approx(1.5)
    for axis in grid.T:
        torch.testing.assert_close(axis.unique(), torch.linspace(-1.5, 1.5, 31), rtol=0, atol=1e-6)
    assert len(grid.unique(dim=0)) == 709
    assert region_grid(0.3, 2).shape == (709, 2)
    assert region_grid(1.5, 1).shape == (31, 1)


def test_a_region_of_more_dimensions_is_an_evenly_filled_ball():
    grid = region_grid(2.0, 3)
    radius = grid.norm(dim=1)
    assert grid.shape == (2048, 3)
    assert radius.max() <= 2
    assert radius.mean() == pytest.approx(2 * 3 / 4, abs=0.01)
    assert grid.mean(0).abs().max() < 0.01
    torch.testing.assert_close(grid.T @ grid / 2048, torch.eye(3) * 4 / 5, rtol=0, atol=0.02)
    assert torch.equal(grid, region_grid(2.0, 3))


def test_the_box_has_40_points_per_axis():
    assert box_grid(2).shape == (1600, 2)
    assert (box_grid(2).min(), box_grid(2).max()) == (-2, 2)
    assert box_grid(3).shape == (2048, 3)
    assert box_grid(3).abs().max() <= 2


def test_the_same_seed_draws_the_same_field():
    single, same, other = (
        make_field(field_spec("multi_attractor"), seeded(seed)) for seed in (3, 3, 4)
    )
    assert torch.equal(single.table, same.table)
    assert (single.table - other.table).abs().max() > 0.1


@pytest.mark.parametrize("kind", [*KINDS, "mine"])
def test_a_field_is_restored_from_its_stored_arrays(kind: str):
    register_field("mine")(lambda x: -3 * x)
    provided = {"linear": {"matrix": SPIRAL}, "table": {"table": wind()}}.get(kind, {})
    spec = field_spec(kind, normalise="region_rms", **provided)
    field, x = make_field(spec, seeded(8)), points(9, 2)
    assert torch.equal(restore_field(spec, field.alpha.clone(), field.table.clone())(x), field(x))
    assert torch.equal(restore_field(spec, 2 * field.alpha, field.table)(x), 2 * field(x))


def refuses(velocity: Callable[[Tensor], Any], message: str) -> None:
    register_field("my_field")(velocity)
    with pytest.raises(FieldError, match=message):
        raw_field("my_field")


def test_a_field_must_return_one_velocity_per_state():
    refuses(
        lambda x: x[:, 0],
        r"^Field 'my_field' returned shape \(4,\) for input \(4, 2\): return one velocity per "
        r"state, shape \(4, 2\)\.$",
    )
    refuses(lambda x: x.T, r"returned shape \(2, 4\) for input \(4, 2\)")


def test_a_field_returns_a_tensor():
    refuses(
        lambda x: x.tolist(),
        r"^Field 'my_field' returned a list, not a tensor: return one velocity per state, "
        r"shape \(4, 2\)\.$",
    )


def test_a_field_is_finite_on_the_whole_box():
    refuses(
        lambda x: x / x.norm(dim=1, keepdim=True),
        r"^Field 'my_field' is not finite at x = \(0\.0, 0\.0\): "
        r"return finite velocities on the whole box \[-2, 2\]\.$",
    )
    refuses(lambda x: x.clamp(min=-1.9).add(1.8).sqrt(), r"is not finite at x = \(-2\.0, -2\.0\)")


def test_a_field_computes_a_new_tensor():
    refuses(
        lambda x: x.mul_(-1), r"^Field 'my_field' changed its argument: compute a new tensor\.$"
    )


def test_a_field_that_is_zero_has_no_factor():
    with pytest.raises(
        FieldError,
        match=r"^Field 'linear' is zero wherever region_rms looks, so no factor gives it speed 1: "
        r"set active_dynamics\.env\.field\.normalise to none\.$",
    ):
        raw_field("linear", matrix=STILL, normalise="region_rms")
    assert raw_field("linear", matrix=STILL)(points(4, 2)).abs().max() == 0


def test_a_registered_field_may_return_another_dtype():
    register_field("my_field")(lambda x: -x.double())
    assert raw_field("my_field")(points(4, 2)).dtype == torch.float32
