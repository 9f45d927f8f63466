"""Errors about the data and devices that the inside is given; `TrainingDiverged` is in
progress.py.
"""


class DataError(ValueError):
    """Raised for arrays that are invalid or belong to something else."""


class DatasetMismatch(DataError):
    """Raised for a dataset of another config; names the difference. Collecting again is the
    remedy.
    """


class DeviceMissing(Exception):
    """Raised when params.yaml needs a device that this machine does not have."""


class DeviceFull(MemoryError):
    """Raised when the device is out of memory; names the allocation and the keys to lower."""
