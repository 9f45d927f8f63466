"""a function of one agent or seed -> a function of all of them, vectorised or in a loop"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from quatrain.models.iqn.config import IqnConfig

# Largest number of hidden units at which vectorised agents learn faster on CPU than a loop.
NARROW = 64


def vectorised(config: IqnConfig) -> bool:
    """Returns whether agents (and seeds) learn in one batched program; a loop keeps caches warm."""
    if config.train.agent_parallelism == "auto":
        return jax.default_backend() != "cpu" or config.network.hidden <= NARROW
    return config.train.agent_parallelism == "vmap"


def map_axis(config: IqnConfig, function: Callable[..., Any]) -> Callable[..., Any]:
    """Maps a function of one seed or agent over the leading axis of its argument."""
    return jax.vmap(function) if vectorised(config) else partial(jax.lax.map, function)


def map_seeds(config: IqnConfig, function: Callable[..., Any]) -> Callable[..., Any]:
    """Maps like `map_axis`, but without a loop around a single seed."""
    if config.seeds > 1:
        return map_axis(config, function)

    def map_single(argument: Any) -> Any:
        result = function(jax.tree.map(lambda leaf: leaf[0], argument))
        return jax.tree.map(lambda leaf: leaf[None], result)

    return map_single
