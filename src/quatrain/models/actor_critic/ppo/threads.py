"""a network's size -> the threads that suit it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from quatrain.models.actor_critic.config import ActorCriticConfig

SMALL = 64
"""Units up to which a second thread costs more than it brings: measured, two took 2.5 times as long as one."""


@contextmanager
def suited(config: ActorCriticConfig) -> Iterator[None]:
    """One thread for a small network, and for a larger one those that there are; afterwards as before."""
    before = torch.get_num_threads()
    if config.network.d <= SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
