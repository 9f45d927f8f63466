"""whether learners are small -> the threads that suit them."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def single_threaded(if_small: bool) -> Iterator[None]:
    """One thread for small matrices, where a second one costs more than it brings; afterwards as before."""
    before = torch.get_num_threads()
    if if_small:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
