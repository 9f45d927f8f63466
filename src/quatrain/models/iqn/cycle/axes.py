"""a function of one agent -> a function of all agents, vectorised or in a loop"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from quatrain.models.iqn.config import LearnerConfig

# Largest number of hidden units at which vectorised agents learn faster on CPU than a loop.
NARROW = 64


def over_agents(config: LearnerConfig, function: Callable[..., Any]) -> Callable[..., Any]:
    """Maps a function of one agent over the leading axis of its argument.

    `auto` chooses one batched program, or on a CPU, unless layers are narrow, a loop, which keeps
    caches warm.
    """
    parallelism = config.train.agent_parallelism
    if parallelism == "auto":
        wide = config.network.hidden > NARROW
        parallelism = "scan" if wide and jax.default_backend() == "cpu" else "vmap"
    return jax.vmap(function) if parallelism == "vmap" else partial(jax.lax.map, function)
