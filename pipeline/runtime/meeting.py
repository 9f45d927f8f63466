"""ranks of a training that were started one by one -> torch's process group, of equal members."""

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from pipeline.runtime.errors import ConfigError, Interrupted
from pipeline.runtime.ranks import Place
from pipeline.runtime.signals import Signals, handle
from quatrain.errors import RankLost, TrainingDiverged

if TYPE_CHECKING:  # a process that is alone must not load torch here
    from torch.distributed import Store

# How long the first rank to arrive waits for the last one: nodes may load modules slowly.
MEETING_SECONDS = 300.0
ATTEMPT_SECONDS = 2.0  # to connect; signals are answered between two attempts
FAREWELL_SECONDS = 5.0
SAVING_SECONDS = 60.0  # that the first rank may take to save after a divergence
ORPHAN_SECONDS = 30  # as long as torchrun waits between SIGTERM and SIGKILL
POLL_SECONDS = 0.02
FAILURE = "failure"
LEFT = "left"
DIGITS = 12  # of a digest in a message


class RanksDiffer(ConfigError):
    """Says what two ranks of a training do not have in common."""


class Meeting:
    """Brings the ranks of a training together; does nothing for a process that is alone.

    A rank that fails before all have joined tells the others, which then end too.
    """

    def __init__(self, place: Place, signals: Signals) -> None:
        self.place = place
        self._signals = signals
        self._store: Store | None = None
        self._cleanup = ExitStack()
        self._received: list[int] = []
        self._parent = os.getppid()

    @property
    def is_first(self) -> bool:
        return self.place.rank == 0

    def __enter__(self) -> Self:
        if self.place.size > 1:
            self._store = self._connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        from_others = isinstance(error, RankLost | RanksDiffer)
        if error is not None and not from_others:
            self._set(FAILURE, f"{name_of(self.place)}: {' '.join(str(error).split())}")
        if isinstance(error, TrainingDiverged) and not self.is_first:
            self._await_first()
        self._cleanup.close()
        if isinstance(error, RankLost) and self._received:
            raise SystemExit(128 + self._received[0])  # the first rank says which signal came

    def join(self, identity: Mapping[str, str]) -> None:
        """Waits for all ranks, compares what they compute with, and joins them in torch's group.

        Args:
            identity: digests and versions by name; the run key last, because it covers all others.

        Raises:
            RankLost: a rank failed, or did not arrive within MEETING_SECONDS.
            RanksDiffer: an identity is not that of rank 0.
        """
        if self._store is None:
            return
        from torch import distributed

        from quatrain.frameworks.torch.ranks import join_group, place_here

        placement = place_here(self.place.local_rank, self.place.local_size)
        with _explained():
            compare(self._exchange({"backend": placement.backend, **identity}))
            store = distributed.PrefixStore("group", self._store)
            join_group(store, self.place.rank, self.place.size, placement)
        if self.is_first:
            self._cleanup.callback(self._set, LEFT)
        self._cleanup.callback(distributed.destroy_process_group)
        if not self.is_first:
            self._cleanup.enter_context(handle(self._receive))

    def _connect(self) -> "Store":
        """Returns the store of all ranks, which torchrun or rank 0 keeps."""
        keeps = self.is_first and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        if not keeps:
            self._await_keeper()
        try:
            return open_store(self.place, keeps)
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            where = f"{self.place.address}:{self.place.port}"
            raise RankLost(f"ranks cannot meet at {where}: {reason}") from None

    def _await_keeper(self) -> None:
        """Waits until the store listens; torch itself would print its stack and hear no signal."""
        address = (self.place.address, self.place.port)
        deadline = time.monotonic() + MEETING_SECONDS
        while True:
            self._signals.check()
            try:
                socket.create_connection(address, ATTEMPT_SECONDS).close()
                return
            except OSError as error:
                if time.monotonic() > deadline:
                    raise RankLost(
                        f"rank 0 did not listen at MASTER_ADDR {address[0]}, MASTER_PORT "
                        f"{address[1]} within {MEETING_SECONDS:.0f} seconds ({error})"
                    ) from None
            time.sleep(POLL_SECONDS)

    def _exchange(self, identity: Mapping[str, str]) -> list[dict[str, str]]:
        """Returns the identities of all ranks, in the order of ranks."""
        assert self._store is not None
        store = self._store
        store.set(
            f"identity/{self.place.rank}", json.dumps({"rank": name_of(self.place), **identity})
        )
        keys = [f"identity/{rank}" for rank in range(self.place.size)]
        self._wait(lambda: store.check(keys), MEETING_SECONDS)
        identities = [json.loads(store.get(key)) for key in keys]
        store.add("read", 1)
        if self.is_first:  # which may keep the store that others still read
            with suppress(RankLost):
                self._wait(lambda: store.add("read", 0) >= self.place.size, FAREWELL_SECONDS)
        return identities

    def _wait(self, is_ready: Callable[[], bool], seconds: float) -> None:
        assert self._store is not None
        deadline = time.monotonic() + seconds
        while not is_ready():
            if self._store.check([FAILURE]):
                reason = self._store.get(FAILURE).decode()
                raise RankLost(f"the training did not begin, because of {reason}")
            self._signals.check()
            if time.monotonic() > deadline:
                missing = ", ".join(
                    str(rank)
                    for rank in range(self.place.size)
                    if not self._store.check([f"identity/{rank}"])
                )
                raise RankLost(f"no word of rank {missing} within {seconds:.0f} seconds")
            time.sleep(POLL_SECONDS)

    def _set(self, key: str, value: str = "") -> None:
        with suppress(RuntimeError):  # the store may have gone with its keeper
            if self._store is not None:
                self._store.set(key, value)

    def _await_first(self) -> None:
        """Waits for rank 0, which diverged at the same step, to save and to say so: a launcher ends
        all ranks when one has left.
        """
        assert self._store is not None
        deadline = time.monotonic() + SAVING_SECONDS
        with suppress(RuntimeError):
            while not self._store.check([LEFT]) and time.monotonic() < deadline:
                time.sleep(POLL_SECONDS)

    def _receive(self, number: int, _frame: object) -> None:
        """Leaves it to the first rank to answer a signal; without a launcher, not for long."""
        if os.getppid() != self._parent:
            signal.alarm(ORPHAN_SECONDS)
        self._received.append(signal.Signals(number))


def open_store(place: Place, keeps: bool) -> "Store":
    """Returns a connection to the store of the ranks; `keeps`: this process is the server.

    Raises:
        RuntimeError: torch cannot connect, or not listen.
    """
    from torch import distributed

    store = distributed.TCPStore(
        place.address, place.port, place.size, is_master=keeps, wait_for_workers=False
    )
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return distributed.PrefixStore(f"quatrain/{restart}", store)


def tell_refusal(place: Place, reason: object) -> None:
    """Tells ranks on other machines that this one does not come, if they wait for it already."""
    if place.rank == 0 or place.local_rank != 0:
        return
    with suppress(OSError, RuntimeError, Interrupted):
        socket.create_connection((place.address, place.port), ATTEMPT_SECONDS).close()
        open_store(place, keeps=False).set(FAILURE, f"{name_of(place)}: {reason}")


def name_of(place: Place) -> str:
    return f"rank {place.rank} on {socket.gethostname()}"


def compare(identities: list[dict[str, str]]) -> None:
    """Checks that all ranks have the identity of rank 0.

    Raises:
        RanksDiffer: names the first thing that differs.
    """
    first, *others = identities
    for other in others:
        for name, value in first.items():
            theirs = other.get(name, "missing")
            if name != "rank" and theirs != value:
                raise RanksDiffer(
                    f"{name} is {theirs[:DIGITS]} for {other['rank']}, but {value[:DIGITS]} "
                    f"for {first['rank']}: ranks need equal code, params.yaml, data, libraries and "
                    "processors"
                )


@contextmanager
def _explained() -> Iterator[None]:
    """Replaces torch's message where ranks cannot join, or the store of the ranks has gone."""
    try:
        yield
    except RankLost:
        raise
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise RankLost(f"the training did not begin, ranks cannot join: {reason}") from None
