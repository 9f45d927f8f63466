"""a function of one agent or seed -> of all of them: side by side, or in turn."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from quatrain.models.iqn.config import IqnConfig

NARROW = 64
"""Units up to which, on a CPU, agents learn faster side by side than in turn."""


def side_by_side(config: IqnConfig) -> bool:
    """Whether agents (and seeds) learn in one batched program, rather than one after another with warm caches."""
    if config.train.agent_parallelism == "auto":
        return jax.default_backend() != "cpu" or config.network.hidden <= NARROW
    return config.train.agent_parallelism == "vmap"


def over_axis(config: IqnConfig, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of one seed or agent -> of all, along the leading axis of its argument."""
    return jax.vmap(function) if side_by_side(config) else partial(jax.lax.map, function)


def over_seeds(config: IqnConfig, function: Callable[..., Any]) -> Callable[..., Any]:
    """`over_axis`, without a loop around a single seed."""
    if config.seeds > 1:
        return over_axis(config, function)

    def single(argument: Any) -> Any:
        return jax.tree.map(
            lambda leaf: leaf[None], function(jax.tree.map(lambda leaf: leaf[0], argument))
        )

    return single
