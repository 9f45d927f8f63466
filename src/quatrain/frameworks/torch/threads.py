"""whether learners are small -> the number of threads."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def single_threaded(if_small: bool) -> Iterator[None]:
    """Uses one thread for small matrices, for which a second one is slower; restores the number
    afterwards.
    """
    before = torch.get_num_threads()
    if if_small:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
