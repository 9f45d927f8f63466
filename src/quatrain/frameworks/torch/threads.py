"""a number, or whether learners are small -> the threads of torch."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Uses this number of threads; restores the number afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def single_threaded(if_small: bool) -> Iterator[None]:
    """Uses one thread for small matrices, for which a second one is slower."""
    with threads(1 if if_small else torch.get_num_threads()):
        yield
