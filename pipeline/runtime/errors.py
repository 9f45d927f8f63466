"""a failure -> the exit code of the process and one line: the errors that the pipeline adds to
those of `quatrain.errors`.
"""

import signal

from pipeline.runtime.console import redact
from quatrain.errors import DataError, DeviceFull, DiskError, FolderError, QuatrainError
from quatrain.storage import disk_errors

# How a file or folder of this checkout is restored, where its reader does not say it.
RESTORE = "restore it with `dvc checkout --force`, or remove its folder and run `dvc repro`"
# What the frameworks' errors, which are RuntimeErrors, say of an allocation that failed.
NO_MEMORY = (
    "RESOURCE_EXHAUSTED",
    "Out of memory",
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "std::bad_alloc",
)


class BaselineBroken(QuatrainError):
    """Says which scores are worse than their baseline."""

    exit_code = 4


class LockHeld(QuatrainError):
    """Says which other process does the same work."""

    exit_code = 5


class CommandFailed(QuatrainError):
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


class Interrupted(QuatrainError):
    def __init__(self, number: int) -> None:
        self.signal = signal.Signals(number)
        self.exit_code = 128 + number
        super().__init__(f"interrupted by {self.signal.name}; the next run continues")


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether an allocation failed: by Python, NumPy, or a framework's own error."""
    if isinstance(error, QuatrainError):  # which has a line of its own
        return False
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(text in str(error) for text in NO_MEMORY)
    )


def exit_code_of(error: BaseException) -> int | None:
    """Returns the exit code of an error that a user can mend; None for any other."""
    if isinstance(error, QuatrainError):
        return error.exit_code
    if is_out_of_memory(error):
        return DeviceFull.exit_code
    failure = disk_errors.describe(error) if isinstance(error, OSError) else None
    if failure is None:
        return None
    return DiskError.exit_code if failure.is_environment else DataError.exit_code


def described(error: BaseException) -> str:
    """Returns reason and remedy of an error; a folder of this checkout has one, too."""
    if isinstance(error, FolderError) and not error.remedy:
        return f"{error}; {RESTORE}"
    if isinstance(error, QuatrainError):
        return str(error)
    if is_out_of_memory(error):
        reason = next(iter(str(error).splitlines()), "") or "an allocation failed"
        return (
            f"out of memory: {reason}; lower the seeds, networks, batches or replay of the config, "
            "or use a machine with more"
        )
    failure = disk_errors.describe(error) if isinstance(error, OSError) else None
    return str(error) if failure is None else failure.text
