"""what an environment returns -> masks of legal actions, and actions that they allow

A mask has a number for each choice of each index of an action, one index after the other.
"""

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64, Shaped

from quatrain.errors import DataError

# Its name in Gymnasium's infos, and in PettingZoo's observations and infos.
MASK = "action_mask"
Counts = tuple[int, ...]


def find_mask(*holders: Any) -> Any:
    """Returns the mask of the first of an observation and an info that has one, else None."""
    masks = (each[MASK] for each in holders if isinstance(each, Mapping) and MASK in each)
    return next(masks, None)


def masks_of(infos: Any) -> dict[str, Any]:
    """Returns the part of agents' infos that is read, which a process may send."""
    infos = infos if isinstance(infos, Mapping) else {}
    masks = {agent: find_mask(info) for agent, info in infos.items()}
    return {agent: {MASK: mask} for agent, mask in masks.items() if mask is not None}


def read_mask(agent: str, mask: Any, counts: Counts) -> Bool[np.ndarray, " choice"]:
    """Returns a mask as an array.

    Raises:
        DataError: there is none, or it has another size, other numbers, or no legal choice.
    """
    if mask is None:
        raise DataError(f"{agent} has no {MASK}, which it had before; return one in each step")
    flat = np.hstack(mask).ravel()
    if flat.size != sum(counts) or not np.isin(flat, (0, 1)).all():
        raise DataError(
            f"the {MASK} of {agent} is {mask!r}; return {sum(counts)} numbers, 1 for each legal "
            "action and 0 for others"
        )
    legal = flat.astype(bool)
    if not all(part.any() for part in split(legal, counts)):
        raise DataError(f"the {MASK} of {agent} allows no action; end the episode there")
    return legal


def split(choices: Shaped[np.ndarray, "*any choice"], counts: Counts) -> list[np.ndarray]:
    """Returns the choices of each index."""
    return np.split(choices, [*accumulate(counts)][:-1], -1)


def draw_legal(
    counts: Counts, draws: np.random.Generator, masks: Shaped[np.ndarray, "*any choice"]
) -> Int64[np.ndarray, "*any_and_index"]:
    """Draws each index of an action uniformly from its legal choices."""
    keys = draws.random(masks.shape)
    return _greatest(counts, np.where(masks > 0, keys, -1.0))


def nearest_legal(
    counts: Counts, action: Int64[np.ndarray, "*index"], masks: Shaped[np.ndarray, "*any choice"]
) -> Int64[np.ndarray, "*any_and_index"]:
    """Returns this action, with the nearest legal choice in place of one that is not."""
    indices = np.atleast_1d(action)
    distances = [np.abs(np.arange(n) - index) for n, index in zip(counts, indices, strict=True)]
    return _greatest(counts, np.where(masks > 0, -np.concatenate(distances), -np.inf))


def _greatest(counts: Counts, values: Shaped[np.ndarray, "*any choice"]) -> np.ndarray:
    indices = [part.argmax(-1) for part in split(values, counts)]
    return indices[0] if len(counts) == 1 else np.stack(indices, -1)
