"""a line for the user -> stderr."""

import sys
from contextlib import suppress


def info(line: str) -> None:
    """Prints a line to stderr; a closed pipe (`make repro | tee`, then Ctrl-C) is ignored, so that
    work is saved.
    """
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)
