"""a kind of field and its parameters -> velocities at any states, scaled to the requested speed."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor
from torch.quasirandom import SobolEngine

from quatrain.envs.vector_field import tables
from quatrain.envs.vector_field.config import Env, FieldChoice
from quatrain.envs.vector_field.kinds import (
    KINDS,
    FieldError,
    Table,
    registered_function,
    registered_table,
    unknown_kind,
)

# Steps of the region's grid from its middle to its border: 31 points per axis.
REGION_STEPS = 15
# Points per axis of the box's grid.
BOX_POINTS = 40
SOBOL_POINTS = 2048
DRY_RUN = ((0.0, 0.0), (1.0, -0.5), (-0.5, 1.0), (0.25, 0.75))

States = Float[Tensor, "*batch 2"]


class Field(NamedTuple):
    """Holds a field, alpha times `raw`. table: nodes that `raw` interpolates; empty if it is a
    formula.
    """

    kind: str
    raw: Callable[[Tensor], Tensor]
    alpha: Float[Tensor, ""]
    table: Float[Tensor, "one component x2 x1"]

    def __call__(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        return self.alpha * self.raw(x)


def limit_cycle(x: States, *, w: float, d: float) -> States:
    """Computes x (d - r²) + w rot(x): all paths converge to the circle of radius √d."""
    return x * (d - _square(x)) + w * _rot(x)


def double_limit_cycle(x: States, *, w: float, d: float) -> States:
    """Computes x (d - r) + w (2d - r) rot(x): the rotation reverses at radius 2d."""
    r = _square(x).sqrt()
    return x * (d - r) + w * (2 * d - r) * _rot(x)


def van_der_pol(x: States, *, mu: float, w: float) -> States:
    """Computes (x2, mu (1 - x1²) x2 - w x1)."""
    x1, x2 = x.unbind(-1)
    return torch.stack([x2, mu * (1 - x1.square()) * x2 - w * x1], -1)


def duffing(x: States, *, a: float, b: float, c: float) -> States:
    """Computes (x2, a x2 - x1 (b + c x1²))."""
    x1, x2 = x.unbind(-1)
    return torch.stack([x2, a * x2 - x1 * (b + c * x1.square())], -1)


def snowman(x: States, *, w: float, d: float, beta: float) -> States:
    """Blends two limit cycles around (±d, 0), which rotate in opposite senses, by a sigmoid
    of x1.
    """
    x1, x2 = x.split(1, -1)
    share = torch.sigmoid(beta * x1)
    right = _lobe(torch.cat([x1 - d, x2], -1), w, d)
    left = _lobe(torch.cat([x1 + d, x2], -1), -w, d)
    return share * right + (1 - share) * left


def saddle_spiral(x: States, *, c: float, damping: float) -> States:
    """Computes (x2, x1² - c² - damping x2): a spiral draws in to (-c, 0), a saddle is at (c, 0).

    Paths beyond the saddle run away, so that few are seen there unless actions lead there.
    """
    x1, x2 = x.unbind(-1)
    return torch.stack([x2, x1.square() - c**2 - damping * x2], -1)


FORMULAS: dict[str, Callable[..., Tensor]] = {
    "limit_cycle": limit_cycle,
    "double_limit_cycle": double_limit_cycle,
    "van_der_pol": van_der_pol,
    "duffing": duffing,
    "snowman": snowman,
    "saddle_spiral": saddle_spiral,
}


def make_field(env: Env, generator: Generator) -> Field:
    """Builds the field of an environment; only kind multi_attractor draws from the generator.

    Raises:
        FieldError: the kind is unknown, the function or the table is no field, or the speed cannot
            be set.
    """
    kind = env.field.kind
    table = _nodes(env, generator)
    function = registered_function(kind)
    if function is not None:
        _dry_run(kind, function)
    raw = _raw(env.field, table)
    _check_finite(env, raw)
    return Field(kind, raw, _alpha(env, raw), table)


def restore_field(
    choice: FieldChoice, alpha: Float[Tensor, ""], table: Float[Tensor, "one component x2 x1"]
) -> Field:
    """Rebuilds a field of `make_field` from its stored arrays.

    Raises:
        FieldError: the kind is unknown.
    """
    return Field(choice.kind, _raw(choice, table), alpha, table)


def region_grid(radius: float, d: int) -> Float[Tensor, "point d"]:
    """Returns points within the radius: of a grid with 31 per axis, or 2048 Sobol points if
    d > 2.
    """
    if d > 2:
        return radius * _sobol_ball(d)
    axis = torch.arange(-REGION_STEPS, REGION_STEPS + 1)
    points = torch.cartesian_prod(*[axis] * d).reshape(-1, d)
    return points[points.square().sum(1) <= REGION_STEPS**2] * (radius / REGION_STEPS)


def box_grid(d: int) -> Float[Tensor, "point d"]:
    """Returns points of the box [-2, 2]: a grid with 40 per axis, or 2048 Sobol points if d > 2."""
    if d > 2:
        return tables.BOX * (2 * _sobol(d) - 1)
    axis = torch.linspace(-tables.BOX, tables.BOX, BOX_POINTS)
    return torch.cartesian_prod(*[axis] * d).reshape(-1, d)


def _nodes(env: Env, generator: Generator) -> Float[Tensor, "one component x2 x1"]:
    if env.field.kind == "multi_attractor":
        return tables.multi_attractor(generator, **_parameters(env.field))
    table = _table(env.field)
    return (
        torch.empty(0, 0, 0, 0) if table is None else tables.table_nodes(table, env.region_radius)
    )


def _table(choice: FieldChoice) -> Table | None:
    """Returns the table of a field: its own, or the registered one of its kind."""
    return choice.table if choice.kind == "table" else registered_table(choice.kind)


def _raw(
    choice: FieldChoice, nodes: Float[Tensor, "one component x2 x1"]
) -> Callable[[Tensor], Tensor]:
    function = registered_function(choice.kind)
    if function is not None:
        return partial(_with_one_batch_axis, function=function)
    table = _table(choice)
    if table is not None:
        return partial(tables.interpolate, nodes=nodes, ends=tables.axis_ends(table.axes))
    if choice.kind == "multi_attractor":
        box = tables.axis_ends([(-tables.BOX, tables.BOX)] * 2)
        return partial(tables.interpolate, nodes=nodes, ends=box)
    if choice.kind == "linear":
        return partial(_linear, matrix=torch.tensor(choice.matrix, dtype=torch.float32))
    if choice.kind not in FORMULAS:
        raise FieldError(f"Field {unknown_kind(choice.kind)}.")
    return partial(FORMULAS[choice.kind], **_parameters(choice))


def _parameters(choice: FieldChoice) -> dict[str, float]:
    return KINDS[choice.kind] | choice.parameters


def _linear(
    x: Float[Tensor, "*batch d"], matrix: Float[Tensor, "d d"]
) -> Float[Tensor, "*batch d"]:
    return x @ matrix.T.to(x.dtype)


def _with_one_batch_axis(
    x: Float[Tensor, "*batch d"], function: Callable[[Any], Any]
) -> Float[Tensor, "*batch d"]:
    return function(x.reshape(-1, x.shape[-1])).to(x.dtype).reshape(x.shape)


def _square(x: States) -> Float[Tensor, "*batch 1"]:
    return x.square().sum(-1, keepdim=True)


def _rot(x: States) -> States:
    return torch.stack([-x[..., 1], x[..., 0]], -1)


def _lobe(v: States, w: float, d: float) -> States:
    return v * (d**2 - _square(v)) + w * _rot(v)


def _sobol(d: int) -> Float[Tensor, "point d"]:
    """Returns the second 2048 points of the sequence, because it starts with a corner and the
    middle.
    """
    with torch.device("cpu"):
        points = SobolEngine(d).fast_forward(SOBOL_POINTS).draw(SOBOL_POINTS)
    return points.to(torch.get_default_device())


def _sobol_ball(d: int) -> Float[Tensor, "point d"]:
    """Returns points of the unit ball: normal directions by inverse CDF, radii the d-th root of a
    uniform number.
    """
    points = _sobol(d + 1)
    direction = torch.special.ndtri(points[:, :d])
    return direction / direction.norm(dim=1, keepdim=True) * points[:, d:] ** (1 / d)


def _dry_run(name: str, function: Callable[[Any], Any]) -> None:
    """Raises FieldError if the function returns no tensor or another shape, or changes its
    argument.
    """
    x = torch.tensor(DRY_RUN)
    velocity = function(x)
    shape = tuple(x.shape)
    expected = f"return one velocity per state, shape {shape}."
    if not isinstance(velocity, Tensor):
        raise FieldError(
            f"Field {name!r} returned a {type(velocity).__name__}, not a tensor: {expected}"
        )
    if velocity.shape != x.shape:
        raise FieldError(
            f"Field {name!r} returned shape {tuple(velocity.shape)} for input {shape}: {expected}"
        )
    if not torch.equal(x, torch.tensor(DRY_RUN)):
        raise FieldError(f"Field {name!r} changed its argument: compute a new tensor.")


def _check_finite(env: Env, raw: Callable[[Tensor], Tensor]) -> None:
    d = env.d
    x = torch.cat([torch.zeros(1, d), region_grid(env.region_radius, d), box_grid(d)])
    infinite = ~raw(x).isfinite().all(1)
    if infinite.any():
        position = tuple(round(value, 4) for value in x[int(infinite.int().argmax())].tolist())
        side = max(tables.BOX, env.region_radius)
        raise FieldError(
            f"Field {env.field.kind!r} is not finite at x = {position}: "
            f"return finite velocities on the whole box [-{side:g}, {side:g}]."
        )


def _alpha(env: Env, raw: Callable[[Tensor], Tensor]) -> Float[Tensor, ""]:
    choice = env.field
    if choice.normalise == "none":
        return torch.tensor(1.0)
    if choice.normalise == "region_rms":
        speed = raw(region_grid(env.region_radius, env.d)).square().sum(1).mean().sqrt()
    else:
        speed = raw(box_grid(env.d)).norm(dim=1).max()
    alpha = choice.speed / speed
    if not math.isfinite(alpha):
        raise FieldError(
            f"Field {choice.kind!r} is zero wherever {choice.normalise} looks, "
            f"so no factor gives it speed {choice.speed:g}: "
            "set active_dynamics.env.field.normalise to none."
        )
    return alpha
