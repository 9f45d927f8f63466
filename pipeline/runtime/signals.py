"""SIGTERM, SIGINT and the death of the parent -> a stage that saves its work before it ends."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from pipeline.runtime.errors import Interrupted

ENDING = (signal.SIGTERM, signal.SIGINT)
PR_SET_PDEATHSIG = 1
# Names the process that a stage must not outlive, where that is not dvc.
PARENT_VARIABLE = "QUATRAIN_PARENT"

Handler = Callable[[int, FrameType | None], None]


@contextmanager
def handle(handler: Handler) -> Iterator[None]:
    """Calls the handler on SIGTERM and SIGINT inside the block; restores the earlier handlers
    afterwards.
    """
    previous = {number: signal.signal(number, handler) for number in ENDING}
    try:
        yield
    finally:
        for number, earlier in previous.items():
            signal.signal(number, earlier)


def parent_death_signal() -> Callable[[], None] | None:
    """Returns a function that asks Linux for SIGTERM when the parent dies; None on other systems.

    The C library is loaded here, so that the function is safe between fork and exec.
    """
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None, use_errno=True)
    return lambda: library.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def die_with_parent() -> None:
    """Asks for SIGTERM when the parent dies, so that no orphan writes beside the next run.

    Raises:
        Interrupted: the parent died before the request. It is dvc, or what QUATRAIN_PARENT says.
    """
    request = parent_death_signal()
    if request is None:
        return
    request()
    parent = os.getppid()
    is_adopted = parent == 1 and b"dvc" not in Path("/proc/1/cmdline").read_bytes()
    if os.environ.get(PARENT_VARIABLE, str(parent)) != str(parent) or (
        "DVC_STAGE" in os.environ and is_adopted
    ):
        raise Interrupted(signal.SIGTERM)


class Signals:
    """Raises Interrupted at once while there is nothing to save, then at the next `check`."""

    def __init__(self) -> None:
        self.received: int | None = None
        self.working = False
        for number in ENDING:
            signal.signal(number, self._receive)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if not self.working:
            raise Interrupted(number)
        if self.received is None:
            self.received = number
            line = f"{signal.Signals(number).name}: saving, then leaving (Ctrl-C: at once)\n"
            # os.write, because print is not reentrant and may be what the signal interrupted.
            with suppress(OSError):
                os.write(2, line.encode())
        elif number == signal.SIGINT:
            # A second SIGTERM is sent automatically where a whole process group is ended.
            os._exit(128 + number)

    def check(self) -> None:
        if self.received is not None:
            raise Interrupted(self.received)
