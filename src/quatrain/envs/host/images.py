"""spaces -> which part is an image, its size, and the order of its axes"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Dict, Tuple

from quatrain.envs.host.convolutions import BRIGHTEST
from quatrain.errors import DataError

# Smaller arrays of bytes are symbols (MiniGrid), which are read as vectors.
SMALLEST_SIDE = 10


class Part(NamedTuple):
    """Holds a part of a space, and its name; None if it is the whole."""

    name: Any
    space: Any


def find_image(space: Any) -> Part | None:
    """Returns the image among the parts of a space, or the space where it is one.

    Raises:
        DataError: it has several.
    """
    if image_axes(space):
        return Part(None, space)
    if not isinstance(space, Dict | Tuple):
        return None
    images = [Part(*part) for part in parts_of(space).items() if image_axes(part[1])]
    if len(images) > 1:
        names = " and ".join(str(part.name) for part in images)
        raise DataError(
            f"the observations {names} are images, and a network reads one; name in env.wrappers "
            "what joins their channels or leaves one out (gymnasium.wrappers.FilterObservation)"
        )
    return images[0] if images else None


def image_axes(space: Any) -> tuple[int, ...]:
    """Returns the axes of an image in the order rows, columns, channels; () if it is none.

    An image has bytes from 0 to 255 and sides of SMALLEST_SIDE or more. Channels are its first or
    last axis, the shorter of both; a fourth axis, before the others, is a stack, whose images give
    channels.
    """
    is_image = isinstance(space, Box) and space.dtype == np.uint8 and 2 <= len(space.shape) <= 4
    if not is_image or space.low.any() or (space.high != BRIGHTEST).any():
        return ()
    axes = range(len(space.shape))
    stack, sides = [*axes[:-3]], [*axes[-3:]]
    if len(sides) == 3:
        is_first = space.shape[sides[0]] < space.shape[sides[-1]]
        stack.append(sides.pop(0 if is_first else -1))
    small = any(space.shape[axis] < SMALLEST_SIDE for axis in sides)
    return () if small else (*sides, *stack)


def image_shape(space: Any) -> tuple[int, int, int]:
    """Returns the numbers of rows, columns and channels of an image."""
    rows, columns, *channels = (space.shape[axis] for axis in image_axes(space))
    return rows, columns, int(np.prod(channels))


def parts_of(whole: Any) -> dict[Any, Any]:
    """Returns the parts of a Dict or a Tuple, or of a value of such a space, by their names."""
    if isinstance(whole, Dict | Tuple):
        whole = whole.spaces
    return dict(whole) if isinstance(whole, Mapping) else dict(enumerate(whole))


def without(space: Any, name: Any) -> Any:
    """Returns the other parts of a space."""
    return Dict({key: part for key, part in parts_of(space).items() if key != name})
