"""a failure -> the exit code of the process and one line: the errors that the pipeline adds to
those of `quatrain.errors`.
"""

import signal

from quatrain.errors import DataError, DeviceFull, DiskError, FolderError, QuatrainError
from quatrain.memory import is_out_of_memory
from quatrain.storage import disk_errors

# How a file or folder of this checkout is restored, where its reader does not say it.
RESTORE = "restore it with `dvc checkout --force`, or remove its folder and run `dvc repro`"
LOWER = "lower the seeds, networks, batches or replay of the config, or use a machine with more"


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


class Interrupted(QuatrainError):
    def __init__(self, number: int) -> None:
        self.signal = signal.Signals(number)
        self.exit_code = 128 + number
        super().__init__(f"interrupted by {self.signal.name}; the next run continues")


def as_quatrain_error(error: BaseException) -> QuatrainError | None:
    """Returns the error of quatrain, with exit code, reason and remedy, for one that a user can
    mend: of a folder, of the machine's files, or of an allocation by Python, NumPy or a framework;
    None for any other.
    """
    if isinstance(error, FolderError) and not error.remedy:
        return FolderError(error.reason, remedy=RESTORE)
    if isinstance(error, QuatrainError):
        return error
    if is_out_of_memory(error):
        reason = next(iter(str(error).splitlines()), "an allocation failed")
        return DeviceFull(f"out of memory: {reason}", remedy=LOWER)
    failure = disk_errors.describe(error) if isinstance(error, OSError) else None
    if failure is None:
        return None
    return (DiskError if failure.is_environment else DataError)(failure.text)


def exit_code_of(error: BaseException) -> int | None:
    """Returns the exit code of an error that a user can mend; None for any other."""
    ours = as_quatrain_error(error)
    return None if ours is None else ours.exit_code


def described(error: BaseException) -> str:
    """Returns reason and remedy of an error."""
    return str(as_quatrain_error(error) or error)
