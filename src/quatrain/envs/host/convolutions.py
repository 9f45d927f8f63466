"""the size of an image -> the convolutions that read it, whatever the framework"""

from typing import NamedTuple

# Bytes of an image are divided by it.
BRIGHTEST = 255


class Layer(NamedTuple):
    """Holds a layer of convolutions, which a ReLU follows; side, stride and padding in pixels."""

    filters: int
    side: int
    stride: int
    padding: int


# 'Human-level control through deep reinforcement learning' (2015), for sides of 36 pixels or more.
NATURE = (Layer(32, 8, 4, 0), Layer(64, 4, 2, 0), Layer(64, 3, 1, 0))
NATURE_SIDE = 36
# Units of the layer behind them; iqn has network.hidden.
FEATURES = 512
# They reach each pixel of any side.
SMALL = (Layer(32, 3, 2, 1), Layer(64, 3, 2, 1))


def layers_of(image: tuple[int, ...]) -> tuple[Layer, ...]:
    """Returns the layers that read an image of so many rows, columns and channels."""
    return NATURE if min(image[:2]) >= NATURE_SIDE else SMALL


def count_units(image: tuple[int, ...]) -> list[int]:
    """Returns how many numbers each layer gives."""
    sides, units = image[:2], []
    for filters, side, stride, padding in layers_of(image):
        sides = tuple((length + 2 * padding - side) // stride + 1 for length in sides)
        units.append(filters * sides[0] * sides[1])
    return units


def count_weights(image: tuple[int, ...]) -> int:
    """Returns the weights and biases of all layers."""
    channels, weights = image[2], 0
    for filters, side, _, _ in layers_of(image):
        weights += filters * (channels * side**2 + 1)
        channels = filters
    return weights
