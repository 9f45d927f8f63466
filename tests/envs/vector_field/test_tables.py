"""Fields at the nodes of a grid: read at and between them, drawn with their law, refused where they
do not fit; and names of fields.
"""

import re
from typing import Any

import numpy as np
import pytest
import torch

from quatrain.envs.vector_field import kinds
from quatrain.envs.vector_field.config import Table, check_table
from quatrain.envs.vector_field.fields import gaussian_process
from quatrain.envs.vector_field.kinds import FieldError, register_field
from quatrain.section import InputArrays
from tests.envs.vector_field.worlds import field_env, points, raw_field, wind
from tests.torch_numbers import seeded

EVEN = np.linspace(-2, 2, 5)


def plain(table: Table, x: float, y: float) -> np.ndarray:
    """Interpolates cell by cell; outside, uses the value at the border."""
    places = []
    for value, axis in zip((x, y), table.axes, strict=True):
        place = min(max((value - axis[0]) / (axis[1] - axis[0]), 0), len(axis) - 1)
        cell = min(int(place), len(axis) - 2)
        places.append((cell, place - cell))
    (i, u), (j, v) = places
    corner = lambda a, b: np.array(table.vectors[i + a][j + b])  # noqa: E731
    return (1 - u) * ((1 - v) * corner(0, 0) + v * corner(0, 1)) + u * (
        (1 - v) * corner(1, 0) + v * corner(1, 1)
    )


def file_table(file: InputArrays) -> Table:
    table = field_env("table", table_file=file).field.table
    assert table is not None
    return table


def with_one(value: float) -> np.ndarray:
    vectors = np.ones((5, 5, 2))
    vectors[3, 4, 1] = value
    return vectors


def test_a_table_is_interpolated_bilinearly_and_constant_beyond_its_border():
    file = wind(vectors=np.random.default_rng(0).normal(size=(3, 5, 2)))
    table = file_table(file)
    nodes = torch.cartesian_prod(*map(torch.tensor, table.axes))
    x = torch.cat([points(200, 2, reach=8.0), nodes])
    outside = (x[:, 0].abs() > 2) | (x[:, 1] < -2) | (x[:, 1] > 6)
    assert 20 < outside.sum() < 180
    for place, velocity in zip(x.tolist(), raw_field("table", table_file=file)(x), strict=True):
        np.testing.assert_allclose(velocity, plain(table, *place), atol=1e-5)


@pytest.mark.parametrize("length", [0.5, 1.0])
def test_a_drawn_field_has_the_specified_covariance(length: float):
    """Checks all pairs of nodes within five standard errors; components are independent."""
    s, generator, count = torch.linspace(-1, 1, 3, dtype=torch.float64), seeded(5), 4000
    fields = [gaussian_process(s, length, 0.5, generator) for _ in range(count)]
    drawn = torch.stack(fields).flatten(2)
    x = torch.cartesian_prod(s, s)
    expected = 0.5 * torch.exp(-torch.cdist(x, x).square() / (2 * length**2))
    single, other = drawn.unbind(1)
    near = 5 * 0.5 / count**0.5
    for component in (single, other):
        assert (component.T @ component / count - expected).abs().max() < 2**0.5 * near
    assert (single.T @ other / count).abs().max() < near
    assert drawn.mean(0).abs().max() < 5 * (0.5 / count) ** 0.5


def test_arrows_of_a_multi_attractor_have_one_length_but_for_the_pull_to_the_middle():
    parameters = {"nodes": 7.0, "speed": 0.3, "w_attractor": 0.2}
    field = raw_field("multi_attractor", parameters=parameters)
    s = torch.linspace(-2, 2, 7)
    for i, x1 in enumerate(s):
        for j, x2 in enumerate(s):
            x = torch.stack([x1, x2])
            velocity = field(x)
            torch.testing.assert_close(velocity, field.table[0, :, j, i], rtol=0, atol=1e-6)
            assert (velocity + 0.2 * x.norm() * x).norm() == pytest.approx(0.3, abs=1e-5)


UNEVEN = "axis_1 is not evenly spaced (steps 0.1 to 3.6): resample the field on a regular grid."
NARROW = "covers [-1, 2], the evaluation region needs [-1.5, 1.5]: widen the grid or lower "


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ([EVEN, [-2, -1.9, -1.6, 2]], UNEVEN),
        ([[-2, 2, 0], EVEN], "axis_0 is not increasing (2, then 0): sort the grid."),
        ([[0], EVEN], "axis_0 has shape (1,), expected (n,) with n at least 2: give a grid."),
        ([EVEN, [-1, 0, 1, 2]], f"{NARROW}active_dynamics.env.region_radius."),
        ([EVEN, [-2, -1, 0, 1]], "covers [-2, 1], the evaluation"),
        ([EVEN, [-np.inf, -2, 0, 2]], "axis_1 is -inf at node 0: give coordinates from -1e+06 to"),
        ([[-2, np.nan, 2], EVEN], "axis_0 is nan at node 1: give"),
        ([EVEN, [-2, 0, 2e39]], "axis_1 is 2e+39 at node 2: give"),
    ],
)
def test_a_grid_that_does_not_fit_is_refused(axes: Any, message: str):
    file = wind([np.array(axis) for axis in axes], np.ones((*map(len, axes), 2)))
    with pytest.raises(FieldError, match=f"^wind.npz {re.escape(message)}"):
        check_table(file_table(file), 1.5)


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (np.ones((5, 5, 3)), "has shape (5, 5, 3), expected (5, 5, 2): one 2-vector per "),
        (with_one(np.nan), "is not finite at node (3, 4): give a finite vector at each node."),
        (with_one(1e39), "is 1e+39 at node (3, 4): give numbers from -1e+06 to 1e+06."),
    ],
)
def test_vectors_that_do_not_fit_are_refused(vectors: np.ndarray, message: str):
    with pytest.raises(FieldError, match=f"^wind.npz vectors {re.escape(message)}"):
        check_table(file_table(wind([EVEN, EVEN], vectors)), 1.5)


@pytest.mark.parametrize(
    "axes",
    [
        [np.linspace(-1.5, 1.5, 4, dtype=np.float32)] * 2,  # just covers the region
        [np.arange(-2, 3), np.arange(-3, 5)],
        [np.linspace(-2, 2, 1001, dtype=np.float32), np.array([-2.0, 2.0])],
    ],
)
def test_tables_may_just_cover_the_region_and_hold_integers_or_rounded_axes(axes: Any):
    file = wind(axes, np.full((*map(len, axes), 2), 3))
    check_table(file_table(file), 1.5)
    assert raw_field("table", table_file=file)(torch.zeros(2)).tolist() == [3, 3]


# Names of fields.


def test_a_misspelt_kind_and_the_name_of_a_built_in_one_are_refused():
    message = r"^Field 'limitcycle' is unknown: did you mean 'limit_cycle'\? Known: .*\.$"
    with pytest.raises(FieldError, match=message):
        raw_field("limitcycle")
    assert "did you mean 'snowman'?" in kinds.unknown_kind("?snow?")
    with pytest.raises(FieldError, match=r"^Field 'duffing' cannot be registered: "):
        register_field("duffing")


def test_a_registration_is_a_kind_that_is_proposed_too_and_replaces_earlier_ones():
    """A notebook cell may run again."""
    x = torch.ones(1, 2)
    register_field("my_field")(lambda x: -x)
    shrinking = register_field("my_field")(lambda x: 3 * x)
    assert shrinking(x).tolist() == raw_field("my_field")(x).tolist() == [[3, 3]]
    assert kinds.known_kinds() == (*kinds.KINDS, "my_field")
    assert "did you mean 'my_field'?" in kinds.unknown_kind("myfield")
