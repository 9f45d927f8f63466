"""Pictures show the state: shapes by hand, and what changes when an agent moves."""

from typing import Any

import gymnasium
import numpy as np

from quatrain.envs.adapters import rendering

RED = (200, 0, 0)


def where(picture: np.ndarray, color: tuple[int, int, int]) -> np.ndarray:
    """Returns (x, y) of the pixels of a colour."""
    return np.argwhere((picture == color).all(2))[:, ::-1]


def middle(env: gymnasium.Env, color: tuple[int, int, int]) -> np.ndarray:
    return where(env.render(), color).mean(0)


def begun(name: str, seed: int = 0, **settings: Any) -> gymnasium.Env:
    env = gymnasium.make(f"quatrain/{name}-v0", render_mode="rgb_array", **settings)
    env.reset(seed=seed)
    return env


def test_shapes_cover_their_area_and_nothing_beyond_the_picture():
    for shape, area in (("disc", np.pi * 100), ("diamond", 200)):
        picture = rendering.Picture(np.full((40, 50, 3), rendering.PAPER, np.uint8))
        draw = getattr(picture, shape)
        draw(25, 20, 10, RED)
        pixels = where(picture.pixels, RED)
        assert abs(len(pixels) - area) < 50
        np.testing.assert_allclose(pixels.mean(0), [25, 20], atol=0.1)
        draw(-99, 300, 10, RED)
        assert len(where(picture.pixels, RED)) == len(pixels)


def test_the_grids_agent_walls_goal_and_doors_are_where_the_world_has_them():
    env, size = begun("Grid", layout="S..\nXX.\n..G", start="layout"), rendering.cell_size(3, 3)
    for action, (x, y) in ((1, (1, 0)), (1, (2, 0)), (2, (2, 1))):
        env.step(action)
        agent = middle(env, rendering.AGENTS[0])
        np.testing.assert_allclose(agent, [(x + 0.5) * size, (y + 0.5) * size], atol=1)
        picture = env.render()
        assert tuple(picture[size // 2 + size, size // 2]) == rendering.WALL
        assert tuple(picture[-size // 2, -size // 2]) == rendering.GOAL
    # A one-way door is a bar in the cell that it closes.
    env, size = begun("Grid", layout="S,DR,\n,,", start="layout"), rendering.cell_size(2, 3)
    bar = middle(env, rendering.ITEMS[2])
    np.testing.assert_allclose(bar, [2 * size + 0.08 * size, 0.5 * size], atol=1.5)


def test_hunters_and_items_are_where_the_world_has_them():
    env = begun(
        "TreasureHunt", layout="#####\n#A-1#\n#####", vision_radius=1, spawn_probability=0.0
    )
    place = np.array([3.5, 1.5]) * rendering.cell_size(3, 5)
    np.testing.assert_allclose(middle(env, rendering.ITEMS[0]), place, atol=1)
    # A map replaces the sizes of the defaults; values are those of the defaults.
    assert [env.step(3)[1] for _ in range(3)] == [0.0, 10.0, -1.0]
    assert not len(where(env.render(), rendering.ITEMS[0]))
    np.testing.assert_allclose(middle(env, rendering.AGENTS[0]), place, atol=1)


def test_a_colony_grows_on_its_plate_and_its_last_picture_is_of_the_ended_episode():
    env = begun("Colony", seed=1, plates="fixed", n0_min=9, n0_max=9)
    first = env.render()
    assert len(where(first, rendering.GOAL))
    plate = first[0, :-20].astype(int).sum(1)
    assert (np.diff(plate) <= 0).all()
    steady = np.array([0.5, 9.0, 0.5, 0.5, 0.0], np.float32)
    env.step(steady)
    assert len(where(env.render(), rendering.AGENTS[1]))
    ended = False
    while not ended:
        _, _, terminated, truncated, _ = env.step(steady)
        ended = terminated or truncated
    last = where(env.render(), rendering.AGENTS[0])
    env.reset()
    assert last[:, 0].max() > 300 > where(env.render(), rendering.AGENTS[0])[:, 0].max()


def test_a_state_is_where_the_plane_has_it():
    env = begun("VectorField")
    env.step(np.zeros(2, np.float32))
    *_, info = env.step(np.zeros(2, np.float32))
    expected = 300 + 100 * info["state"] * [1, -1]
    np.testing.assert_allclose(middle(env, rendering.AGENTS[0]), expected, atol=1)


def test_fields_of_other_dimensions_are_drawn_too():
    for matrix in ([[-1.0]], np.diag([-1.0, -1.0, -2.0]).tolist()):
        env = begun("VectorField", field={"kind": "linear", "matrix": matrix})
        assert len(where(env.render(), rendering.AGENTS[0]))
