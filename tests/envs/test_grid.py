"""The dynamics as tables, what is observed, and the pure reset and step."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quatrain.envs.grid.catalogue import named_layout
from quatrain.envs.grid.dynamics import draw_frequencies, make_grid, observe, reset, step
from quatrain.envs.grid.layouts import MOVES, Door, free_cells, parse_layout, reverse
from tests.conftest import params_with
from tests.envs.grid_maps import MAPS

# States 0 1 2 / 3 . 4: the goal is state 2, the start is state 3.
SMALL = parse_layout("..G\nSX.", "small")
UP, RIGHT, DOWN, LEFT = range(4)


def plain_next_state(layout):
    """Computes the table cell by cell."""
    height, width = layout.walls.shape
    cells = [(x, y) for y in range(height) for x in range(width) if not layout.walls[y, x]]
    doors = set(layout.doors)
    table = []
    for x, y in cells:
        row = []
        for action, (dx, dy) in enumerate(MOVES):
            target = (x + dx, y + dy)
            blocked = (*target, reverse(action)) in doors
            row.append(cells.index((x, y) if target not in cells or blocked else target))
        table.append(row)
    return table


def env_with(**changes):
    return params_with({"allo": {"env": changes}}).allo.env


def observed(layout, **changes):
    env = env_with(**changes)
    return observe(env, make_grid(layout), draw_frequencies(env, 1))


def test_states_are_numbered_row_by_row():
    grid = make_grid(SMALL)
    np.testing.assert_array_equal(grid.coords, [[0, 0], [1, 0], [2, 0], [0, 1], [2, 1]])
    assert (int(grid.start), int(grid.goal)) == (3, 2)
    assert {table.dtype for table in grid[1:]} == {np.dtype("int32")}
    unmarked = make_grid(parse_layout("..\n.X\n..", "map"))
    assert (int(unmarked.start), int(unmarked.goal)) == (-1, -1)


@given(MAPS, st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=25)
def test_the_table_follows_the_rules_cell_by_cell(rows, random):
    layout = parse_layout("\n".join(rows), "map")
    free = set(free_cells(layout))
    ways = random.choice([(RIGHT, DOWN), (LEFT, UP), (RIGHT, UP)])
    doors = [
        Door(x, y, action)
        for x, y in sorted(free)
        for action in ways
        if (x + MOVES[action][0], y + MOVES[action][1]) in free and random.random() < 0.25
    ]
    layout = layout._replace(doors=tuple(doors))
    np.testing.assert_array_equal(make_grid(layout).next_state, plain_next_state(layout))


@pytest.mark.parametrize(
    ("observation", "in_room4", "in_oblong"),
    [
        # Cell (1, 1) of 13 x 13 cells, and cell (3, 1) of 5 x 2 cells, where x and y share one
        # scale, except in `paper`, which has y first.
        ("centred", (-10 / 13, -10 / 13), (2 / 5, 1 / 5)),
        ("corner", (-0.84615, -0.84615), (1 / 5, 0.0)),
        ("paper", (-0.42308, -0.42308), (1 / 2 - 0.5, 3 / 5 - 0.5)),
    ],
)
def test_coordinates_are_observed_as_designed(observation, in_room4, in_oblong):
    inputs = observed(named_layout("room4"), observation=observation)
    assert (inputs.shape, inputs.dtype) == ((104, 2), np.float32)
    np.testing.assert_allclose(inputs[0], in_room4, atol=5e-6)
    oblong = observed(parse_layout("XX.XX\nXXX.X", "map"), observation=observation)
    np.testing.assert_allclose(oblong[1], in_oblong, atol=1e-7)


def test_fourier_inputs_follow_their_formula_at_frequencies_of_scale_and_seed():
    fourier = {"observation": "fourier", "fourier": {"scale": 6.0, "count": 4000}}
    inputs = observed(SMALL, **fourier)
    first, again, other = (draw_frequencies(env_with(**fourier), seed) for seed in (1, 1, 2))
    assert (inputs.shape, inputs.dtype) == ((5, 2 + 2 * 4000), np.float32)
    for state, (x, y) in enumerate(observed(SMALL, observation="centred")):
        phases = [fx * x + fy * y for fx, fy in first]
        expected = [x, y, *np.sin(phases), *np.cos(phases)]
        np.testing.assert_allclose(inputs[state], expected, atol=1e-5)
    np.testing.assert_allclose(first.std(), 6.0, rtol=0.05)
    np.testing.assert_allclose(first.mean(), 0.0, atol=0.5)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@jax.jit
def resets(grid):
    """Draws 4000 states without and with the map's start."""
    keys = jax.random.split(jax.random.key(0), 4000)
    return [jax.vmap(partial(reset, grid=grid, uniform=uniform))(keys) for uniform in (False, True)]


@pytest.mark.parametrize(
    ("text", "at_start", "uniform"),
    [
        ("..G\nSX.", [3], [0, 1, 3, 4]),
        ("S..\n.XG", [0], [0, 1, 2, 3]),
        ("G..\nX..", [1, 2, 3, 4], [1, 2, 3, 4]),
        ("...\nX..", [0, 1, 2, 3, 4], [0, 1, 2, 3, 4]),
    ],
)
def test_a_reset_finds_the_start_or_every_state_but_the_goal_equally_often(text, at_start, uniform):
    for drawn, states in zip(
        resets(make_grid(parse_layout(text, "map"))), (at_start, uniform), strict=True
    ):
        counts = np.bincount(drawn, minlength=5)
        assert np.flatnonzero(counts).tolist() == states
        np.testing.assert_allclose(counts[states], 4000 / len(states), atol=4 * 1000**0.5)


@pytest.mark.parametrize(
    ("text", "state", "action", "elapsed", "limit", "ends"),
    [
        ("..G\nSX.", 1, RIGHT, 0, 7, (True, False)),
        ("..G\nSX.", 1, RIGHT, 6, 7, (True, False)),  # goal and limit on one step
        ("..G\nSX.", 1, LEFT, 5, 7, (False, False)),
        ("..G\nSX.", 1, LEFT, 6, 7, (False, True)),
        ("..G\nSX.", 0, UP, 6, 7, (False, True)),  # a bump is a step
        ("...\nSX.", 1, RIGHT, 0, 7, (False, False)),
        ("...\nSX.", 3, LEFT, 0, 7, (False, False)),
    ],
)
def test_the_goal_terminates_and_the_step_limit_truncates(
    text, state, action, elapsed, limit, ends
):
    grid = make_grid(parse_layout(text, "map"))
    _, *flags = step(grid, *map(jnp.int32, (state, elapsed, action)), limit)
    assert tuple(map(bool, flags)) == ends
