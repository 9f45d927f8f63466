"""Rows of an array: images first, then vectors, then masks of actions; what else is refused."""

from contextlib import closing, nullcontext
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple

from quatrain.envs.host.config import HostEnv
from quatrain.envs.host.envs import HostEnvs
from quatrain.envs.host.images import find_image, image_shape
from quatrain.envs.host.masks import draw_legal, nearest_legal, read_mask
from quatrain.envs.host.rows import AgentRows
from quatrain.envs.host.spaces import describe, reader, to_action
from quatrain.errors import DataError


def pixels(*shape: int) -> Box:
    return Box(0, 255, shape, np.uint8)


@pytest.mark.parametrize(
    ("shape", "image"),
    [
        ((12, 10), (12, 10, 1)),
        ((84, 80, 3), (84, 80, 3)),
        ((4, 84, 80), (84, 80, 4)),
        ((12, 12, 12), (12, 12, 12)),
        ((4, 84, 80, 3), (84, 80, 12)),
        ((2, 3, 84, 80), (84, 80, 6)),
    ],
)
def test_an_image_is_read_by_rows_with_its_channels_last(shape: Any, image: Any):
    space = pixels(*shape)
    assert image_shape(space) == image
    value = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    row = reader("it", space)(value)
    assert row.dtype == np.uint8
    channel = {2: value, 3: value[..., 1:] if shape[0] > shape[-1] else value[1:]}
    if len(shape) == 2:
        np.testing.assert_array_equal(row.reshape(shape), channel[2])
    elif shape == (4, 84, 80):
        np.testing.assert_array_equal(row.reshape(image)[..., 1], value[1])
    elif shape == (4, 84, 80, 3):
        np.testing.assert_array_equal(row.reshape(image)[..., 3 + 2], value[1, ..., 2])
    elif shape == (2, 3, 84, 80):
        np.testing.assert_array_equal(row.reshape(image)[..., 3 + 2], value[1, 2])


@pytest.mark.parametrize(
    "space", [pixels(7, 7, 3), Box(0, 1, (84, 84)), Box(0, 254, (84, 84), np.uint8), pixels(99)]
)
def test_symbols_and_floats_are_no_images(space: Box):
    assert find_image(space) is None


@pytest.mark.parametrize(
    ("space", "wrap"),
    [
        (Dict({"a": Box(-1, 1, (2,)), "z": pixels(10, 11)}), lambda a, z: {"z": z, "a": a}),
        (Tuple([Box(-1, 1, (2,)), pixels(10, 11)]), lambda a, z: (a, z)),
    ],
)
def test_the_image_comes_first_and_all_else_behind_it(space: Any, wrap: Any):
    image = np.arange(110, dtype=np.uint8).reshape(10, 11)
    interface = describe({"agent": (space, Discrete(2))}, 9)
    row = reader("it", space)(wrap(np.float32([0.5, -0.5]), image))
    assert row.dtype == interface.observation_dtype == np.float32
    assert row.tolist() == [*range(110), 0.5, -0.5]
    assert (interface.image, interface.vector) == ((10, 11, 1), (110, 112))


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (Dict({"a": pixels(12, 12), "b": pixels(12, 12)}), "observations a and b are images"),
        (Dict({"mission": Text(9)}), "observation mission is of Text.*FilterObservation"),
    ],
)
def test_what_no_network_reads_is_refused(space: Any, message: str):
    with pytest.raises(DataError, match=message):
        describe({"agent": (space, Discrete(2))}, 9)


@pytest.mark.parametrize(
    ("space", "action", "counts"),
    [
        (MultiDiscrete([2, 3], start=[1, -5]), [1, 2], (2, 3)),
        (MultiDiscrete([[2], [3]]), [1, 2], (2, 3)),
        (MultiBinary((2, 2)), [1, 0, 0, 1], (2,) * 4),
        (Box(-1, 1, (2, 1)), np.float32([0.5, -2]), ()),
    ],
)
def test_actions_have_the_shape_of_their_space(space: Any, action: Any, counts: Any):
    interface = describe({"agent": (Box(0, 1, (1,)), space)}, 9)
    assert interface.action_counts == counts
    assert interface.action_shape == (len(action),)
    assert space.contains(to_action(space, np.array(action)))
    assert interface.saved.restored == interface


def test_draws_and_constants_are_legal():
    masks = np.array([[0, 1, 1, 0, 0], [1, 0, 0, 1, 1]])
    drawn = draw_legal((2, 3), np.random.default_rng(0), np.repeat(masks, 300, 0))
    assert (drawn[:300] == [1, 0]).all()
    assert np.unique(drawn[300:], axis=0).tolist() == [[0, 1], [0, 2]]
    assert nearest_legal((2, 3), np.array([1, 0]), masks).tolist() == [[1, 0], [0, 1]]
    assert nearest_legal((5,), np.array(4), masks).tolist() == [2, 4]


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (None, "agent has no action_mask, which it had before"),
        ([1, 0], "return 5 numbers, 1 for each legal"),
        ([1, 1, 0, 2, 0], "return 5 numbers"),
        ([0, 0, 1, 1, 1], "allows no action"),
        (([1, 1], [0, 0, 0]), "allows no action"),
    ],
)
def test_a_mask_that_allows_nothing_or_is_of_other_actions_is_refused(mask: Any, message: str):
    with pytest.raises(DataError, match=message):
        read_mask("agent", mask, (2, 3))


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_masks_of_infos_are_the_end_of_a_row(vectorization: str):
    made_by = {"kind": "gymnasium", "id": None, "import": "tests.own_envs:Doors", "kwargs": {}}
    config = HostEnv.model_validate(
        made_by | {"wrappers": [], "max_episode_steps": 9, "vectorization": vectorization}
    )
    with closing(HostEnvs(config, 2, seed=0)) as envs:
        assert envs.interface.has_mask
        for _ in range(5):
            masks = envs.obs[..., 1:]
            assert (masks.sum(-1) == 2).all()
            envs.step(masks.argmax(-1))  # a closed one raises


class TwoKinds:
    """Has agents of different spaces, of which one has a mask in its observation."""

    def observation_space(self, agent: str) -> Any:
        numbers = Box(0, 9, (3 if agent == "a" else 1,), np.float32)
        if agent == "a":
            return Dict({"observation": numbers, "action_mask": MultiBinary(2)})
        return numbers

    def action_space(self, agent: str) -> Any:
        return Discrete(2 if agent == "a" else 4)


def test_agents_of_different_sizes_are_padded_and_masked():
    env: Any = TwoKinds()
    spaces = {name: (env.observation_space(name), env.action_space(name)) for name in "ab"}
    interface = describe(spaces, 9)
    assert (interface.observation_size, interface.vector) == (3 + 4, (0, 3))
    assert interface.action_counts == (4,)
    a, b = (AgentRows(interface, env, name, has_mask=False) for name in "ab")
    observed = {"observation": np.float32([7, 8, 9]), "action_mask": np.int8([0, 1])}
    assert a.read(observed, None, has_ended=False).tolist() == [7, 8, 9, 0, 1, 0, 0]
    assert b.read(np.float32([7]), None, has_ended=False).tolist() == [7, 0, 0, 1, 1, 1, 1]
    blank = observed | {"action_mask": np.int8([0, 0])}
    assert a.read(blank, None, has_ended=True).tolist() == [7, 8, 9, 1, 1, 0, 0]
    with pytest.raises(DataError, match="agent b has other spaces than a"):
        describe(spaces | {"b": (Box(0, 1, (3,)), Box(0, 1, (1,)))}, 9)


def test_an_observation_far_beyond_its_box_is_told_once_and_one_a_little_beyond_is_not():
    class Env:
        def observation_space(self, _: str) -> Box:
            return Box(np.array([-1, 0, 0.1], np.float32), np.array([1, 1, 0.1], np.float32))

        def action_space(self, _: str) -> Discrete:
            return Discrete(2)

    env = Env()
    interface = describe({"it": (env.observation_space(""), env.action_space(""))}, 3)
    agents = [AgentRows(interface, env, "it", has_mask=False) for _ in range(2)]
    agents[0].read(np.array([2.5, -0.5, 0.1001], np.float32), None, False)
    line = "observation of it holds 30 at number 1, far beyond its Box of 0 to 1; widen its space"
    for agent, warns in zip(
        agents, (pytest.warns(UserWarning, match=line), nullcontext()), strict=True
    ):
        with warns:
            agent.read(np.array([0, 30, 0.1], np.float32), None, False)
