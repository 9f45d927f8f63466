"""a failure -> the exit code of the process: the base class of all errors that end a command with
one line.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from pipeline.runtime.redaction import redact
from quatrain import errors
from quatrain.errors import DataError, DeviceFull, DeviceMissing, TrainingDiverged
from quatrain.storage import disk_errors

EXIT_CODES: dict[type[Exception], int] = {
    errors.ConfigError: 2,
    DataError: 3,
    DeviceMissing: 5,
    DeviceFull: 5,
    TrainingDiverged: 7,
}


# What the frameworks' errors, which are RuntimeErrors, say of an allocation that failed.
NO_MEMORY = (
    "RESOURCE_EXHAUSTED",
    "Out of memory",
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "std::bad_alloc",
)


class PipelineError(Exception):
    """Ends a command with its message in one line and with `exit_code`."""

    exit_code: int = 1


class ConfigError(PipelineError):
    """Says which file, key or option cannot be used, why, and what to write instead."""

    exit_code = 2


class ArtifactError(PipelineError):
    """Says which file or folder cannot be used, why, and how to restore it."""

    exit_code = 3


class BaselineBroken(PipelineError):
    """Says which scores are worse than their baseline."""

    exit_code = 4


class LockHeld(PipelineError):
    """Says which other process does the same work."""

    exit_code = 5


class StoreUnavailable(PipelineError):
    """Says what is not recorded or delivered because the tracking store does not answer."""

    exit_code = 6


class CommandFailed(PipelineError):
    """Says which command failed; it may have an exit code of its own."""

    def __init__(self, reason: str, exit_code: int = 5) -> None:
        super().__init__(reason)
        self.exit_code = exit_code


def reason_in(stderr: str, code: int) -> str:
    """Returns what a command says of its failure in one line: the reason may be on any of its
    lines, as git's.
    """
    lines = filter(None, map(str.strip, stderr.splitlines()))
    said = "; ".join(redact(line) for line in lines if not line.startswith("hint:"))
    return said or f"exit code {code}"


class Interrupted(PipelineError):
    def __init__(self, number: int) -> None:
        self.signal = signal.Signals(number)
        self.exit_code = 128 + number
        super().__init__(f"interrupted by {self.signal.name}; the next run continues")


@contextmanager
def raised_as(
    kind: type[PipelineError], source: type[Exception], remedy: str = ""
) -> Iterator[None]:
    """Raises an error of the package as one of the pipeline, with a remedy that it has."""
    try:
        yield
    except source as error:
        raise kind(f"{error}; {remedy}" if remedy else str(error)) from None


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether an allocation failed: by Python, NumPy, or a framework's own error."""
    if isinstance(error, tuple(EXIT_CODES)):  # which have lines of their own
        return False
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(text in str(error) for text in NO_MEMORY)
    )


def exit_code_of(error: BaseException) -> int | None:
    """Returns the exit code of an error that a user can mend; None for any other."""
    if isinstance(error, PipelineError):
        return error.exit_code
    if is_out_of_memory(error):
        return EXIT_CODES[DeviceFull]
    failure = disk_errors.describe(error) if isinstance(error, OSError) else None
    if failure is not None:
        return 5 if failure.is_environment else ArtifactError.exit_code
    return next((code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), None)


def described(error: BaseException) -> str:
    """Returns the message of an error; of the disk or the memory, reason and remedy."""
    if is_out_of_memory(error):
        reason = next(iter(str(error).splitlines()), "") or "an allocation failed"
        return (
            f"out of memory: {reason}; lower the seeds, networks, batches or replay of the config, "
            "or use a machine with more"
        )
    failure = disk_errors.describe(error) if isinstance(error, OSError) else None
    return str(error) if failure is None else failure.text
