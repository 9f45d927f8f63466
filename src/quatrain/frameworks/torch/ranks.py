"""a store that processes share -> torch's process group, with a device of its own for each rank if
there are enough.
"""

from datetime import timedelta
from typing import NamedTuple

import torch
from torch import distributed

COLLECTIVE_TIMEOUT = timedelta(minutes=10)  # longest time that a rank waits for the slowest rank


class Placement(NamedTuple):
    """Holds what a rank communicates by, and which of its machine's GPUs is its own.

    gpu: None on a CPU, and where ranks share the current GPU.
    """

    backend: str
    gpu: int | None


def place_rank(device: str, local_rank: int, local_size: int, gpus: int) -> Placement:
    """Returns the placement of a rank among the `local_size` ranks of its machine.

    NCCL refuses two ranks on one GPU, so ranks that share one communicate by gloo.
    """
    if device == "cuda" and gpus >= local_size:
        return Placement("cpu:gloo,cuda:nccl", local_rank)
    return Placement("gloo", None)


def place_here(local_rank: int, local_size: int) -> Placement:
    """Returns the placement of a rank on the default device of this process."""
    gpus = torch.cuda.device_count()
    return place_rank(torch.get_default_device().type, local_rank, local_size, gpus)


def join_group(store: distributed.Store, rank: int, size: int, placement: Placement) -> None:
    """Joins this process to the default group, and makes its GPU the current one."""
    if placement.gpu is not None:
        torch.cuda.set_device(placement.gpu)
    distributed.init_process_group(
        placement.backend,
        store=store,
        rank=rank,
        world_size=size,
        timeout=COLLECTIVE_TIMEOUT,
    )
