"""Pictures show the state, and what changes when an agent moves."""

from typing import Any

import gymnasium
import numpy as np

from quatrain.envs import drawing


def where(picture: np.ndarray, color: tuple[int, int, int]) -> np.ndarray:
    """Returns (x, y) of the pixels of a colour."""
    return np.argwhere((picture == color).all(2))[:, ::-1]


def middle(env: gymnasium.Env, color: tuple[int, int, int]) -> np.ndarray:
    return where(env.render(), color).mean(0)


def begun(name: str, seed: int = 0, **settings: Any) -> gymnasium.Env:
    env = gymnasium.make(
        f"quatrain.envs.adapters:quatrain/{name}-v0", render_mode="rgb_array", **settings
    )
    env.reset(seed=seed)
    return env


def test_the_grids_agent_walls_goal_and_doors_are_where_the_world_has_them():
    env, size = begun("Grid", layout="S..\nXX.\n..G", start="layout"), drawing.cell_size(3, 3)
    for action, (x, y) in ((1, (1, 0)), (1, (2, 0)), (2, (2, 1))):
        env.step(action)
        agent = middle(env, drawing.AGENTS[0])
        np.testing.assert_allclose(agent, [(x + 0.5) * size, (y + 0.5) * size], atol=1)
        picture = env.render()
        assert tuple(picture[size // 2 + size, size // 2]) == drawing.WALL
        assert tuple(picture[-size // 2, -size // 2]) == drawing.GOAL
    # A one-way door is a bar in the cell that it closes.
    env, size = begun("Grid", layout="S,DR,\n,,", start="layout"), drawing.cell_size(2, 3)
    bar = middle(env, drawing.DOOR)
    np.testing.assert_allclose(bar, [2 * size + 0.08 * size, 0.5 * size], atol=1.5)


def test_hunters_and_items_are_where_the_world_has_them():
    env = begun(
        "TreasureHunt", layout="#####\n#A-1#\n#####", vision_radius=1, spawn_probability=0.0
    )
    place = np.array([3.5, 1.5]) * drawing.cell_size(3, 5)
    np.testing.assert_allclose(middle(env, drawing.GOOD[0]), place, atol=1)
    # A map replaces the sizes of the defaults; values are those of the defaults.
    assert [env.step(3)[1] for _ in range(3)] == [0.0, 10.0, -1.0]
    assert not len(where(env.render(), drawing.GOOD[0]))
    np.testing.assert_allclose(middle(env, drawing.AGENTS[0]), place, atol=1)


def test_a_colony_grows_on_its_plate():
    env = begun("Colony", seed=1, plates="fixed", n0_min=9, n0_max=9)
    first = env.render()
    assert len(where(first, drawing.GOAL))
    plate = first[0, :-20].astype(int).sum(1)
    assert (np.diff(plate) <= 0).all()
    steady = np.array([0.5, 9.0, 0.5, 0.5, 0.0], np.float32)
    env.step(steady)
    assert len(where(env.render(), drawing.NEW_CELL))


def test_a_state_is_where_the_plane_has_it():
    env = begun("VectorField")
    env.step(np.zeros(2, np.float32))
    *_, info = env.step(np.zeros(2, np.float32))
    expected = 300 + 100 * info["state"] * [1, -1]
    np.testing.assert_allclose(middle(env, drawing.AGENTS[0]), expected, atol=1)


def test_items_of_different_kinds_look_different():
    values = (10.0, -10.0, 5.0, -1.0)
    items = np.array([[1, 2, 3, 4]])
    picture = drawing.draw_treasure_hunt(["...."], values, items, np.zeros((0, 2), int))
    size = drawing.cell_size(1, 4)
    middles = picture[size // 2, size // 2 :: size]
    assert len(np.unique(middles, axis=0)) == len(values)
