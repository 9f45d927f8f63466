"""named commands -> their exit codes: several at the same time, every line that they say under its name."""

import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from pipeline.runtime.stage import say


def exit_code(code: int) -> int:
    """What a shell would say of a child that ended so."""
    return code if code >= 0 else 128 - code


class Jobs:
    """At most `at_once` commands side by side; Ctrl-C and SIGTERM end all of them, and start no further one.

    A command is over when nobody holds its output any more: its children may still be saving their work.
    """

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once
        self._received: signal.Signals | None = None
        self._running: list[subprocess.Popen[str]] = []
        self._starting = threading.RLock()  # a second signal may come while the first is served

    def run(
        self, commands: Mapping[str, Sequence[str]], cwd: Path, environment: Mapping[str, str]
    ) -> dict[str, int]:
        """The exit code of each, 128 + signal where it was not started; one that fails stops no other."""
        with self._signals(), ThreadPoolExecutor(self.at_once) as pool:
            started = {
                name: pool.submit(self._follow, name, command, cwd, environment)
                for name, command in commands.items()
            }
            return {name: future.result() for name, future in started.items()}

    def _follow(
        self, name: str, command: Sequence[str], cwd: Path, environment: Mapping[str, str]
    ) -> int:
        with self._starting:
            if self._received is not None:
                return 128 + self._received
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
            self._running.append(process)
        with process:
            for line in process.stdout or ():
                tell(name, line)
        return exit_code(process.returncode)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        before = {
            number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, number: int, _frame: object) -> None:
        """Ctrl-C reaches the commands by itself, for they share our terminal; SIGTERM is passed on."""
        with self._starting:
            self._received = signal.Signals(number)
        if number == signal.SIGTERM:
            for process in self._running:
                process.terminate()


def tell(name: str, line: str) -> None:
    """A line on stderr that says whose it is; empty ones only part what stands alone."""
    said = line.strip()
    if said:
        say(said if said.startswith(name) else f"{name}: {said}")
