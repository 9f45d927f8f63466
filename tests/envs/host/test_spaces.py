"""What an environment returns: what its spaces allow passes, everything else is named."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple
from gymnasium.vector.utils import concatenate, create_empty_array

from quatrain.envs.host.spaces import batch_of, reader, to_flag, to_reward
from quatrain.errors import DataError

BYTE = Box(-128, 127, (2,), np.int8)
PIXEL = Box(0, 255, (2, 1), np.uint8)
FLOATS = Box(-1, 1, (2,))
PARTS = Dict({"a": Discrete(3, start=2), "b": FLOATS})


@pytest.mark.parametrize(
    ("space", "value", "expected"),
    [
        (BYTE, np.int64([-128, 127]), [-128, 127]),
        (BYTE, [1.0, 2], [1, 2]),
        (PIXEL, np.uint8([[0], [255]]), [0, 255]),
        (FLOATS, np.float64([-1.5, 0.25]), [-1.5, 0.25]),
        (FLOATS, (1, True), [1, 1]),
        (Box(0, 1, (1,), np.bool_), [True], [1]),
        (Discrete(3, start=2), np.array(4), [0, 0, 1]),
        (Discrete(2), True, [0, 1]),
        (MultiDiscrete([2, 3], start=[0, 5]), [1, 7], [0, 1, 0, 0, 1]),
        (MultiBinary(2), [0, 1], [0, 1]),
        (PARTS, {"b": [0.5, 0], "a": 3}, [0, 1, 0, 0.5, 0]),
        (Tuple([Discrete(2), FLOATS]), (0, [0.5, 0]), [1, 0, 0.5, 0]),
    ],
)
def test_what_a_space_allows_is_read_without_loss(space: Any, value: Any, expected: list[float]):
    assert reader("a", space)(value).tolist() == expected


@pytest.mark.parametrize(
    ("space", "value", "message"),
    [
        (BYTE, [300, 0], "holds 300, where its space has integers from -128 to 127"),
        (BYTE, [0, 1.9], "holds 1.9, where"),
        (BYTE, [0, np.nan], "holds nan, where"),
        (Box(0, 3, (1,), np.int64), [4], "holds 4, where its space has integers from 0 to 3"),
        (PIXEL, [[0], [-1]], "holds -1, where its space has integers from 0 to 255"),
        (PIXEL, [0, 1], r"has the shape \(2,\), not \(2, 1\)"),
        (FLOATS, [0.5], r"has the shape \(1,\), not \(2,\)"),
        (FLOATS, ["1", "2"], "no array of numbers"),
        (FLOATS, [1j, 0], "no array of numbers"),
        (FLOATS, [np.inf, 0], "holds inf: not finite"),
        (Discrete(5), -1, "holds -1, where its space has integers from 0 to 4"),
        (Discrete(5), 5, "holds 5, where"),
        (Discrete(5), 1.5, "holds 1.5, where"),
        (Discrete(5), 3.0, "holds 3.0, where"),
        (Discrete(3, start=2), 1, "holds 1, where its space has integers from 2 to 4"),
        (MultiDiscrete([2, 3]), [1, 3], "holds 3, where its space has integers from 0 to 2"),
        (MultiBinary(2), [0, 2], "holds 2, where its space has integers from 0 to 1"),
        (PARTS, {"a": 5, "b": [0, 0]}, "in its part 'a' holds 5, where"),
        (PARTS, {"a": 2}, r"has the parts \['a'\], not \['a', 'b'\]"),
        (Tuple([Discrete(2), FLOATS]), (0,), r"has the parts \[0\], not \[0, 1\]"),
        (Text(2), "abc", "'abc', which Text.* does not contain"),
    ],
)
def test_what_a_space_does_not_allow_is_named(space: Any, value: Any, message: str):
    with pytest.raises(DataError, match=f"the observation {message}|is {message}"):
        reader("the observation", space)(value)


@pytest.mark.parametrize("flag", [True, np.True_, np.array(True)])
def test_a_bool_is_a_flag(flag: Any):
    assert to_flag("terminated", flag) is True


@pytest.mark.parametrize("reward", [1, True, 1.0, np.float32(1), np.int8(1), np.array([1.0])])
def test_a_real_number_is_a_reward(reward: Any):
    assert to_reward(reward) == 1


FLAGS = ["False", np.nan, 0, 1, None, [True], np.array([True])]
REWARDS = [
    *((reward, "not a real number") for reward in ("1", None, 1j, [1, 2])),
    (np.nan, "nan is not finite"),
    (1e39, r"1e\+39 is not finite in 32 bits"),
]


@pytest.mark.parametrize(
    ("read", "value", "message"),
    [(partial(to_flag, "terminated"), flag, "not a bool") for flag in FLAGS]
    + [(to_reward, *refused) for refused in REWARDS],
)
def test_nothing_else_is_a_flag_or_a_reward(read: Any, value: Any, message: str):
    with pytest.raises(DataError, match=message):
        read(value)


def test_a_batch_of_parts_is_a_list_or_has_its_parts_stacked_as_of_a_vector_env():
    space = Dict({"a": Discrete(5), "b": Tuple([FLOATS, MultiBinary(2)])})
    each = [space.sample() for _ in range(3)]
    stacked = create_empty_array(space, 3)
    concatenate(space, each, stacked)
    for batch in (each, stacked):
        observed, is_single = batch_of(space, batch)
        assert not is_single
        read = reader("the observation", space)
        np.testing.assert_array_equal([*map(read, observed)], [*map(read, each)])
    assert batch_of(space, each[0]) == ([each[0]], True)
