"""number of processes -> this process as rank 0 of a group, with the other ranks running."""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

import torch
from torch import distributed, multiprocessing

from quatrain.errors import RankLost, TrainingDiverged
from quatrain.frameworks.torch.ranks import join_group, place_here
from quatrain.models.actor_critic.ppo.process_group import SINGLE_PROCESS, ProcessGroup

HOST = "127.0.0.1"
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
    rank 0. Where this process is a rank already (torchrun), yields that one and starts none.

    The other ranks end with this process, however it ends: their connection to rank 0 is then
    closed.

    Raises:
        RankLost: a rank ended early.
        ValueError: this process is a rank of a group of another size.
    """
    if is_rank():
        yield _joined_group(size)
        return
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
        join_group(store, 0, size, place_here(0, size))
        yield ProcessGroup(0, size)
    except RankLost as error:
        raise _with_exit_codes(error, others) from None
    finally:
        for other in others:
            if other.pid is not None:
                other.kill()
                other.join()
        if distributed.is_initialized():
            distributed.destroy_process_group()


def is_rank() -> bool:
    """Returns whether this process is one of several that were started together."""
    return distributed.is_initialized()


def _joined_group(size: int) -> ProcessGroup:
    joined = ProcessGroup(distributed.get_rank(), distributed.get_world_size())
    if joined.size != size:
        raise ValueError(
            f"actor_critic.train.world_size is {size}, "
            f"but torch.distributed joins {joined.size} processes"
        )
    return joined


def _wait_for_arrival(store: distributed.TCPStore, others: Sequence[BaseProcess]) -> None:
    """Waits until every other rank has arrived or one has ended, which a connection would notice
    much later.
    """
    arrivals = [f"arrived/{rank}" for rank in range(1, len(others) + 1)]
    while not store.check(arrivals):
        if any(other.exitcode is not None for other in others):
            raise RankLost(
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
        device=torch.get_default_device().type,
        deterministic=torch.get_deterministic_debug_mode(),
        fills_memory=MEMORY.fill_uninitialized_memory,
    )


def _run_rank(rank: int, settings: Settings, work: Work, args: tuple[Any, ...]) -> None:
    """Runs another rank, which ignores signals: rank 0 handles them and saves the state of all
    ranks. Rank 0 also says why a training ends.
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
    join_group(store, rank, settings.size, place_here(rank, settings.size))
    with suppress(RankLost, TrainingDiverged):
        work(ProcessGroup(rank, settings.size), *args)


def _with_exit_codes(error: RankLost, others: Sequence[BaseProcess]) -> RankLost:
    for other in others:
        if other.pid is not None:
            other.join(EXIT_TIMEOUT)
    failures = [
        f"rank {rank} ended with {other.exitcode}"
        for rank, other in enumerate(others, 1)
        if other.exitcode
    ]
    return RankLost(f"{error} ({'; '.join(failures)})") if failures else error
