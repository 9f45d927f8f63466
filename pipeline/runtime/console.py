"""a line for the user -> stderr."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pipeline.runtime.redaction import redact


def info(line: str) -> None:
    """Prints a line to stderr; a closed pipe (`make repro | tee`, then Ctrl-C) is ignored, so that
    work is saved.
    """
    with suppress(OSError):
        print(redact(line), file=sys.stderr, flush=True)


@contextmanager
def redacted() -> Iterator[None]:
    """Hides secrets in all that is printed meanwhile, by libraries too."""
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_Redacted.of(stream) for stream in streams)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams


class _Redacted:
    """Writes to a stream what has no secrets, and is that stream in all else."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    @classmethod
    def of(cls, stream: Any) -> Any:
        return stream if stream is None or isinstance(stream, cls) else cls(stream)

    def write(self, text: str) -> int:
        self._stream.write(redact(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
