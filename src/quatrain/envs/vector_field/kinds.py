"""names -> kinds of fields: built-in ones with their parameters, and those a script registers."""

import difflib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from quatrain.errors import DataError

# Parameters of each built-in kind with their defaults; `fields.py` has the formulas.
KINDS: dict[str, dict[str, float]] = {
    "limit_cycle": {"w": 1.0, "d": 1.0},
    "double_limit_cycle": {"w": 1.0, "d": 1.0},
    "van_der_pol": {"mu": 1.0, "w": 1.0},
    "duffing": {"a": -0.1, "b": -1.0, "c": 1.0},
    "snowman": {"w": 1.0, "d": 1.0, "beta": 10.0},
    "saddle_spiral": {"c": 1.0, "damping": 0.5},
    "multi_attractor": {
        "nodes": 40.0,
        "length": 0.5,
        "variance": 0.5,
        "speed": 0.25,
        "w_attractor": 0.1,
    },
    "linear": {},
    "table": {},
}

Rows = tuple[tuple[float, ...], ...]
Velocity = TypeVar("Velocity", bound=Callable[[Any], Any])

_functions: dict[str, Callable[[Any], Any]] = {}
_tables: dict[str, "Table"] = {}


class FieldError(DataError):
    """Reports a field whose name, parameters or table are invalid."""


class Table(NamedTuple):
    """Holds velocities at the nodes of a regular grid, vectors[i][j] at (axes[0][i], axes[1][j]),
    and a display name.
    """

    name: str
    axes: Rows
    vectors: tuple[Any, ...]


def register_field(name: str) -> Callable[[Velocity], Velocity]:
    """Decorates a function, states [n, 2] -> velocities [n, 2], to register it as a kind of field.

    Replaces a kind that was registered under the same name.

    Raises:
        FieldError: a built-in kind has this name.
    """
    _refuse_built_in(name)

    def register(velocity: Velocity) -> Velocity:
        _tables.pop(name, None)
        _functions[name] = velocity
        return velocity

    return register


def register_table(name: str, axes: Sequence[Any], vectors: Any) -> None:
    """Registers a table as a kind of field: `axes` are two 1-D arrays, `vectors` [n_0, n_1, 2].

    The arrays are checked when a field is made of them.

    Raises:
        FieldError: a built-in kind has this name.
    """
    _refuse_built_in(name)
    _functions.pop(name, None)
    _tables[name] = Table(
        name, tuple(_nested(axis.tolist()) for axis in axes), _nested(vectors.tolist())
    )


def known_kinds() -> tuple[str, ...]:
    return (*KINDS, *_functions, *_tables)


def unknown_kind(kind: str) -> str:
    """Returns the error text for an unknown name, with the nearest known name."""
    nearest = difflib.get_close_matches(kind, known_kinds(), n=1, cutoff=0.0)[0]
    return f"{kind!r} is unknown: did you mean {nearest!r}? Known: {', '.join(known_kinds())}"


def registered_function(kind: str) -> Callable[[Any], Any] | None:
    return _functions.get(kind)


def registered_table(kind: str) -> Table | None:
    return _tables.get(kind)


def _refuse_built_in(name: str) -> None:
    if name in KINDS:
        raise FieldError(
            f"Field {name!r} cannot be registered: a built-in kind has this name; choose another."
        )


def _nested(values: Any) -> Any:
    if not isinstance(values, list):
        return float(values)
    return tuple(_nested(value) for value in values)
