"""The dynamics as tables, what is observed, and the pure reset and step."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quatrain.envs.grid.catalogue import named_layout
from quatrain.envs.grid.dynamics import (
    fourier_frequencies,
    fourier_inputs,
    make_grid,
    observe,
    reset,
    step,
)
from quatrain.envs.grid.layouts import (
    DOWN,
    LEFT,
    MOVES,
    RIGHT,
    UP,
    parse_layout,
    reverse,
    with_random_doors,
)

# States 0 1 2 / 3 . 4: the goal is state 2, the start is state 3.
SMALL = parse_layout("..G\nSX.", "small")


def plain_next_state(layout):
    """The rules told cell by cell."""
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


maps = (
    st.integers(1, 7)
    .flatmap(
        lambda width: st.lists(
            st.text("X.", min_size=width, max_size=width), min_size=1, max_size=5
        )
    )
    .filter(lambda rows: "".join(rows).count(".") >= 2)
)


# Tables.


def test_states_are_numbered_row_by_row():
    grid = make_grid(SMALL)
    np.testing.assert_array_equal(grid.coords, [[0, 0], [1, 0], [2, 0], [0, 1], [2, 1]])
    assert (int(grid.start), int(grid.goal)) == (3, 2)
    assert {table.dtype for table in grid[1:]} == {np.dtype("int32")}


def test_a_map_without_marks_has_neither_start_nor_goal():
    grid = make_grid(parse_layout("..\n.X\n..", "map"))
    assert (int(grid.start), int(grid.goal)) == (-1, -1)


def test_walls_and_borders_leave_the_state_unchanged():
    np.testing.assert_array_equal(
        make_grid(SMALL).next_state,
        [[0, 1, 3, 0], [1, 2, 1, 0], [2, 2, 4, 1], [0, 3, 3, 3], [2, 4, 4, 4]],
    )


def test_a_door_blocks_only_the_way_back():
    plain, door = (
        make_grid(parse_layout("...\n...", "m")),
        make_grid(parse_layout(".,DR,.\n.,.,.", "m")),
    )
    differs = np.argwhere(plain.next_state != door.next_state)
    np.testing.assert_array_equal(differs, [[2, LEFT]])
    assert door.next_state[2, LEFT] == 2
    assert door.next_state[1, RIGHT] == 2


@given(maps, st.integers(0, 2**32 - 1), st.floats(0, 1))
@settings(deadline=None)
def test_the_table_follows_the_rules_told_cell_by_cell(rows, door_seed, share):
    layout = parse_layout("\n".join(rows), "map")
    moves = np.sum(
        make_grid(layout).next_state != np.arange(len(make_grid(layout).coords))[:, None]
    )
    layout = with_random_doors(layout, int(share * moves / 2), door_seed)
    np.testing.assert_array_equal(make_grid(layout).next_state, plain_next_state(layout))


@given(maps)
@settings(deadline=None)
def test_without_doors_every_move_can_be_undone(rows):
    next_state = make_grid(parse_layout("\n".join(rows), "map")).next_state
    for action in (UP, RIGHT, DOWN, LEFT):
        moved = np.flatnonzero(next_state[:, action] != np.arange(len(next_state)))
        np.testing.assert_array_equal(next_state[next_state[moved, action], reverse(action)], moved)


def test_a_named_map_with_random_doors_follows_the_rules_too():
    layout = with_random_doors(named_layout("room16"), 30, 7)
    np.testing.assert_array_equal(make_grid(layout).next_state, plain_next_state(layout))


# Observations.


@pytest.mark.parametrize(
    ("observation", "expected"),
    [
        ("centred", (-10 / 13, -10 / 13)),
        ("corner", (-0.84615, -0.84615)),
        ("paper", (-0.42308, -0.42308)),
    ],
)
def test_cell_1_1_of_room4_is_seen_as_designed(observation, expected):
    inputs = observe(make_grid(named_layout("room4")), observation)
    assert (inputs.shape, inputs.dtype) == ((104, 2), np.float32)
    np.testing.assert_allclose(inputs[0], expected, atol=5e-6)


@pytest.mark.parametrize(
    ("observation", "expected"),
    [
        # Cell (3, 1) of 5 x 2 cells: x and y share one scale, except in `paper`, which has y first.
        ("centred", (2 / 5, 1 / 5)),
        ("corner", (1 / 5, 0.0)),
        ("paper", (1 / 2 - 0.5, 3 / 5 - 0.5)),
    ],
)
def test_a_map_that_is_not_square_keeps_x_and_y_apart(observation, expected):
    inputs = observe(make_grid(parse_layout("XX.XX\nXXX.X", "map")), observation)
    np.testing.assert_allclose(inputs[1], expected, atol=1e-7)


def test_centred_is_symmetric_and_corner_is_not():
    grid = make_grid(named_layout("room4_symmetric"))
    centred, corner = observe(grid, "centred"), observe(grid, "corner")
    np.testing.assert_array_equal(centred, -centred[::-1])
    np.testing.assert_allclose((corner.min(), corner.max()), (-0.846, 0.692), atol=5e-4)


def test_onehot_sees_the_state_itself():
    np.testing.assert_array_equal(observe(make_grid(SMALL), "onehot"), np.eye(5, dtype=np.float32))


@pytest.mark.parametrize("observation", ["fourier", "pixels"])
def test_an_unknown_observation_is_refused(observation):
    message = (
        f"unknown observation '{observation}'; known: centred, corner, paper, onehot; "
        "for fourier call fourier_inputs"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        observe(make_grid(SMALL), observation)


def test_fourier_inputs_follow_their_formula():
    grid, frequencies = make_grid(SMALL), fourier_frequencies(6.0, 3, seed=1)
    inputs = fourier_inputs(grid, frequencies)
    assert (inputs.shape, inputs.dtype) == ((5, 2 + 2 * 3), np.float32)
    for state, (x, y) in enumerate(observe(grid, "centred")):
        phases = [fx * x + fy * y for fx, fy in frequencies]
        expected = [x, y, *np.sin(phases), *np.cos(phases)]
        np.testing.assert_allclose(inputs[state], expected, atol=1e-5)


def test_fourier_frequencies_follow_scale_and_seed():
    frequencies = fourier_frequencies(6.0, 4000, seed=1)
    assert (frequencies.shape, frequencies.dtype) == ((4000, 2), np.float32)
    np.testing.assert_allclose(frequencies.std(), 6.0, rtol=0.05)
    np.testing.assert_allclose(frequencies.mean(), 0.0, atol=0.5)
    np.testing.assert_array_equal(frequencies, fourier_frequencies(6.0, 4000, seed=1))
    assert not np.array_equal(frequencies, fourier_frequencies(6.0, 4000, seed=2))


# Reset and step.


def resets(layout, uniform, count):
    keys = jax.random.split(jax.random.key(0), count)
    return np.asarray(jax.jit(jax.vmap(lambda key: reset(key, make_grid(layout), uniform)))(keys))


def test_a_uniform_reset_finds_every_state_but_the_goal_equally_often():
    counts = np.bincount(resets(SMALL, uniform=True, count=4000), minlength=5)
    assert counts[2] == 0
    np.testing.assert_allclose(counts[[0, 1, 3, 4]], 1000, atol=110)  # four standard deviations


def test_without_a_goal_every_state_is_found():
    counts = np.bincount(
        resets(parse_layout("...\nXX.\nXX.", "map"), uniform=False, count=5000), minlength=5
    )
    np.testing.assert_allclose(counts, 1000, atol=115)


@pytest.mark.parametrize(("text", "start"), [("..G\nSX.", 3), ("S..\n..G", 0)])
def test_a_reset_to_the_start_goes_there_always(text, start):
    assert set(resets(parse_layout(text, "map"), uniform=False, count=30)) == {start}


@pytest.mark.parametrize(("text", "state"), [("G.", 1), (".G", 0)])
def test_two_cells_with_a_goal_leave_one_to_begin_from(text, state):
    assert set(resets(parse_layout(text, "map"), uniform=True, count=30)) == {state}


def test_steps_of_many_walkers_at_once_follow_the_table():
    grid = make_grid(SMALL)
    state, action = (jnp.asarray(each.ravel(), jnp.int32) for each in np.indices((5, 4)))
    moved = jax.jit(jax.vmap(lambda s, a: step(grid, s, jnp.int32(0), a, 50)))(state, action)
    np.testing.assert_array_equal(moved.next_state, grid.next_state.ravel())
    np.testing.assert_array_equal(moved.terminated, grid.next_state.ravel() == 2)
    assert not moved.truncated.any()


@pytest.mark.parametrize(
    ("state", "action", "elapsed", "terminated", "truncated"),
    [
        (1, RIGHT, 0, True, False),
        (1, RIGHT, 6, True, False),  # goal and limit on one step
        (1, LEFT, 5, False, False),
        (1, LEFT, 6, False, True),
        (0, UP, 6, False, True),  # a bump is a step
    ],
)
def test_the_goal_terminates_and_the_step_limit_truncates(
    state, action, elapsed, terminated, truncated
):
    moved = step(make_grid(SMALL), *map(jnp.int32, (state, elapsed, action)), max_episode_steps=7)
    assert (bool(moved.terminated), bool(moved.truncated)) == (terminated, truncated)


def test_an_episode_of_one_step_is_truncated_at_once():
    moved = step(make_grid(SMALL), *map(jnp.int32, (0, 0, RIGHT)), max_episode_steps=1)
    assert bool(moved.truncated)


def test_without_a_goal_nothing_terminates():
    grid = make_grid(parse_layout("..\n.X", "map"))
    for state in range(3):
        for action in (UP, RIGHT, DOWN, LEFT):
            assert not step(
                grid, *map(jnp.int32, (state, 0, action)), max_episode_steps=9
            ).terminated


def test_a_grid_may_be_an_argument_of_a_compiled_program():
    compiled = jax.jit(step, static_argnames="max_episode_steps")
    moved = compiled(make_grid(SMALL), *map(jnp.int32, (4, 0, UP)), max_episode_steps=3)
    assert (int(moved.next_state), bool(moved.terminated)) == (2, True)
