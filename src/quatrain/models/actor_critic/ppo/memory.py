"""a device without memory left -> one line that says what to lower."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from quatrain.errors import DeviceFull
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.ppo.playing import empty_rollout

OF_A_CPU = "can't allocate memory"


@contextmanager
def told(config: ActorCriticConfig) -> Iterator[None]:
    """Turn the device's own message into one with the rollout's size and the keys that decide it.

    Raises:
        DeviceFull: the work inside ran out of memory.
    """
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and OF_A_CPU not in str(error):
            raise
        raise DeviceFull(
            f"actor_critic: the device has no memory left; a rollout takes {rollout_bytes(config) / 2**20:,.0f} "
            "MiB. Lower actor_critic.train.num_envs, .horizon or .minibatch_size, or actor_critic.env.max_nodes."
        ) from None


def rollout_bytes(config: ActorCriticConfig) -> int:
    """Of all ranks; seeds learn in turn, in the same memory."""
    with torch.device("meta"):
        return sum(column.nbytes for column in empty_rollout(config, config.train.num_envs))
