"""names and numbers -> what a world is: the kinds of fields with their parameters, and those that a script adds."""

import difflib
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

from quatrain.errors import DataError

KINDS: dict[str, dict[str, float]] = {
    "limit_cycle": {"w": 1.0, "d": 1.0},
    "double_limit_cycle": {"w": 1.0, "d": 1.0},
    "van_der_pol": {"mu": 1.0, "w": 1.0},
    "duffing": {"a": -0.1, "b": -1.0, "c": 1.0},
    "snowman": {"w": 1.0, "d": 1.0, "beta": 10.0},
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
"""Parameters of each built-in kind, with what they are when nobody says otherwise; `fields.py` has the formulas."""

Normalise = Literal["region_rms", "box_max", "none"]
Rows = tuple[tuple[float, ...], ...]
Velocity = TypeVar("Velocity", bound=Callable[[Any], Any])

_functions: dict[str, Callable[[Any], Any]] = {}
_tables: dict[str, "Table"] = {}


class FieldError(DataError):
    """A field that cannot be what its name, its numbers or its table claim."""


class Table(NamedTuple):
    """Velocities at the nodes of a regular grid: vectors[i][j] at (axes[0][i], axes[1][j]). name: for messages."""

    name: str
    axes: Rows
    vectors: tuple[Any, ...]


class FieldSpec(NamedTuple):
    """A field before anything is drawn.

    parameters: those of KINDS that differ, or all. matrix: A of kind linear. table: of kind table. speed: what
    `normalise` sets, over the ball of `region_radius` (region_rms) or over the box [-2, 2] (box_max).
    """

    kind: str
    parameters: tuple[tuple[str, float], ...]
    matrix: Rows | None
    table: Table | None
    normalise: Normalise
    speed: float
    region_radius: float

    @property
    def d(self) -> int:
        """Dimensions of the state."""
        return 2 if self.matrix is None else len(self.matrix)


class WorldSpec(NamedTuple):
    """How states move: process_noise is a variance per unit of time; control is B [d][action], None the identity."""

    field: FieldSpec
    dt: float
    process_noise: float
    control: Rows | None
    action_bound: float
    escape_radius: float
    episode_transitions: int | None

    @property
    def action_size(self) -> int:
        """Numbers of an action."""
        return self.field.d if self.control is None else len(self.control[0])


class EmissionSpec(NamedTuple):
    """How states are seen: `weight_sd` and `bias_sd` are the law of C and b, of which kind identity has none."""

    kind: Literal["identity", "linear", "loglinear"]
    channels: int
    noise: Literal["gaussian", "poisson"]
    noise_sd: float
    weight_sd: float
    bias_sd: float


def register_field(name: str) -> Callable[[Velocity], Velocity]:
    """Decorator that makes a function a kind of field; a name that was registered before is given anew.

    The function gets states [n, 2] and returns their velocities [n, 2].

    Raises:
        FieldError: the name is that of a built-in kind.
    """
    _refuse_built_in(name)

    def registered(velocity: Velocity) -> Velocity:
        _tables.pop(name, None)
        _functions[name] = velocity
        return velocity

    return registered


def register_table(name: str, axes: Sequence[Any], vectors: Any) -> None:
    """Make arrays a kind of field: `axes` two 1-D arrays, `vectors` [n_0, n_1, 2]; checked when a field is made of it.

    Raises:
        FieldError: the name is that of a built-in kind.
    """
    _refuse_built_in(name)
    _functions.pop(name, None)
    _tables[name] = Table(
        name, tuple(_nested(axis.tolist()) for axis in axes), _nested(vectors.tolist())
    )


def known_kinds() -> tuple[str, ...]:
    """All names that a field can have now."""
    return (*KINDS, *_functions, *_tables)


def unknown_kind(kind: str) -> str:
    """What to say of a name that is none of the known ones."""
    nearest = difflib.get_close_matches(kind, known_kinds(), n=1, cutoff=0.0)[0]
    return f"{kind!r} is unknown: did you mean {nearest!r}? Known: {', '.join(known_kinds())}"


def registered_function(kind: str) -> Callable[[Any], Any] | None:
    """The function of that name, if one was registered."""
    return _functions.get(kind)


def table_of(spec: FieldSpec) -> Table | None:
    """The table that a field is read from: its own, or the registered one of its kind."""
    return spec.table if spec.kind == "table" else _tables.get(spec.kind)


def _refuse_built_in(name: str) -> None:
    if name in KINDS:
        raise FieldError(
            f"Field {name!r} cannot be registered: a built-in kind has this name; choose another."
        )


def _nested(values: Any) -> Any:
    return tuple(_nested(value) for value in values) if isinstance(values, list) else float(values)
