"""What the inside raises about data that it is given; learning's own error stands in progress.py."""


class DataError(ValueError):
    """Arrays that cannot be what they claim to be, or that belong to something else."""
