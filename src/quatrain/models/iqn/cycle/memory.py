"""out of device memory -> an error that names the config keys to lower"""

from collections.abc import Iterator
from contextlib import contextmanager

import jax

from quatrain.errors import DeviceFull


@contextmanager
def explain_out_of_memory(replay_bytes: int) -> Iterator[None]:
    """Replaces the device's message by one with the replay's size and the keys that determine it.

    Raises:
        DeviceFull: the work inside ran out of memory.
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise DeviceFull(
            "iqn: the device has no memory left; the replay alone takes "
            f"{replay_bytes / 2**20:,.0f} MiB, twice that while a record is made. "
            "Lower iqn.train.capacity, iqn.env.worlds or iqn.seeds."
        ) from None
