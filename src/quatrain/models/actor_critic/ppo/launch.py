"""number of processes -> this process as rank 0 of a group, with the other ranks running."""

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

from quatrain.models.actor_critic.ppo.process_group import SINGLE_PROCESS, ProcessGroup

HOST = "127.0.0.1"
COLLECTIVE_TIMEOUT = timedelta(minutes=10)  # longest time that a rank waits for the slowest rank
EXIT_TIMEOUT = 5.0  # seconds to wait for the exit code of a rank whose connection broke
POLL_SECONDS = 0.02
MEMORY: Any = torch.utils.deterministic
Work = Callable[..., None]


class Settings(NamedTuple):
    port: int
    size: int
    threads: int
    device: str
    deterministic: int
    fills_memory: bool


@contextmanager
def launch_ranks(size: int, work: Work, *args: Any) -> Iterator[ProcessGroup]:
    """Starts the other ranks on this machine, each running `work(process_group, *args)`; yields
    rank 0.

    The other ranks end with this process, however it ends: their connection to rank 0 is then
    closed.

    Raises:
        RuntimeError: a rank ended early.
    """
    if size == 1:
        yield SINGLE_PROCESS
        return
    store = distributed.TCPStore(HOST, 0, size, is_master=True, wait_for_workers=False)
    settings = _current_settings(store.port, size)
    others = [
        multiprocessing.get_context("spawn").Process(
            target=_run_rank, args=(rank, settings, work, args), daemon=True
        )
        for rank in range(1, size)
    ]
    try:
        for other in others:
            other.start()
        _wait_for_arrival(store, others)
        _join_group(store, rank=0, size=size)
        yield ProcessGroup(0, size)
    except RuntimeError as error:
        raise _with_exit_codes(error, others) from None
    finally:
        for other in others:
            if other.pid is not None:
                other.kill()
                other.join()
        if distributed.is_initialized():
            distributed.destroy_process_group()


def _join_group(store: distributed.TCPStore, rank: int, size: int) -> None:
    distributed.init_process_group(
        "gloo",
        store=store,
        rank=rank,
        world_size=size,
        timeout=COLLECTIVE_TIMEOUT,
    )


def _wait_for_arrival(store: distributed.TCPStore, others: Sequence[BaseProcess]) -> None:
    """Waits until every other rank has arrived or one has ended, which a connection would notice
    much later.
    """
    arrivals = [f"arrived/{rank}" for rank in range(1, len(others) + 1)]
    while not store.check(arrivals):
        if any(other.exitcode is not None for other in others):
            raise RuntimeError(
                "actor_critic: another rank ended while it started; a script that trains with "
                "train.world_size > 1 must do so under "
                '`if __name__ == "__main__":`, for each rank imports it'
            )
        time.sleep(POLL_SECONDS)


def _current_settings(port: int, size: int) -> Settings:
    """Returns this process's settings, which `_run_rank` applies to another rank."""
    return Settings(
        port=port,
        size=size,
        threads=torch.get_num_threads(),
        device=str(torch.get_default_device()),
        deterministic=torch.get_deterministic_debug_mode(),
        fills_memory=MEMORY.fill_uninitialized_memory,
    )


def _run_rank(rank: int, settings: Settings, work: Work, args: tuple[Any, ...]) -> None:
    """Runs another rank, which ignores signals: rank 0 handles them and saves the state of all
    ranks.
    """
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_number, signal.SIG_IGN)
    torch.set_num_threads(settings.threads)
    torch.set_deterministic_debug_mode(settings.deterministic)
    MEMORY.fill_uninitialized_memory = settings.fills_memory
    if settings.device != "cpu":
        torch.set_default_device(settings.device)
    store = distributed.TCPStore(HOST, settings.port, settings.size, is_master=False)
    store.set(f"arrived/{rank}", "")
    _join_group(store, rank, settings.size)
    try:
        work(ProcessGroup(rank, settings.size), *args)
    except RuntimeError:
        if os.getppid() != 1:  # 1: rank 0 has ended, and the error is a closed connection
            raise


def _with_exit_codes(error: RuntimeError, others: Sequence[BaseProcess]) -> RuntimeError:
    for other in others:
        if other.pid is not None:
            other.join(EXIT_TIMEOUT)
    failures = [
        f"rank {rank} ended with {other.exitcode}"
        for rank, other in enumerate(others, 1)
        if other.exitcode
    ]
    return RuntimeError(f"{error} ({'; '.join(failures)})") if failures else error
