"""RANK and its companions, as torchrun sets them -> a process that is one rank of a training.

Of several ranks only the first one takes locks, records and saves. The others take its state and
end with it.
"""

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from pipeline.runtime.errors import ConfigError, Interrupted, exit_code_of
from pipeline.runtime.signals import Signals, handle
from quatrain.errors import RankLost, TrainingDiverged

if TYPE_CHECKING:  # a refusal must not load torch
    from torch.distributed import Store

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT", "MASTER_ADDR")
# How long the first rank to arrive waits for the last one: nodes may load modules slowly.
MEETING_SECONDS = 300.0
ATTEMPT_SECONDS = 2.0  # to connect; signals are answered between two attempts
FAREWELL_SECONDS = 5.0
SAVING_SECONDS = 60.0  # that the first rank may take to save after a divergence
QUIET_SECONDS = 2.0
ORPHAN_SECONDS = 30  # as long as torchrun waits between SIGTERM and SIGKILL
POLL_SECONDS = 0.02
FAILURE = "failure"
LEFT = "left"
DIGITS = 12  # of a digest in a message


class Place(NamedTuple):
    """Holds which rank this process is: of all, and of those on its machine."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    port: int
    address: str


ALONE = Place(rank=0, size=1, local_rank=0, local_size=1, port=0, address="")


class RanksDiffer(ConfigError):
    """Says what two ranks of a training do not have in common."""


def read_place(environment: Mapping[str, str]) -> Place:
    """Returns the place that the launcher gave to this process; ALONE without RANK.

    Raises:
        ConfigError: a variable is missing, is no number, or contradicts another.
    """
    if "RANK" not in environment:
        return ALONE
    missing = [name for name in VARIABLES if not environment.get(name)]
    if missing:
        raise ConfigError(
            f"RANK is set, but {', '.join(missing)} not: start ranks by torchrun, "
            "or export what it sets (docs/guide.md); unset RANK to train on this machine alone"
        )
    *numbers, address = (environment[name] for name in VARIABLES)
    if not all(number.isdecimal() for number in numbers):
        raise _impossible(environment)
    rank, size, local_rank, local_size, port = map(int, numbers)
    place = Place(rank, size, local_rank, local_size, port, address)
    inside = place.rank < place.size and place.local_rank < place.local_size <= place.size
    if not inside or not 0 < place.port < 2**16:
        raise _impossible(environment)
    return place


def _impossible(environment: Mapping[str, str]) -> ConfigError:
    values = ", ".join(f"{name}={environment[name]}" for name in VARIABLES)
    return ConfigError(f"no rank can be at {values}: ranks count from 0 to their number less 1")


def check_place(place: Place, stage: str, ranks: int | None) -> None:
    """Checks that as many processes were started as take part in a stage; None: it never has
    several.

    Raises:
        ConfigError: the numbers differ.
    """
    if place == ALONE or place.size == (ranks or 1):
        return
    if ranks is None:
        raise ConfigError(
            f"WORLD_SIZE is {place.size}, but {stage} has no ranks: its processes would do the "
            "same work over one another. Start it once, without torchrun and without RANK"
        )
    model = stage.partition("@")[2]
    raise ConfigError(
        f"WORLD_SIZE is {place.size}, but {model}.train.world_size = {ranks} in params.yaml: "
        "start as many processes as it says, or change it (unset RANK to train on this machine)"
    )


@contextmanager
def quieten(place: Place) -> Iterator[None]:
    """Ends a rank without a line where the first rank of its machine prints the same one."""
    try:
        yield
    except (Interrupted, ConfigError, TrainingDiverged, RankLost) as error:
        if place.local_rank == 0:
            raise
        # torchrun ends all ranks when one has left: it must not be before the line is printed.
        with suppress(Interrupted):
            time.sleep(QUIET_SECONDS)
        raise SystemExit(exit_code_of(error)) from None


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
            self._set(FAILURE, f"{self._name()}: {' '.join(str(error).split())}")
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
        from torch import distributed

        address, port = self.place.address, self.place.port
        keeps = self.is_first and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        if not keeps:
            self._await_keeper()
        try:
            store = distributed.TCPStore(
                address, port, self.place.size, is_master=keeps, wait_for_workers=False
            )
        except distributed.DistError as error:
            reason = str(error).splitlines()[0]
            raise RankLost(f"ranks cannot meet at {address}:{port}: {reason}") from None
        restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        return distributed.PrefixStore(f"quatrain/{restart}", store)

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
        store.set(f"identity/{self.place.rank}", json.dumps({"rank": self._name(), **identity}))
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

    def _name(self) -> str:
        return f"rank {self.place.rank} on {socket.gethostname()}"

    def _receive(self, number: int, _frame: object) -> None:
        """Leaves it to the first rank to answer a signal; without a launcher, not for long."""
        if os.getppid() != self._parent:
            signal.alarm(ORPHAN_SECONDS)
        self._received.append(signal.Signals(number))


def compare(identities: list[dict[str, str]]) -> None:
    """Checks that all ranks have the identity of rank 0.

    Raises:
        RanksDiffer: names the first thing that differs.
    """
    first, *others = identities
    for other in others:
        for name, value in first.items():
            if name != "rank" and other[name] != value:
                raise RanksDiffer(
                    f"{name} is {other[name][:DIGITS]} for {other['rank']}, but {value[:DIGITS]} "
                    f"for {first['rank']}: ranks need equal code, params.yaml, data, libraries and "
                    "processors"
                )


@contextmanager
def _explained() -> Iterator[None]:
    """Replaces torch's message where the store of the ranks has gone."""
    from torch import distributed

    try:
        yield
    except distributed.DistError as error:
        reason = str(error).splitlines()[0]
        raise RankLost(f"another rank ended before the training began: {reason}") from None
