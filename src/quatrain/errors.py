"""Errors that a user can fix: one line with reason and remedy, and the exit code of a command."""

import warnings


class QuatrainError(Exception):
    """Ends a command with one line; the base of all errors that a user can mend.

    Attributes:
        exit_code: the exit code of a command that the error ends.
        reason: what cannot be used, where and why.
        remedy: what to do; empty if the reason says it.
    """

    exit_code: int = 1

    def __init__(self, reason: str = "", *, remedy: str = "") -> None:
        super().__init__(f"{reason}; {remedy}" if remedy else reason)
        self.reason = reason
        self.remedy = remedy


class ConfigError(QuatrainError, ValueError):
    """Says which key, value or option cannot be used, why, and what to write instead."""

    exit_code = 2


class DataError(QuatrainError, ValueError):
    """Says which arrays or files are invalid or belong to something else."""

    exit_code = 3


class FolderError(DataError):
    """Says which file or folder of results cannot be used, and why; without a remedy, its owner
    knows how to restore it.
    """


class DatasetMismatch(DataError):
    """Signals a dataset of another config; the remedy is to collect again."""


class PackageMissing(QuatrainError, ImportError):
    """Says which packages are not installed, and how to install them."""

    exit_code = 5


class DiskError(QuatrainError, OSError):
    """Says which path cannot be read or written, why, and what to do."""

    exit_code = 5


class DeviceMissing(QuatrainError):
    """Signals that params.yaml needs a device that this machine does not have."""

    exit_code = 5


class DeviceFull(QuatrainError, MemoryError):
    """Signals that the device is out of memory; names the allocation and the keys to lower."""

    exit_code = 5


class TrainingDiverged(QuatrainError, ArithmeticError):
    """Signals a value that is not finite; names model, step, term and the key to change."""

    exit_code = 7


def warn(message: str) -> None:
    """Warns of what a user can mend: by the message alone, without a line of this package."""
    warnings.warn_explicit(message, UserWarning, "<quatrain>", 1, module="quatrain")
