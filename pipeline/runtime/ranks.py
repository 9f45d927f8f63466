"""RANK and its companions, as torchrun sets them -> a process that is one rank of a training.

Of several ranks only the first one takes locks, records and saves. The others take its state and
end with it.
"""

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NamedTuple, NoReturn

from pipeline.runtime.errors import ConfigError, Interrupted, exit_code_of
from quatrain.errors import RankLost, TrainingDiverged

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT", "MASTER_ADDR")
QUIET_SECONDS = 2.0


class Place(NamedTuple):
    """Holds which rank this process is: of all, and of those on its machine."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    port: int
    address: str


ALONE = Place(rank=0, size=1, local_rank=0, local_size=1, port=0, address="")


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


def leave(code: int) -> NoReturn:
    """Ends a rank without the interpreter's clean-up, after all its work is saved.

    A precaution: one process of some thirty aborted there, perhaps by a thread of torch's group.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # a closed pipe
            stream.flush()
    os._exit(code)
