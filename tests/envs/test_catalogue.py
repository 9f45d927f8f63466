"""Generators of rooms and mazes, and the maps that the project ships."""

from hypothesis import given, settings
from hypothesis import strategies as st

from quatrain.envs.grid.catalogue import CATALOGUE, maze, named_layout, rooms
from quatrain.envs.grid.layouts import count_states, keep_components
from tests.envs.grid_maps import layout_hash

# Name -> S and the hash of the rows: a changed generator would change all maps of that name.
EXPECTED = {
    "room1": (225, "6620ebb81e0d"),
    "room4": (104, "cfabaf6abe68"),
    "room4_symmetric": (104, "112dd4eb6c5b"),
    "room16": (274, "d318c159c98b"),
    "room32": (549, "f18780530111"),
    "room64": (1099, "d18601b3def5"),
    "maze9": (31, "03ca7a69a146"),
    "maze19": (161, "40784eb496fa"),
    "maze33": (514, "0dc0f3dcc22c"),
    "empty": (72, "515df2203013"),
    "obstacles": (62, "29fef8ddc309"),
    "labyrinth": (35, "4c2d6e1a27de"),
    "spiral": (28, "93c004fba236"),
}


MARKS = {"empty": ((0, 0), (8, 7)), "obstacles": ((0, 0), (8, 7))}
MARKS |= {"labyrinth": ((0, 0), (7, 7)), "spiral": ((0, 7), (3, 3))}


def test_named_layouts_are_connected_and_never_change():
    assert set(EXPECTED) == set(CATALOGUE)
    for name, expected in EXPECTED.items():
        layout = keep_components(named_layout(name), "auto")
        assert layout.name == name
        assert (count_states(layout), layout_hash(layout)) == expected, name
        assert (layout.start, layout.goal) == MARKS.get(name, (None, None))


@given(*map(st.integers, (1, 1, 1, 2, 0), (4, 5, 3, 6, 99)), st.data())
@settings(max_examples=10, deadline=None)
def test_rooms_are_connected_by_a_tree_and_the_extra_doors(rows, cols, height, width, seed, data):
    tree = rows * cols - 1
    pairs = rows * (cols - 1) + cols * (rows - 1)
    extra = data.draw(st.integers(0, pairs - tree))
    layout = rooms(rows=rows, cols=cols, height=height, width=width, extra_doors=extra, seed=seed)
    assert keep_components(layout, "auto") is layout
    assert layout.walls.shape == (rows * (height + 1) + 1, cols * (width + 1) + 1)
    assert count_states(layout) == rows * cols * height * width + tree + extra


def test_the_seed_moves_openings():
    assert len({layout_hash(rooms(**ROOMS | {"seed": seed})) for seed in (0, 0, 1, 2)}) == 3


odd = st.integers(2, 7).map(lambda half: 2 * half + 1)


@given(odd, odd, st.integers(0, 99))
@settings(max_examples=8, deadline=None)
def test_a_maze_is_a_tree_over_the_odd_cells_and_braiding_opens_all_dead_ends(width, height, seed):
    tree = maze(width=width, height=height, braid=0.0, seed=seed)
    assert keep_components(tree, "auto") is tree
    assert not tree.walls[1::2, 1::2].any()
    assert tree.walls[::2, ::2].all()
    assert count_states(tree) == 2 * (width // 2) * (height // 2) - 1
    braided = maze(width=width, height=height, braid=1.0, seed=seed)
    assert keep_components(braided, "auto") is braided
    free = (~braided.walls).astype(int)
    free_neighbours = free[:-2, 1:-1] + free[2:, 1:-1] + free[1:-1, :-2] + free[1:-1, 2:]
    assert free_neighbours[::2, ::2].min() >= 2
    assert braided.walls[[0, -1]].all()
    assert braided.walls[:, [0, -1]].all()


ROOMS = {"rows": 2, "cols": 3, "height": 4, "width": 5, "extra_doors": 1, "seed": 0}
