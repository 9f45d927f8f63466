"""modes of torch that code may leave changed -> as they were"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

# How each mode is read, which takes no time, and set.
MODES: tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...] = (
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
)


@contextmanager
def modes_kept() -> Iterator[None]:
    """Restores afterwards what the block changed of MODES."""
    before = [read() for read, _ in MODES]
    try:
        yield
    finally:
        for (read, restore), value in zip(MODES, before, strict=True):
            if read() != value:
                restore(value)


@contextmanager
def default_device_kept() -> Iterator[None]:
    """Restores afterwards the default device, which takes some microseconds to read."""
    before = torch.get_default_device()
    try:
        yield
    finally:
        if torch.get_default_device() != before:
            # Without a default, calls are faster than with that of the CPU.
            torch.set_default_device(None)
            if torch.get_default_device() != before:
                torch.set_default_device(before)
