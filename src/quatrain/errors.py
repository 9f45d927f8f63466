"""Errors about data, devices and training that a user can mend."""


class DataError(ValueError):
    """Arrays that cannot be what they claim to be, or that belong to something else."""


class DatasetMismatch(DataError):
    """A dataset was collected for another config than this one: says what differs; to collect again mends it."""


class DeviceMissing(Exception):
    """What params.yaml asks for needs a device that is not in this machine."""


class DeviceFull(MemoryError):
    """The device has no memory left: says for what, and which keys to lower."""


class TrainingDiverged(ArithmeticError):
    """Says which model, step and loss term is not finite, and which key to change."""
