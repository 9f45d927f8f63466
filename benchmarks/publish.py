"""`publish` at its former place."""

from benchmarks.run import publish

__all__ = ["publish"]
