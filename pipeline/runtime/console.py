"""a line for the user -> stderr."""

import sys
from contextlib import suppress

from pipeline.runtime.redaction import redact


def info(line: str) -> None:
    """Prints a line to stderr; a closed pipe (`make repro | tee`, then Ctrl-C) is ignored, so that
    work is saved.
    """
    with suppress(OSError):
        print(redact(line), file=sys.stderr, flush=True)
