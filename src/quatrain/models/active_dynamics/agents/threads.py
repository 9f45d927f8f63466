"""how many threads suit learners of this size"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one() -> Iterator[None]:
    """A single thread, for the matrices are small: a second one costs more than it brings. Afterwards as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
