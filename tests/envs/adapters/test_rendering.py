"""Pictures show the state: shapes by hand, and what changes when an agent moves."""

import gymnasium
import numpy as np

from quatrain.envs.adapters import rendering

RED = (200, 0, 0)


def where(picture: np.ndarray, color: tuple[int, int, int]) -> np.ndarray:
    """Returns (x, y) of the pixels of a colour."""
    return np.argwhere((picture == color).all(2))[:, ::-1]


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


def test_the_grids_agent_walls_and_goal_are_where_the_world_has_them():
    env = gymnasium.make(
        "quatrain/Grid-v0", render_mode="rgb_array", layout="S..\nXX.\n..G", start="layout"
    )
    env.reset(seed=0)
    size = rendering.cell_size(3, 3)
    for action, (x, y) in ((1, (1, 0)), (1, (2, 0)), (2, (2, 1))):
        env.step(action)
        picture = env.render()
        agent = where(picture, rendering.AGENTS[0]).mean(0)
        np.testing.assert_allclose(agent, [(x + 0.5) * size, (y + 0.5) * size], atol=1)
        assert tuple(picture[size // 2 + size, size // 2]) == rendering.WALL
        assert tuple(picture[-size // 2, -size // 2]) == rendering.GOAL


def test_a_one_way_door_is_a_bar_in_the_cell_it_closes():
    env = gymnasium.make(
        "quatrain/Grid-v0", render_mode="rgb_array", layout="S,DR,\n,,", start="layout"
    )
    env.reset(seed=0)
    size = rendering.cell_size(2, 3)
    bar = where(env.render(), rendering.ITEMS[2]).mean(0)
    np.testing.assert_allclose(bar, [2 * size + 0.08 * size, 0.5 * size], atol=1.5)


def test_hunters_and_items_are_where_the_world_has_them():
    env = gymnasium.make(
        "quatrain/TreasureHunt-v0",
        render_mode="rgb_array",
        layout="#####\n#A-1#\n#####",
        vision_radius=1,
        spawn_probability=0.0,
    )
    env.reset(seed=0)
    size = rendering.cell_size(3, 5)
    gem = where(env.render(), rendering.ITEMS[0])
    np.testing.assert_allclose(gem.mean(0), [3.5 * size, 1.5 * size], atol=1)
    env.step(3)
    env.step(3)
    picture = env.render()
    assert not len(where(picture, rendering.ITEMS[0]))
    hunter = where(picture, rendering.AGENTS[0]).mean(0)
    np.testing.assert_allclose(hunter, [3.5 * size, 1.5 * size], atol=1)


def test_a_colony_grows_on_its_plate_and_its_last_picture_is_of_the_ended_episode():
    env = gymnasium.make(
        "quatrain/Colony-v0", render_mode="rgb_array", plates="fixed", n0_min=9, n0_max=9
    )
    env.reset(seed=1)
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
    env = gymnasium.make("quatrain/VectorField-v0", render_mode="rgb_array")
    _, info = env.reset(seed=0)
    env.step(np.zeros(2, np.float32))
    *_, info = env.step(np.zeros(2, np.float32))
    state = where(env.render(), rendering.AGENTS[0]).mean(0)
    expected = 300 + 100 * info["state"] * [1, -1]
    np.testing.assert_allclose(state, expected, atol=1)


def test_fields_of_other_dimensions_are_drawn_too():
    for matrix in ([[-1.0]], np.diag([-1.0, -1.0, -2.0]).tolist()):
        field = {"kind": "linear", "matrix": matrix}
        env = gymnasium.make("quatrain/VectorField-v0", render_mode="rgb_array", field=field)
        env.reset(seed=0)
        assert len(where(env.render(), rendering.AGENTS[0]))
