"""a line for the user -> stderr."""

import io
import os
import sys
from contextlib import suppress


def info(line: str) -> None:
    """Prints a line to stderr; a closed pipe (`make repro | tee`, then Ctrl-C) is ignored, so that
    work is saved.
    """
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def accept_any_text() -> None:
    """Makes both streams escape what their encoding lacks, such as ± in ASCII, or a file name that
    is not UTF-8.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def flush() -> None:
    """Writes what is printed so far.

    Raises:
        OSError: the output takes no more; what is left is dropped, lest Python tries again at its
            end.
    """
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError as error:
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
        if not isinstance(error, BrokenPipeError):
            error.filename = "the output"
        raise
