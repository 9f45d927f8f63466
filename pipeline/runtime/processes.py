"""commands -> their exit codes: one that may save its work, one after another under a lock, or
several in parallel.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType
from typing import NamedTuple, Self

import psutil

from pipeline.runtime import console, file_lock, signals
from pipeline.runtime.errors import CommandFailed, Interrupted, LockHeld, reason_in
from pipeline.runtime.git import git_environment
from pipeline.runtime.redaction import redact

# How long the commands of a killed predecessor may take to save and leave.
PATIENCE_SECONDS = 60.0
POLL_SECONDS = 0.05


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


class Output(NamedTuple):
    code: int
    stdout: str
    stderr: str


class CommandSequence:
    """Runs commands one after another in the foreground, under a lock that each of them inherits.

    The lock lasts while one of them lives, even if this process was killed; then they are sent
    SIGTERM. After a signal no further command starts.
    """

    def __init__(self, lock: Path, name: str, patience_seconds: float) -> None:
        self._lock = lock
        self._name = name
        self._patience_seconds = patience_seconds
        self._received: int | None = None
        self._process: subprocess.Popen[str] | None = None
        self._cleanup = ExitStack()

    def __enter__(self) -> Self:
        descriptor = file_lock.acquire(self._lock, self._patience_seconds)
        if descriptor is None:
            raise LockHeld(
                f"another {self._name} is at work in this checkout; wait for it or end it"
            )
        self._descriptor = descriptor
        self._cleanup.callback(os.close, descriptor)
        self._cleanup.enter_context(signals.handle(self._receive))
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def call(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
    ) -> int:
        """Returns the exit code of a command, 128 + number after a signal; its output is shown.

        Raises:
            Interrupted: this process or the command received a signal.
        """
        return self._run(command, folder, environment, None).code

    def read(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
    ) -> str:
        """Returns the stdout of a command without the last newline.

        Raises:
            CommandFailed: its exit code is not 0.
            Interrupted: a signal was received.
        """
        output = self._run(command, folder, environment, subprocess.PIPE)
        if output.code:
            reason = reason_in(output.stderr, output.code)
            raise CommandFailed(f"`{redact(' '.join(command))}` failed: {reason}")
        return output.stdout.rstrip("\n")

    def tell(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
    ) -> int:
        """Returns the exit code of a command that may print secrets; what it printed is shown
        without them when it has ended.

        Raises:
            Interrupted: a signal was received.
        """
        output = self._run(command, folder, environment, subprocess.PIPE)
        for line in (output.stdout + output.stderr).splitlines():
            console.info(line)
        return output.code

    def succeeds(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
    ) -> bool:
        """Returns whether a command ends with exit code 0; its output is dropped.

        Raises:
            Interrupted: a signal was received.
        """
        return self._run(command, folder, environment, subprocess.PIPE).code == 0

    def _run(
        self,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str] | None,
        pipe: int | None,
    ) -> Output:
        self._check()
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env=git_environment() if environment is None else environment,
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            text=True,
            errors="replace",
            pass_fds=(self._descriptor,),
            preexec_fn=signals.parent_death_signal(),  # safe: there is no other thread
        )
        if self._received == signal.SIGTERM:
            self._process.terminate()
        stdout, stderr = self._process.communicate()
        returncode = self._process.returncode
        self._process = None
        self._check()
        if -returncode in signals.ENDING:
            raise Interrupted(-returncode)
        return Output(shell_exit_code(returncode), stdout or "", stderr or "")

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        # Ctrl-C reaches the command through the terminal, and a second one would keep it from
        # saving.
        self._received = self._received or number
        process = self._process
        if number == signal.SIGTERM and process is not None and process.poll() is None:
            process.terminate()

    def _check(self) -> None:
        if self._received is not None:
            raise Interrupted(self._received)
