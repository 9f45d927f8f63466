"""transitions, one by one or many at once -> a ring of the newest on the host -> uniform batches of
columns

An example transition, a NamedTuple or a dictionary, defines the columns with their shapes and
dtypes; batches have its type. Each column is an array of its own: with a table of records a draw
would be one gather, but splitting its result into columns takes longer than one gather per column,
for small and for large records.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from quatrain.errors import DataError

# A NamedTuple or a dictionary of columns.
Columns = TypeVar("Columns")
# Kind of a column -> types of scalars that always fit.
SCALARS: dict[str, frozenset[type]] = {
    "f": frozenset([float, np.float16, np.float32, np.float64]),
    "b": frozenset([bool, np.bool_]),
}


class ReplayError(DataError):
    """Reports data that cannot be stored or sampled."""


class Column(NamedTuple):
    """Holds the storage of a column, and the values that fit without a check.

    scalars: types of scalars. integers: range of Python integers.
    """

    name: str
    slots: np.ndarray
    shape: tuple[int, ...]
    dtype: np.dtype
    scalars: frozenset[type]
    integers: Container[int]


class HostRing(Generic[Columns]):
    """Holds the newest `capacity` transitions: each new one replaces the oldest.

    An error leaves the ring unchanged. Floats may lose precision, integers must fit, nothing else
    is cast.
    """

    def __init__(self, capacity: int, example: Columns) -> None:
        """Allocates space for transitions like the example, which is not added.

        Raises:
            ReplayError: the capacity is below 1, there is no column, or a column is not numeric.
        """
        if capacity < 1:
            raise ReplayError(
                f"A ring of {capacity} transitions holds nothing; its capacity must be at least 1."
            )
        self._names, values = _items(example)
        if not self._names:
            raise ReplayError(
                f"A {type(example).__name__} names no column; "
                "begin a ring with a NamedTuple or a dictionary."
            )
        columns = [
            _column(name, np.asarray(value), capacity)
            for name, value in zip(self._names, values, strict=True)
        ]
        self._slots = [column.slots for column in columns]
        # Plain tuples unpack faster than NamedTuples.
        self._expected: list[tuple[Any, ...]] = [tuple(column[2:]) for column in columns]
        self._type = type(example)
        self._make_batch = _batch_maker(example)
        self._tuple_type = None if isinstance(example, Mapping) else self._type
        self._capacity = capacity
        self._stored = 0
        self._head = 0

    def __len__(self) -> int:
        """Returns the number of transitions that can be drawn."""
        return self._stored

    def add(self, transition: Columns) -> None:
        """Adds one transition, in place of the oldest if the ring is full.

        Raises:
            ReplayError: it has other columns, or a column of another shape or of a dtype that does
                not fit.
        """
        values: Any = transition
        if type(transition) is not self._tuple_type:
            values = self._values(transition)
        # strict is slower
        for (shape, dtype, scalars, integers), value in zip(self._expected, values):  # noqa: B905
            kind = type(value)
            if kind is np.ndarray:
                if value.dtype is dtype and value.shape == shape:
                    continue
            elif kind in scalars or (kind is int and value in integers):
                continue
            self._check_columns(values, ())
            break
        head = self._head
        for slots, value in zip(self._slots, values):  # noqa: B905
            slots[head] = value
        self._advance(1)

    def extend(self, batch: Columns) -> None:
        """Adds many transitions, oldest first, in place of the oldest: columns with a leading axis.

        Raises:
            ReplayError: as `add`; or columns have different lengths, or are longer than the ring.
        """
        columns = self._checked_columns(batch)
        count = len(columns[0])
        before_end = min(count, self._capacity - self._head)
        end = self._head + before_end
        for slots, column in zip(self._slots, columns, strict=True):
            slots[self._head : end] = column[:before_end]
            if before_end < count:
                slots[: count - before_end] = column[before_end:]
        self._advance(count)

    def sample(self, rng: np.random.Generator, batch_size: int) -> Columns:
        """Draws transitions uniformly with replacement, into new arrays.

        Raises:
            ReplayError: the ring is empty.
        """
        if self._stored == 0:
            raise ReplayError(
                f"Cannot sample {batch_size} transitions: the ring holds none. Add one first."
            )
        # floor(u N) takes half the time of rng.integers, and is as uniform as 53 bits allow.
        uniforms = rng.random(batch_size)
        uniforms *= self._stored
        picks = uniforms.astype(np.intp)
        # "clip" never clips here and avoids a check; for small batches a new array is faster than
        # `out`.
        return self._make_batch([slots.take(picks, 0, None, "clip") for slots in self._slots])

    def _values(self, transition: Columns) -> Sequence[Any]:
        """Returns the values of a dictionary in the order of the columns."""
        if isinstance(transition, Mapping) and self._tuple_type is None:
            values: Mapping[str, Any] = transition
            if values.keys() == set(self._names):
                return [values[name] for name in self._names]
        names = ", ".join(_items(transition)[0]) or "no names"
        raise ReplayError(
            f"A {type(transition).__name__} with {names} does not fit a ring of "
            f"{self._type.__name__} with {', '.join(self._names)}; give it what its example has."
        )

    def _checked_columns(self, batch: Columns) -> Sequence[np.ndarray]:
        values: Any = batch if type(batch) is self._tuple_type else self._values(batch)
        columns = [value if type(value) is np.ndarray else np.asarray(value) for value in values]
        count = self._count(columns)
        for (shape, dtype, _, _), column in zip(self._expected, columns, strict=True):
            if column.dtype is not dtype or column.shape[1:] != shape:
                self._check_columns(columns, (count,))
                break
        return columns

    def _count(self, columns: Sequence[np.ndarray]) -> int:
        lengths = [len(column) if column.ndim else None for column in columns]
        count = lengths[0]
        if count is None or lengths.count(count) < len(lengths):
            actual = ", ".join(
                f"{name} {length}" for name, length in zip(self._names, lengths, strict=True)
            )
            raise ReplayError(
                f"Columns of a batch must have equally many rows, not {actual}; `add` takes one.",
            )
        if count > self._capacity:
            raise ReplayError(
                f"A batch of {count} transitions does not fit into a ring of {self._capacity}; "
                "raise its capacity or drop the oldest."
            )
        return count

    def _check_columns(self, values: Sequence[Any], leading: tuple[int, ...]) -> None:
        """Raises ReplayError if a column does not fit; `leading` is the batch axis, if any."""
        for name, (shape, dtype, *_), value in zip(
            self._names,
            self._expected,
            values,
            strict=True,
        ):
            _check_column(name, np.asarray(value), (*leading, *shape), dtype)

    def _advance(self, count: int) -> None:
        head = self._head + count
        self._head = head if head < self._capacity else head - self._capacity
        if self._stored < self._capacity:
            self._stored = min(self._stored + count, self._capacity)


def _items(transition: Any) -> tuple[tuple[str, ...], Sequence[Any]]:
    """Returns names and values; both empty unless it is a NamedTuple or a dictionary."""
    if isinstance(transition, Mapping):
        return tuple(transition), list(transition.values())
    return (transition._fields, transition) if hasattr(transition, "_fields") else ((), ())


def _batch_maker(example: Any) -> Callable[[list[np.ndarray]], Any]:
    if not isinstance(example, Mapping):
        return type(example)._make
    names = tuple(example)
    return lambda columns: dict(zip(names, columns, strict=True))


def _column(name: str, value: np.ndarray, capacity: int) -> Column:
    dtype = value.dtype
    if dtype.kind not in "biuf":
        raise ReplayError(f"Column {name} of the example has dtype {dtype}; give it numbers.")
    scalars = frozenset[type]()
    integers = range(0)
    if not value.shape:
        scalars = SCALARS.get(dtype.kind, frozenset([dtype.type]))
        if dtype.kind in "iu":
            integers = range(np.iinfo(dtype).min, np.iinfo(dtype).max + 1)
    return Column(
        name=name,
        slots=np.zeros((capacity, *value.shape), dtype),
        shape=value.shape,
        dtype=dtype,
        scalars=scalars,
        integers=integers,
    )


def _check_column(name: str, values: np.ndarray, shape: tuple[int, ...], dtype: np.dtype) -> None:
    if values.shape != shape:
        raise ReplayError(
            f"Column {name} has shape {values.shape}, not {shape}; "
            "a ring keeps that of its example."
        )
    if not _fits(values, dtype):
        first = values.ravel()[:1].tolist()
        raise ReplayError(
            f"Column {name} is kept as {dtype}, which {values.dtype} values ({first} first) "
            "do not fit; cast them, or begin the ring with another example."
        )


def _fits(values: np.ndarray, dtype: np.dtype) -> bool:
    if dtype.kind in "iu" and values.dtype.kind in "iu" and values.size:
        limits = np.iinfo(dtype)
        return bool(limits.min <= values.min() and values.max() <= limits.max)
    return np.can_cast(values.dtype, dtype, "same_kind")
