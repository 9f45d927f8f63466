"""an out-of-memory error of the device -> one line that says what to lower."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from quatrain.errors import DeviceFull
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.ppo.rollout import allocate_rollout

CPU_MESSAGE = "can't allocate memory"


@contextmanager
def explain_out_of_memory(config: ActorCriticConfig) -> Iterator[None]:
    """Replaces the device's message by the rollout's size and the keys that decide it.

    Raises:
        DeviceFull: the work inside ran out of memory.
    """
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and CPU_MESSAGE not in str(error):
            raise
        raise DeviceFull(
            "actor_critic: the device has no memory left; "
            f"a rollout takes {rollout_bytes(config) / 2**20:,.0f} MiB. "
            "Lower actor_critic.train.num_envs, .horizon or .minibatch_size, "
            "or actor_critic.env.max_nodes."
        ) from None


def rollout_bytes(config: ActorCriticConfig) -> int:
    """Returns the bytes of a rollout; seeds train in turn and share its memory."""
    with torch.device("meta"):
        return sum(column.nbytes for column in allocate_rollout(config, config.train.num_envs))
