"""transitions, one by one or many at once -> a ring of the newest on the host -> uniform batches of contiguous columns

An example of one transition, a NamedTuple or a dictionary, gives the columns with their shapes and dtypes; batches come
back in its form. Columns stand apart, and a draw takes each by the same picks: a table of records would be one gather,
but to cut the columns out of what it gives takes longer than to gather them, for small rows and for large ones.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from quatrain.errors import DataError

Form = TypeVar("Form")
"""A NamedTuple or a dictionary of columns."""
SCALARS: dict[str, frozenset[type]] = {
    "f": frozenset([float, np.float16, np.float32, np.float64]),
    "b": frozenset([bool, np.bool_]),
}
"""Kind of a column -> numbers that it takes whatever their value."""


class ReplayError(DataError):
    """Data that cannot be stored or sampled."""


class Column(NamedTuple):
    """What a column keeps, and what it takes without a closer look."""

    name: str
    slots: np.ndarray
    shape: tuple[int, ...]
    dtype: np.dtype
    scalars: frozenset[type]
    integers: Container[int]
    """Of Python's."""


class HostRing(Generic[Form]):
    """The newest `capacity` transitions: each new one takes the place of the oldest.

    What is refused leaves the ring as it was. Floats may lose precision, integers must fit, nothing else is cast.
    """

    def __init__(self, capacity: int, example: Form) -> None:
        """Room for transitions like the example, which is not added.

        Raises:
            ReplayError: there is no room or no column, or a column is not of numbers.
        """
        if capacity < 1:
            raise ReplayError(
                f"A ring of {capacity} transitions holds nothing; its capacity must be at least 1."
            )
        self._names, values = _named(example)
        if not self._names:
            raise ReplayError(
                f"A {type(example).__name__} names no column; begin a ring with a NamedTuple or a dictionary."
            )
        columns = [
            _column(name, np.asarray(value), capacity)
            for name, value in zip(self._names, values, strict=True)
        ]
        self._slots = [column.slots for column in columns]
        # Plain tuples: those with names take longer to unpack.
        self._wanted: list[tuple[Any, ...]] = [tuple(column[2:]) for column in columns]
        self._kind, self._form = type(example), _maker(example)
        self._tuple = None if isinstance(example, Mapping) else self._kind
        self._capacity, self._stored, self._head = capacity, 0, 0

    def __len__(self) -> int:
        """Transitions that can be drawn."""
        return self._stored

    def add(self, transition: Form) -> None:
        """One transition, in place of the oldest if the ring is full.

        Raises:
            ReplayError: it has other columns, or a column of another shape or of a dtype that does not fit.
        """
        values: Any = transition if type(transition) is self._tuple else self._values(transition)
        for (shape, dtype, scalars, integers), value in zip(self._wanted, values):  # noqa: B905 - strict takes its time
            kind = type(value)
            if kind is np.ndarray:
                if value.dtype is dtype and value.shape == shape:
                    continue
            elif kind in scalars or (kind is int and value in integers):
                continue
            self._look_at(values, ())
            break
        head = self._head
        for slots, value in zip(self._slots, values):  # noqa: B905
            slots[head] = value
        self._moved(1)

    def extend(self, batch: Form) -> None:
        """Many transitions, oldest first, in place of the oldest: columns with an axis in front.

        Raises:
            ReplayError: as `add`, or the columns are not equally long, or longer than the ring.
        """
        values = self._many(batch)
        count = len(values[0])
        head, end = self._head, self._head + count
        if end <= self._capacity:
            for slots, rows in zip(self._slots, values, strict=True):
                slots[head:end] = rows
        else:
            before_end = self._capacity - head
            for slots, rows in zip(self._slots, values, strict=True):
                slots[head:], slots[: end - self._capacity] = rows[:before_end], rows[before_end:]
        self._moved(count)

    def sample(self, rng: np.random.Generator, batch_size: int) -> Form:
        """Transitions uniform with replacement, in fresh arrays.

        Raises:
            ReplayError: the ring is empty.
        """
        if self._stored == 0:
            raise ReplayError(
                f"Cannot sample {batch_size} transitions: the ring holds none. Add one first."
            )
        # floor(u N) is half the price of rng.integers, and as even as 53 bits allow.
        uniforms = rng.random(batch_size)
        uniforms *= self._stored
        picks = uniforms.astype(np.intp)
        # "clip" has nothing to clip and only spares a check; for small rows a fresh array is cheaper than `out`.
        return self._form([slots.take(picks, 0, None, "clip") for slots in self._slots])

    def _values(self, given: Form) -> Sequence[Any]:
        """Of all columns of a dictionary, in their order."""
        if self._tuple is None and isinstance(given, Mapping) and given.keys() == set(self._names):
            return [given[name] for name in self._names]
        told = ", ".join(_named(given)[0]) or "no names"
        raise ReplayError(
            f"A {type(given).__name__} with {told} does not fit a ring of {self._kind.__name__} with "
            f"{', '.join(self._names)}; give it what its example has."
        )

    def _many(self, batch: Form) -> Sequence[np.ndarray]:
        """Columns of a batch that fits."""
        values: Any = batch if type(batch) is self._tuple else self._values(batch)
        values = [rows if type(rows) is np.ndarray else np.asarray(rows) for rows in values]
        count = self._count(values)
        for (shape, dtype, _, _), rows in zip(self._wanted, values, strict=True):
            if rows.dtype is not dtype or rows.shape[1:] != shape:
                self._look_at(values, (count,))
                break
        return values

    def _count(self, values: Sequence[np.ndarray]) -> int:
        """Rows of a batch."""
        lengths = [len(rows) if rows.ndim else None for rows in values]
        count = lengths[0]
        if count is None or lengths.count(count) < len(lengths):
            told = ", ".join(
                f"{name} {length}" for name, length in zip(self._names, lengths, strict=True)
            )
            raise ReplayError(
                f"Columns of a batch must have equally many rows, not {told}; `add` takes one."
            )
        if count > self._capacity:
            raise ReplayError(
                f"A batch of {count} transitions does not fit into a ring of {self._capacity}; "
                "raise its capacity or drop the oldest."
            )
        return count

    def _look_at(self, values: Sequence[Any], front: tuple[int, ...]) -> None:
        """Raises where one column does not fit; `front`: the axis that a batch has more."""
        for name, (shape, dtype, *_), value in zip(self._names, self._wanted, values, strict=True):
            _refuse(name, np.asarray(value), (*front, *shape), dtype)

    def _moved(self, count: int) -> None:
        head = self._head + count
        self._head = head if head < self._capacity else head - self._capacity
        if self._stored < self._capacity:
            self._stored = min(self._stored + count, self._capacity)


def _named(given: Any) -> tuple[tuple[str, ...], Sequence[Any]]:
    """Names and values; neither where it is no NamedTuple and no dictionary."""
    if isinstance(given, Mapping):
        return tuple(given), list(given.values())
    return (given._fields, given) if hasattr(given, "_fields") else ((), ())


def _maker(example: Any) -> Callable[[list[np.ndarray]], Any]:
    """Columns -> a batch in the example's form."""
    if not isinstance(example, Mapping):
        return type(example)._make
    names = tuple(example)
    return lambda columns: dict(zip(names, columns, strict=True))


def _column(name: str, value: np.ndarray, capacity: int) -> Column:
    shape, dtype = value.shape, value.dtype
    if dtype.kind not in "biuf":
        raise ReplayError(f"Column {name} of the example has dtype {dtype}; give it numbers.")
    scalars, integers = frozenset[type](), range(0)
    if not shape:
        scalars = SCALARS.get(dtype.kind, frozenset([dtype.type]))
    if not shape and dtype.kind in "iu":
        integers = range(np.iinfo(dtype).min, np.iinfo(dtype).max + 1)
    return Column(name, np.zeros((capacity, *shape), dtype), shape, dtype, scalars, integers)


def _refuse(name: str, values: np.ndarray, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Raises where values cannot stand in a column as they are or cast."""
    if values.shape != shape:
        raise ReplayError(
            f"Column {name} has shape {values.shape}, not {shape}; a ring keeps that of its example."
        )
    if not _fits(values, dtype):
        raise ReplayError(
            f"Column {name} is kept as {dtype}, which {values.dtype} values ({values.ravel()[:1].tolist()} first) "
            "do not fit; cast them, or begin the ring with another example."
        )


def _fits(values: np.ndarray, dtype: np.dtype) -> bool:
    if dtype.kind in "iu" and values.dtype.kind in "iu" and values.size:
        limits = np.iinfo(dtype)
        return bool(limits.min <= values.min() and values.max() <= limits.max)
    return np.can_cast(values.dtype, dtype, "same_kind")
