"""an environment in a process of its own: calls go through a pipe, and it ends with its parent

Gymnasium's AsyncVectorEnv is not used: it steps all environments in every step, where here some
wait for others, has no PettingZoo agents, and does not say which environment raised.
"""

import os
import subprocess
import sys
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from threading import Thread
from typing import Any

from quatrain.envs.host.config import HostEnv
from quatrain.envs.host.user_code import make, reason_of
from quatrain.errors import DataError


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
        """Closes the environment, and ends its process; one that is busy is killed."""
        try:
            if not self._is_asked:
                self.ask("close")
                self.wait()
        finally:
            self._process.kill()
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
                answer = (env.reset(seed=argument)[0], None)
            elif method == "step":
                answer = (*env.step(argument)[:4], None)
            else:
                env.close()
            pipe.send(("", answer))
        except BaseException as error:
            pipe.send((reason_of(error), None))


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):
        serve(Connection(int(sys.argv[1])))
