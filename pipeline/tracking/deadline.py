"""a call of a server -> its answer, or an error at a deadline that counts the call as a whole.

A timeout of a socket counts from one byte to the next: a server that drips headers or bytes, or
redirects for ever, never meets it. Each call has a thread of its own, which is given up when time
is over. That holds for whatever mlflow does inside a call: requests, uploads, drivers of databases.
"""

import ctypes
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, TypeVar

from quatrain.errors import QuatrainError

# Longest duration of one call, from the connection to the last byte of the answer.
CALL_SECONDS = 30.0
# Bytes per second that a call with a file may take in addition.
UPLOAD_RATE = 1e6
# Bytes of an answer: an endless one would fill the memory before the deadline.
LONGEST_ANSWER = 64 * 2**20

Answer = TypeVar("Answer")


class Unreachable(QuatrainError):
    """Says why the tracking store does not answer, or cannot take a run."""

    exit_code = 6


class Late(Unreachable):
    """Says which call was given up at its deadline."""


class NotKept(QuatrainError):
    """Says what a store acknowledged and does not have."""

    exit_code = 6


class GivenUp(BaseException):
    """Ends the thread of a call that nobody waits for, as soon as it runs again."""


def within(seconds: float, what: str, work: Callable[[], Answer]) -> Answer:
    """Returns what `work` returns, or raises what it raises.

    Raises:
        Late: it took longer than `seconds`.
    """
    future: Future[Answer] = Future()
    thread = threading.Thread(target=_settle, args=(future, work), name=what, daemon=True)
    thread.start()
    wait([future], seconds)
    if not future.done():
        _give_up(thread)
        raise Late(f"{what}: no complete answer within {seconds:g} s")
    return future.result()


def _settle(future: Future[Any], work: Callable[[], Any]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)


def _give_up(thread: threading.Thread) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident or 0), ctypes.py_object(GivenUp)
    )


class BoundedClient:
    """Wraps an MlflowClient, so that each of its methods ends within CALL_SECONDS."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._client, name)
        return partial(self.call, name) if callable(attribute) else attribute

    def call(self, method: str, *arguments: Any, size: float = 0, **named: Any) -> Any:
        """Calls a method; size: bytes of the file that it sends.

        Raises:
            Late: it took longer than CALL_SECONDS and the time for its file.
            Exception: any error of mlflow and its libraries.
        """
        work = partial(getattr(self._client, method), *arguments, **named)
        return within(CALL_SECONDS + size / UPLOAD_RATE, method, work)


def limit_answers() -> None:
    """Makes mlflow refuse an answer that is longer than LONGEST_ANSWER."""
    from mlflow.utils import request_utils

    plain = request_utils.TCPKeepAliveHTTPAdapter
    if plain.__name__ == "LimitedAdapter":
        return

    class LimitedAdapter(plain):  # type: ignore[misc, valid-type]
        def build_response(self, request: Any, answer: Any) -> Any:
            answer.stream = partial(_limited, answer.stream)
            return super().build_response(request, answer)

    request_utils.TCPKeepAliveHTTPAdapter = LimitedAdapter  # type: ignore[misc]


def _limited(stream: Callable[..., Iterator[bytes]], *arguments: Any, **named: Any) -> Any:
    length = 0
    for chunk in stream(*arguments, **named):
        length += len(chunk)
        if length > LONGEST_ANSWER:
            raise Unreachable(f"an answer is longer than {LONGEST_ANSWER:,} bytes")
        yield chunk
