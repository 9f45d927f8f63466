"""commands one after another, each in the foreground: signals reach the one at work, and none is started after them."""

import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from pipeline.runtime.stage import PR_SET_PDEATHSIG, Interrupted
from pipeline.storage.checkpoints import LockHeld

PATIENCE_SECONDS = 60.0
"""How long the commands of a killed predecessor may take to save and leave."""


class Failed(Exception):
    """A command that had to work did not, and nothing can be done about it here. Exit code `code`."""

    def __init__(self, why: str, code: int = 5) -> None:
        super().__init__(why)
        self.code = code


class Children:
    """What runs commands, as long as it holds a lock that each command inherits.

    So the lock is held while one of them lives, even if this process was killed; and then it is sent SIGTERM.
    """

    def __init__(self, lock: Path, what: str, patience_seconds: float) -> None:
        self._lock, self._what, self._patience_seconds = lock, what, patience_seconds
        self._received: int | None = None
        self._child: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._held = self._acquire()
        self._before = {
            number: signal.signal(number, self._note) for number in (signal.SIGTERM, signal.SIGINT)
        }
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._held)

    def call(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
    ) -> int:
        """Its exit code, 128 + number where a signal ended it; what it says is shown.

        Raises:
            Interrupted: a signal came, to us or to it.
        """
        return self._run(command, folder, environment, None)[0]

    def read(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
    ) -> str:
        """What it prints, without the last newline.

        Raises:
            Failed: it did not end well.
            Interrupted: a signal came.
        """
        code, printed, said = self._run(command, folder, environment, subprocess.PIPE)
        if code:
            told = said.strip().splitlines() or [f"exit code {code}"]
            raise Failed(f"`{' '.join(command)}` failed: {told[-1]}")
        return printed.rstrip("\n")

    def works(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
    ) -> bool:
        """Whether it ends well; nothing is shown.

        Raises:
            Interrupted: a signal came.
        """
        return self._run(command, folder, environment, subprocess.PIPE)[0] == 0

    def _run(
        self,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str] | None,
        pipe: int | None,
    ) -> tuple[int, str, str]:
        self._stop()
        self._child = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            text=True,
            pass_fds=(self._held,),
            preexec_fn=_ended_with_parent(),  # noqa: PLW1509: no other thread is here
        )
        if self._received == signal.SIGTERM:
            self._child.terminate()
        printed, said = self._child.communicate()
        code = self._child.returncode
        self._child = None
        self._stop()
        if code in (-signal.SIGINT, -signal.SIGTERM):
            raise Interrupted(-code)
        return (code if code >= 0 else 128 - code), printed or "", said or ""

    def _note(self, number: int, _frame: FrameType | None) -> None:
        # Ctrl-C reaches the child by itself, and a second one would keep it from saving.
        self._received = self._received or number
        if number == signal.SIGTERM and self._child is not None and self._child.poll() is None:
            self._child.terminate()

    def _stop(self) -> None:
        if self._received is not None:
            raise Interrupted(self._received)

    def _acquire(self) -> int:
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o666)
        deadline = time.monotonic() + self._patience_seconds
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    os.close(descriptor)
                    raise LockHeld(
                        f"another {self._what} is at work in this checkout; wait for it or end it"
                    ) from None
                time.sleep(0.05)
            else:
                return descriptor


def _ended_with_parent() -> Callable[[], None] | None:
    """What a child does before it becomes the command: ask for SIGTERM when this process dies (Linux)."""
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None, use_errno=True)
    return lambda: library.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
