"""names -> kinds of fields: formulas with their parameters, and functions that a script registers

    dx/dt = formula(x1, x2, parameters)

A built-in field of two dimensions is one function here, decorated with `formula`: its name is the
kind, its keyword arguments are the parameters with their defaults; POSITIVE has those that must be
above 0. Reading a config loads this module, so a formula uses operators and methods of tensors,
and imports no framework.
"""

import difflib
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from quatrain.errors import DataError

Velocity = TypeVar("Velocity", bound=Callable[..., Any])
# Of states along each dimension; the results have the shape of the states.
Components = tuple[Any, Any]

FORMULAS: dict[str, Callable[..., Components]] = {}
# Parameters that must be above 0, of any kind.
POSITIVE = ("length", "variance")
_functions: dict[str, Callable[[Any], Any]] = {}


class FieldError(DataError):
    """Reports a field whose name, parameters or table are invalid."""


def formula(velocity: Velocity) -> Velocity:
    """Decorates a formula, to make it the built-in kind of its name."""
    FORMULAS[velocity.__name__] = velocity
    return velocity


@formula
def limit_cycle(x1: Any, x2: Any, *, w: float = 1.0, d: float = 1.0) -> Components:
    """Computes x (d - r²) + w rot(x): all paths converge to the circle of radius √d."""
    return _around_circle(x1, x2, d, w)


@formula
def double_limit_cycle(x1: Any, x2: Any, *, w: float = 1.0, d: float = 1.0) -> Components:
    """Computes x (d - r) + w (2d - r) rot(x): the rotation reverses at radius 2d."""
    r = (x1.square() + x2.square()).sqrt()
    turn = w * (2 * d - r)
    return x1 * (d - r) - turn * x2, x2 * (d - r) + turn * x1


@formula
def van_der_pol(x1: Any, x2: Any, *, mu: float = 1.0, w: float = 1.0) -> Components:
    """Computes (x2, mu (1 - x1²) x2 - w x1)."""
    return x2, mu * (1 - x1.square()) * x2 - w * x1


@formula
def duffing(x1: Any, x2: Any, *, a: float = -0.1, b: float = -1.0, c: float = 1.0) -> Components:
    """Computes (x2, a x2 - x1 (b + c x1²))."""
    return x2, a * x2 - x1 * (b + c * x1.square())


@formula
def snowman(x1: Any, x2: Any, *, w: float = 1.0, d: float = 1.0, beta: float = 10.0) -> Components:
    """Blends limit cycles around (±d, 0), which rotate in opposite senses, by a sigmoid of x1."""
    share = (beta * x1).sigmoid()
    right = _around_circle(x1 - d, x2, d**2, w)
    left = _around_circle(x1 + d, x2, d**2, -w)
    return (share * right[0] + (1 - share) * left[0], share * right[1] + (1 - share) * left[1])


@formula
def saddle_spiral(x1: Any, x2: Any, *, c: float = 1.0, damping: float = 0.5) -> Components:
    """Computes (x2, x1² - c² - damping x2): a spiral draws in to (-c, 0), a saddle is at (c, 0).

    Paths beyond the saddle run away, so that few are seen there unless actions lead there.
    """
    return x2, x1.square() - c**2 - damping * x2


def _around_circle(x1: Any, x2: Any, square_radius: float, w: float) -> Components:
    pull = square_radius - (x1.square() + x2.square())
    return x1 * pull - w * x2, x2 * pull + w * x1


def _parameters(velocity: Callable[..., Components]) -> dict[str, float]:
    arguments = inspect.signature(velocity).parameters.values()
    return {each.name: each.default for each in arguments if each.kind is each.KEYWORD_ONLY}


# Parameters of each built-in kind with their defaults.
KINDS: dict[str, dict[str, float]] = {
    **{name: _parameters(velocity) for name, velocity in FORMULAS.items()},
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


def register_field(name: str) -> Callable[[Velocity], Velocity]:
    """Decorates a function, states [n, 2] -> velocities [n, 2], to register it as a kind of field.

    Replaces a kind that was registered under the same name.

    Raises:
        FieldError: a built-in kind has this name.
    """
    if name in KINDS:
        raise FieldError(
            f"Field {name!r} cannot be registered: a built-in kind has this name; choose another."
        )

    def register(velocity: Velocity) -> Velocity:
        _functions[name] = velocity
        return velocity

    return register


def known_kinds() -> tuple[str, ...]:
    return (*KINDS, *_functions)


def unknown_kind(kind: str) -> str:
    """Returns the error text for an unknown name, with the nearest known name."""
    nearest = difflib.get_close_matches(kind, known_kinds(), n=1, cutoff=0.0)[0]
    return f"{kind!r} is unknown: did you mean {nearest!r}? Known: {', '.join(known_kinds())}"


def registered_function(kind: str) -> Callable[[Any], Any] | None:
    return _functions.get(kind)
