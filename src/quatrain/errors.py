"""Errors about configs, data, devices and training that a user can fix."""


class ConfigError(ValueError):
    """Says which key, value or option cannot be used, why, and what to write instead."""


class PackageMissing(ImportError):
    """Says which packages are not installed, and how to install them."""


class DataError(ValueError):
    """Signals arrays that are invalid or belong to something else."""


class DatasetMismatch(DataError):
    """Signals a dataset of another config; the remedy is to collect again."""


class DiskError(OSError):
    """Says which path cannot be read or written, why, and what to do."""


class DeviceMissing(Exception):
    """Signals that params.yaml needs a device that this machine does not have."""


class DeviceFull(MemoryError):
    """Signals that the device is out of memory; names the allocation and the keys to lower."""


class TrainingDiverged(ArithmeticError):
    """Signals a value that is not finite; names model, step, term and the key to change."""
