"""how many processes -> this one as the first of a team, and the others at work beside it."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

import torch
from torch import distributed, multiprocessing

from quatrain.models.actor_critic.ppo.team import ALONE, Team

HOST = "127.0.0.1"
PATIENCE = timedelta(minutes=10)
"""How long a rank waits for the slowest one."""
LAST_WORDS = 5.0
"""Seconds in which a rank whose connection broke is seen to end."""
POLL_SECONDS = 0.02
MEMORY: Any = torch.utils.deterministic
Work = Callable[..., None]


class Settings(NamedTuple):
    """Of the first rank, which all others take over."""

    port: int
    size: int
    threads: int
    device: str
    deterministic: int
    fills: bool


@contextmanager
def helped(size: int, work: Work, *args: Any) -> Iterator[Team]:
    """A team of `size` processes of this machine; each other one runs `work(team, *args)` with the same settings.

    They end with this one, however it ends: a rank whose first one is gone finds its connection closed.

    Raises:
        RuntimeError: a rank ended before its time.
    """
    if size == 1:
        yield ALONE
        return
    store = distributed.TCPStore(HOST, 0, size, is_master=True, wait_for_workers=False)
    context = multiprocessing.get_context("spawn")
    jobs = [(rank, _settings(store.port, size), work, args) for rank in range(1, size)]
    others = [context.Process(target=_join, args=job, daemon=True) for job in jobs]
    try:
        for other in others:
            other.start()
        _await(store, others)
        distributed.init_process_group(
            "gloo", store=store, rank=0, world_size=size, timeout=PATIENCE
        )
        yield Team(0, size)
    except RuntimeError as error:
        raise _named(error, others) from None
    finally:
        for other in others:
            if other.pid is not None:
                other.kill()
                other.join()
        if distributed.is_initialized():
            distributed.destroy_process_group()


def _settings(port: int, size: int) -> Settings:
    return Settings(
        port=port,
        size=size,
        threads=torch.get_num_threads(),
        device=str(torch.get_default_device()),
        deterministic=torch.get_deterministic_debug_mode(),
        fills=MEMORY.fill_uninitialized_memory,
    )


def _await(store: distributed.TCPStore, others: Sequence[BaseProcess]) -> None:
    """Until every other rank has arrived, or one has ended: a connection would be waited for much longer."""
    arrivals = [f"arrived/{rank}" for rank in range(1, len(others) + 1)]
    while not store.check(arrivals):
        if any(other.exitcode is not None for other in others):
            raise RuntimeError(
                "actor_critic: another rank ended while it started; a script that trains with train.world_size > 1 "
                'must do so under `if __name__ == "__main__":`, for each rank imports it'
            )
        time.sleep(POLL_SECONDS)


def _join(rank: int, settings: Settings, work: Work, args: tuple[Any, ...]) -> None:
    """Another rank. A signal is the first one's business, which saves what all have done."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    torch.set_num_threads(settings.threads)
    torch.set_deterministic_debug_mode(settings.deterministic)
    MEMORY.fill_uninitialized_memory = settings.fills
    if settings.device != "cpu":
        torch.set_default_device(settings.device)
    store = distributed.TCPStore(HOST, settings.port, settings.size, is_master=False)
    store.set(f"arrived/{rank}", "")
    distributed.init_process_group(
        "gloo", store=store, rank=rank, world_size=settings.size, timeout=PATIENCE
    )
    try:
        work(Team(rank, settings.size), *args)
    except RuntimeError:
        if os.getppid() != 1:  # where the first rank is gone there is nobody to tell
            raise


def _named(error: RuntimeError, others: Sequence[BaseProcess]) -> RuntimeError:
    """The error, and which rank ended before its time."""
    for other in others:
        if other.pid is not None:
            other.join(LAST_WORDS)
    gone = [
        f"rank {rank} ended with {other.exitcode}"
        for rank, other in enumerate(others, 1)
        if other.exitcode
    ]
    return RuntimeError(f"{error} ({'; '.join(gone)})") if gone else error
