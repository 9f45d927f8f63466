"""commands -> their exit codes: one that may save its work, or several in parallel."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import FrameType

import psutil

from pipeline.runtime import console, signals

POLL_SECONDS = 0.05


def core_count() -> int:
    """Returns how many cores this process may use; macOS tells only how many there are."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def shell_exit_code(returncode: int) -> int:
    return returncode if returncode >= 0 else 128 - returncode


def wait_for_child(process: subprocess.Popen) -> int:
    """Returns the exit code of a child that may save its work first; 130 if Ctrl-C ended it, for
    which dvc has a code of its own.

    Ctrl-C reaches the child through the terminal; SIGTERM is passed on. dvc dies of SIGTERM at
    once, but its stage saves its work and is waited for too.
    """
    stages: list[psutil.Process] = []
    is_interrupted = False

    def terminate(*_: object) -> None:
        with suppress(psutil.Error):
            stages.extend(psutil.Process(process.pid).children(recursive=True))
        process.terminate()

    previous = signal.signal(signal.SIGTERM, terminate)
    try:
        while True:
            try:
                returncode = process.wait()
                while any(is_working(stage) for stage in stages):
                    time.sleep(POLL_SECONDS)
                is_ended_by_it = is_interrupted and returncode != 0
                return 128 + signal.SIGINT if is_ended_by_it else shell_exit_code(returncode)
            except KeyboardInterrupt:
                is_interrupted = True
    finally:
        signal.signal(signal.SIGTERM, previous)


def is_working(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class ParallelCommands:
    """Runs at most `limit` commands in parallel; SIGINT and SIGTERM end all of them, and no further
    one starts.

    A command has ended when its output is closed: its children may still be saving their work.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._received: int | None = None
        self._running: list[subprocess.Popen[str]] = []
        # Reentrant: a second signal may arrive while the handler of the first one runs.
        self._starting = threading.RLock()

    def run(
        self, commands: Mapping[str, Sequence[str]], folder: Path, environment: Mapping[str, str]
    ) -> dict[str, int]:
        """Returns the exit code of each command, 128 + signal if it was not started; a failure
        stops no other.
        """
        with signals.handle(self._receive), ThreadPoolExecutor(self.limit) as pool:
            started = {
                name: pool.submit(self._follow, name, command, folder, environment)
                for name, command in commands.items()
            }
            return {name: future.result() for name, future in started.items()}

    def _follow(
        self, name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> int:
        with self._starting:
            if self._received is not None:
                return 128 + self._received
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
            self._running.append(process)
        with process:
            for line in process.stdout or ():
                print_named(name, line)
        return shell_exit_code(process.returncode)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        # Ctrl-C reaches the commands through the terminal; SIGTERM is passed on.
        with self._starting:
            self._received = number
        if number == signal.SIGTERM:
            for process in self._running:
                process.terminate()


def print_named(name: str, line: str) -> None:
    text = line.strip()
    if text:
        console.info(text if text.startswith(name) else f"{name}: {text}")
