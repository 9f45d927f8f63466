"""how many processes -> this one as the first of a team, and the others at work beside it."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.process import BaseProcess
from typing import Any

import torch
from torch import distributed, multiprocessing

from quatrain.models.actor_critic.ppo.team import ALONE, Team

HOST = "127.0.0.1"
PATIENCE = timedelta(minutes=10)
"""How long a rank waits for the slowest one."""
LAST_WORDS = 5.0
"""Seconds in which a rank whose connection broke is seen to end."""
Work = Callable[..., None]


@contextmanager
def helped(size: int, work: Work, *args: Any) -> Iterator[Team]:
    """A team of `size` processes of this machine; each other one runs `work(team, *args)` with the same threads.

    They end with this one, however it ends: a rank whose first one is gone finds its connection closed.
    """
    if size == 1:
        yield ALONE
        return
    store = distributed.TCPStore(HOST, 0, size, is_master=True, wait_for_workers=False)
    settings = (store.port, size, torch.get_num_threads(), str(torch.get_default_device()))
    context = multiprocessing.get_context("spawn")
    others = [context.Process(target=_join, args=(rank, settings, work, args), daemon=True) for rank in range(1, size)]
    try:
        for other in others:
            other.start()
        distributed.init_process_group("gloo", store=store, rank=0, world_size=size, timeout=PATIENCE)
        yield Team(0, size)
    except RuntimeError as error:
        raise _named(error, others) from None
    finally:
        for other in others:
            other.kill()
            other.join()
        if distributed.is_initialized():
            distributed.destroy_process_group()


def _join(rank: int, settings: tuple[int, int, int, str], work: Work, args: tuple[Any, ...]) -> None:
    """Another rank. A signal is the first one's business, which saves what all have done."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    port, size, threads, device = settings
    torch.set_num_threads(threads)
    if device != "cpu":
        torch.set_default_device(device)
    store = distributed.TCPStore(HOST, port, size, is_master=False)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=PATIENCE)
    try:
        work(Team(rank, size), *args)
    except RuntimeError:
        if os.getppid() != 1:  # where the first rank is gone there is nobody to tell
            raise


def _named(error: RuntimeError, others: Sequence[BaseProcess]) -> RuntimeError:
    """The error, and which rank ended before its time."""
    for other in others:
        other.join(LAST_WORDS)
    gone = [f"rank {rank} ended with {other.exitcode}" for rank, other in enumerate(others, 1) if other.exitcode]
    return RuntimeError(f"{error} ({'; '.join(gone)})") if gone else error
