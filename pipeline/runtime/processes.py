"""processes of one machine: locks between them, the signals that end a stage, the death of its
parent, and commands that run below this one.
"""

import ctypes
import fcntl
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
from tqdm import tqdm

from pipeline.runtime import console
from pipeline.runtime.errors import Interrupted, LockHeld

POLL_SECONDS = 0.05
ENDING = (signal.SIGTERM, signal.SIGINT)
PR_SET_PDEATHSIG = 1
# Names the process that a stage must not outlive, where that is not dvc.
PARENT_VARIABLE = "QUATRAIN_PARENT"
# Says to a stage that it belongs to a trial, and whoever runs that delivers what it records.
TRIAL_VARIABLE = "QUATRAIN_TRIAL"
# Says to a stage that its parent delivers what it records, and names that process.
COURIER_VARIABLE = "QUATRAIN_COURIER"
# Options of a command whose output, all of it in one stream, this process reads line by line.
PIPED: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}

Handler = Callable[[int, FrameType | None], None]


def core_count() -> int:
    """Returns how many cores this process may use; macOS tells only how many there are."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


# Locks.


def lock_file(path: Path, patience_seconds: float) -> int | None:
    """Returns the locked descriptor of a file; None if another process keeps it for
    `patience_seconds`. The lock lasts until every copy of the descriptor is closed, or LOCK_UN.

    flock instead of the library filelock, which always unlocks: a lock that child processes
    inherit lasts until the last of them has closed it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() >= deadline:
                os.close(descriptor)
                return None
        time.sleep(POLL_SECONDS)


@contextmanager
def folder_lock(folder: Path, patience_seconds: float = 30.0) -> Iterator[None]:
    """Locks a folder outside DVC's outs; a predecessor that is ending has `patience_seconds` to
    save and leave.

    Raises:
        LockHeld: another process kept the lock.
    """
    path = folder / "lock"
    descriptor = lock_file(path, patience_seconds)
    if descriptor is None:
        pid = path.read_text() or "unknown"
        raise LockHeld(
            f"{folder.name} is at work in process {pid}; "
            f"wait for it or end it with `kill {pid}`, then run again"
        )
    try:
        with suppress(OSError):  # a full disk
            os.ftruncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
        yield
    finally:
        # Closing alone is not enough: a forked child holds the same open file.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


# Signals.


@contextmanager
def on_signals(handler: Handler) -> Iterator[None]:
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


# Commands.


def shell_exit_code(returncode: int) -> int:
    return returncode if returncode >= 0 else 128 - returncode


def wait_for_child(process: subprocess.Popen) -> int:
    """Returns the exit code of a child that may save its work first; 130 if Ctrl-C ended it, for
    which dvc has a code of its own.

    Ctrl-C reaches the child through the terminal; SIGTERM is passed on. dvc dies of SIGTERM at
    once, but its stage saves its work and is waited for too.
    """
    received: list[int] = []
    stages: list[psutil.Process] = []

    def receive(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        if number == signal.SIGTERM:
            with suppress(psutil.Error):
                stages.extend(psutil.Process(process.pid).children(recursive=True))
            process.terminate()

    with on_signals(receive):
        returncode = process.wait()
        while any(map(is_working, stages)):
            time.sleep(POLL_SECONDS)
    if returncode and signal.SIGINT in received:
        return 128 + signal.SIGINT
    return shell_exit_code(returncode)


def is_working(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def show_lines(name: str, lines: Iterable[str], bar: tqdm) -> None:
    """Prints the lines of a command; what ends in a carriage return is the state of its bar."""
    for line in lines:
        text = line.strip()
        if line.endswith("\r") and not bar.disable:
            bar.set_description_str(text)
        elif text:
            with tqdm.external_write_mode(sys.stderr):
                console.info(text if name in text else f"{name}: {text}")


def run_parallel(
    commands: Mapping[str, Sequence[str]], limit: int, folder: Path, environment: Mapping[str, str]
) -> dict[str, int]:
    """Runs at most `limit` commands in parallel; prints their lines, with the
    command's name where they lack it, and on a terminal the bar of each below them.

    Returns the exit code of each command, 128 + signal if it was not started, and 130 if it ended
    after Ctrl-C, for which dvc has a code of its own. A failure stops no other; SIGINT and SIGTERM
    end all, and no further one starts. A command has ended when its output is closed: its children
    may still be saving their work.
    """
    received: list[int] = []
    running: list[subprocess.Popen[bytes]] = []
    if sys.stderr.isatty():
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
        environment = {**environment, console.COLUMNS_VARIABLE: str(columns - 1)}

    def receive(number: int, _frame: FrameType | None) -> None:
        # Ctrl-C reaches the commands through the terminal; SIGTERM is passed on.
        received.append(number)
        if number == signal.SIGTERM:
            for process in running:
                process.terminate()

    def follow(name: str) -> int:
        if received:
            return 128 + received[0]
        process = subprocess.Popen(commands[name], cwd=folder, env=environment, **PIPED)
        running.append(process)
        if received:  # before it was among those that run
            process.terminate()
        with process, tqdm(bar_format="{desc}", leave=False, disable=None) as bar:
            output = io.TextIOWrapper(process.stdout, errors="replace", newline="")  # type: ignore[type-var]
            show_lines(name, output, bar)
        is_interrupted = signal.SIGINT in received
        return 128 + signal.SIGINT if is_interrupted else shell_exit_code(process.returncode)

    with on_signals(receive), ThreadPoolExecutor(limit) as pool:
        return dict(zip(commands, pool.map(follow, commands), strict=True))
