"""a line for the user -> stderr."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pipeline.runtime.redaction import redact


def info(line: str) -> None:
    """Prints a line to stderr; a closed pipe (`make repro | tee`, then Ctrl-C) is ignored, so that
    work is saved.
    """
    with suppress(OSError):
        print(redact(line), file=sys.stderr, flush=True)


def accept_any_text() -> None:
    """Makes both streams escape what their encoding lacks, such as ± in ASCII, or a file name that
    is not UTF-8.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def flush() -> None:
    """Writes what is printed so far.

    Raises:
        OSError: the output takes no more.
    """
    error = _flushed(sys.stdout)
    if error is None:
        return
    if not isinstance(error, BrokenPipeError):
        error.filename = "the output"
    raise error


def _flushed(stream: Any) -> OSError | None:
    """Returns why a stream takes no more; what is left in it is dropped, lest Python tries again at
    its end, fails, and exits with 120.
    """
    try:
        if stream is not None:
            stream.flush()
    except OSError as error:
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
        return error
    return None


@contextmanager
def drained() -> Iterator[None]:
    """Drops at the end what the output does not take."""
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            _flushed(stream)
