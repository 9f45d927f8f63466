"""Map -> arrays of its cells"""

import numpy as np
from jaxtyping import Bool, Int, Int8

from quatrain.envs.treasurehunt import layouts
from quatrain.envs.treasurehunt.layouts import BARE, ITEMS, WALL, Map


def walls(map: Map) -> Bool[np.ndarray, "height width"]:
    """Returns a mask of the walls."""
    return _symbols(map) == WALL


def spawnable(map: Map) -> Bool[np.ndarray, "height width"]:
    """Returns a mask of the cells where items may spawn."""
    return ~np.isin(_symbols(map), (WALL, BARE))


def starts(map: Map) -> Int[np.ndarray, "start 2"]:
    """Returns (y, x) of the start cells, row-major: those marked A, else floor without item."""
    return np.array(layouts.starts(map), int).reshape(-1, 2)


def items(map: Map) -> Int8[np.ndarray, "height width"]:
    """Returns the items at reset: 0 none, k an item of entity k (from 1)."""
    symbols = _symbols(map)
    return np.where(np.isin(symbols, list(ITEMS)), symbols, "0").astype(np.int8)


def _symbols(map: Map) -> np.ndarray:
    return np.array([list(row) for row in map.rows])
