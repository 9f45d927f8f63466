"""an environment in a process of its own: calls go through a pipe, and it ends with its parent

Gymnasium's AsyncVectorEnv is not used: it steps all environments in every step, where here some
wait for others, has no PettingZoo agents, and does not say which environment raised.
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from threading import Thread
from typing import Any

from quatrain.envs.host.config import HostEnv
from quatrain.envs.host.masks import masks_of
from quatrain.envs.host.user_code import make, reason_of
from quatrain.errors import DataError

# How often the process is looked at while it answers.
POLL_SECONDS = 1.0
# How long a busy one may take to answer before it is killed.
PATIENCE_SECONDS = 5.0


class Worker:
    """Holds the pipe to an environment of parallel agents in another process.

    `ask` begins a call; `reset`, `step` and `close` return what it gives, so that others can be
    asked in between.
    """

    def __init__(self, config: HostEnv) -> None:
        """Starts the process; `wait` tells whether it has made the environment."""
        self._pipe, theirs = Pipe()
        with theirs:
            command = [sys.executable, "-m", __name__, str(theirs.fileno())]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,  # closes when this process ends, however it ends
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # a Ctrl-C is for the parent alone
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        self.ask("make", config)

    def ask(self, method: str, argument: Any = None) -> None:
        """Begins a call; where the process has died, `wait` tells so."""
        self._is_asked = True
        with suppress(OSError):
            self._pipe.send((method, argument))

    def wait(self) -> Any:
        """Returns the answer to what was asked.

        Raises:
            DataError: the environment raised, or its process died.
        """
        try:
            # A process that the environment forked may hold the pipe open.
            while not self._pipe.poll(POLL_SECONDS):
                if self._process.poll() is not None and not self._pipe.poll():
                    raise EOFError
            reason, answer = self._pipe.recv()
        except (EOFError, OSError):
            code = self._process.wait()
            raise DataError(
                f"its process ended with exit code {code}; vectorization: sync steps it in this "
                "one, which shows more"
            ) from None
        self._is_asked = False
        if reason:
            raise DataError(reason)
        return answer

    def reset(self, seed: int) -> Any:  # noqa: ARG002  it has been asked
        return self.wait()

    def step(self, actions: Any) -> Any:  # noqa: ARG002  it has been asked
        return self.wait()

    def close(self) -> None:
        """Closes the environment, and ends its process with those that it started; one that stays
        busy is killed.
        """
        try:
            is_alive = self._process.poll() is None
            if self._is_asked and is_alive and self._pipe.poll(PATIENCE_SECONDS):
                with suppress(DataError):
                    self.wait()
            if not self._is_asked:
                self.ask("close")
                self.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()
            self._pipe.close()


def serve(pipe: Connection) -> None:
    """Makes an environment, and answers calls until there are no more."""
    env: Any = None
    while True:
        method, argument = pipe.recv()
        try:
            answer: Any = None
            if method == "make":
                env = make(argument)
            elif method == "reset":
                answer = _sendable(env.reset(seed=argument))
            elif method == "step":
                answer = _sendable(env.step(argument))
            else:
                env.close()
            pipe.send(("", answer))
        except BaseException as error:
            pipe.send((reason_of(error), None))


def _sendable(answer: tuple) -> tuple:
    *values, infos = answer
    return (*values, masks_of(infos))


def _end_with_parent() -> None:
    os.read(0, 1)  # not sys.stdin, whose lock a forked process would wait for
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):
        serve(Connection(int(sys.argv[1])))
