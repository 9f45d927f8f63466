"""a kind of field and its numbers -> velocities at any states, brought to the asked speed by one factor."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor
from torch.quasirandom import SobolEngine

from quatrain.envs.vector_field import tables
from quatrain.envs.vector_field.kinds import (
    KINDS,
    FieldError,
    FieldSpec,
    registered_function,
    table_of,
    unknown_kind,
)

REGION_STEPS = 15
"""Of the region's grid from its middle to its border: 31 points per axis."""
BOX_POINTS = 40
"""Per axis of the box's grid."""
SOBOL_POINTS = 2048
DRY_RUN = ((0.0, 0.0), (1.0, -0.5), (-0.5, 1.0), (0.25, 0.75))

States = Float[Tensor, "*batch 2"]


class Field(NamedTuple):
    """A field as it is: alpha times `raw`. table: what `raw` reads, or of size 0 where it is a formula."""

    kind: str
    raw: Callable[[Tensor], Tensor]
    alpha: Float[Tensor, ""]
    table: Float[Tensor, "one component x2 x1"]

    def __call__(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """Velocities at the states x."""
        return self.alpha * self.raw(x)


def limit_cycle(x: States, *, w: float, d: float) -> States:
    """x (d - r²) + w rot(x): all paths wind onto the circle of radius √d."""
    return x * (d - _square(x)) + w * _rot(x)


def double_limit_cycle(x: States, *, w: float, d: float) -> States:
    """x (d - r) + w (2d - r) rot(x): the turn changes its sense at radius 2d."""
    r = _square(x).sqrt()
    return x * (d - r) + w * (2 * d - r) * _rot(x)


def van_der_pol(x: States, *, mu: float, w: float) -> States:
    """(x2, mu (1 - x1²) x2 - w x1)."""
    x1, x2 = x.unbind(-1)
    return torch.stack([x2, mu * (1 - x1.square()) * x2 - w * x1], -1)


def duffing(x: States, *, a: float, b: float, c: float) -> States:
    """(x2, a x2 - x1 (b + c x1²))."""
    x1, x2 = x.unbind(-1)
    return torch.stack([x2, a * x2 - x1 * (b + c * x1.square())], -1)


def snowman(x: States, *, w: float, d: float, beta: float) -> States:
    """Two limit cycles around (±d, 0) that turn in opposite senses, blended by a sigmoid of x1."""
    x1, x2 = x.split(1, -1)
    right = torch.sigmoid(beta * x1)
    return right * _lobe(torch.cat([x1 - d, x2], -1), w, d) + (1 - right) * _lobe(
        torch.cat([x1 + d, x2], -1), -w, d
    )


FORMULAS: dict[str, Callable[..., Tensor]] = {
    "limit_cycle": limit_cycle,
    "double_limit_cycle": double_limit_cycle,
    "van_der_pol": van_der_pol,
    "duffing": duffing,
    "snowman": snowman,
}


def make_field(spec: FieldSpec, generator: Generator) -> Field:
    """The field of a spec; the generator draws the table of a multi_attractor, and nothing else.

    Raises:
        FieldError: an unknown kind, a function or a table that is no field, a speed that cannot be set.
    """
    table = _nodes(spec, generator)
    function = registered_function(spec.kind)
    if function is not None:
        _dry_run(spec.kind, function)
    raw = _raw(spec, table)
    _check_finite(spec, raw)
    return Field(spec.kind, raw, _alpha(spec, raw), table)


def restore_field(
    spec: FieldSpec, alpha: Float[Tensor, ""], table: Float[Tensor, "one component x2 x1"]
) -> Field:
    """The field that `make_field` made once, from what a dataset keeps of it.

    Raises:
        FieldError: an unknown kind.
    """
    return Field(spec.kind, _raw(spec, table), alpha, table)


def region_grid(radius: float, d: int) -> Float[Tensor, "point d"]:
    """Points where fields are compared: 31 per axis, of which those within the radius; d > 2: 2048 Sobol points."""
    if d > 2:
        return radius * _sobol_ball(d)
    axis = torch.arange(-REGION_STEPS, REGION_STEPS + 1)
    places = torch.cartesian_prod(*[axis] * d).reshape(-1, d)
    return places[places.square().sum(1) <= REGION_STEPS**2] * (radius / REGION_STEPS)


def box_grid(d: int) -> Float[Tensor, "point d"]:
    """Points of the box [-2, 2]: 40 per axis; d > 2: 2048 Sobol points."""
    if d > 2:
        return tables.BOX * (2 * _sobol(d) - 1)
    axis = torch.linspace(-tables.BOX, tables.BOX, BOX_POINTS)
    return torch.cartesian_prod(*[axis] * d).reshape(-1, d)


def _nodes(spec: FieldSpec, generator: Generator) -> Float[Tensor, "one component x2 x1"]:
    if spec.kind == "multi_attractor":
        return tables.multi_attractor(generator, **_parameters(spec))
    table = table_of(spec)
    return (
        torch.empty(0, 0, 0, 0) if table is None else tables.table_nodes(table, spec.region_radius)
    )


def _raw(
    spec: FieldSpec, nodes: Float[Tensor, "one component x2 x1"]
) -> Callable[[Tensor], Tensor]:
    """The field before it is scaled."""
    function, table = registered_function(spec.kind), table_of(spec)
    if function is not None:
        return partial(_flat, function=function)
    if table is not None:
        return partial(tables.interpolate, nodes=nodes, ends=tables.axis_ends(table.axes))
    if spec.kind == "multi_attractor":
        return partial(
            tables.interpolate, nodes=nodes, ends=tables.axis_ends([(-tables.BOX, tables.BOX)] * 2)
        )
    if spec.kind == "linear":
        return partial(_linear, matrix=torch.tensor(spec.matrix, dtype=torch.float32))
    if spec.kind not in FORMULAS:
        raise FieldError(f"Field {unknown_kind(spec.kind)}.")
    return partial(FORMULAS[spec.kind], **_parameters(spec))


def _parameters(spec: FieldSpec) -> dict[str, float]:
    return KINDS[spec.kind] | dict(spec.parameters)


def _linear(
    x: Float[Tensor, "*batch d"], matrix: Float[Tensor, "d d"]
) -> Float[Tensor, "*batch d"]:
    return x @ matrix.T.to(x.dtype)


def _flat(
    x: Float[Tensor, "*batch d"], function: Callable[[Any], Any]
) -> Float[Tensor, "*batch d"]:
    """A user's function sees one batch axis, whatever the caller has."""
    return function(x.reshape(-1, x.shape[-1])).to(x.dtype).reshape(x.shape)


def _square(x: States) -> Float[Tensor, "*batch 1"]:
    return x.square().sum(-1, keepdim=True)


def _rot(x: States) -> States:
    return torch.stack([-x[..., 1], x[..., 0]], -1)


def _lobe(v: States, w: float, d: float) -> States:
    return v * (d**2 - _square(v)) + w * _rot(v)


def _sobol(d: int) -> Float[Tensor, "point d"]:
    """The second block of 2048 points, which leaves out the corner and the middle that the sequence begins with."""
    with torch.device("cpu"):
        points = SobolEngine(d).fast_forward(SOBOL_POINTS).draw(SOBOL_POINTS)
    return points.to(torch.get_default_device())


def _sobol_ball(d: int) -> Float[Tensor, "point d"]:
    """Points of the unit ball: directions are normal draws by their quantiles, radii the d-th root of a uniform one."""
    points = _sobol(d + 1)
    direction = torch.special.ndtri(points[:, :d])
    return direction / direction.norm(dim=1, keepdim=True) * points[:, d:] ** (1 / d)


def _dry_run(name: str, function: Callable[[Any], Any]) -> None:
    """Refuse what is no field.

    Raises:
        FieldError: not a tensor, of another shape, or the argument was changed.
    """
    x = torch.tensor(DRY_RUN)
    velocity, shape = function(x), tuple(x.shape)
    wanted = f"return one velocity per state, shape {shape}."
    if not isinstance(velocity, Tensor):
        raise FieldError(
            f"Field {name!r} returned a {type(velocity).__name__}, not a tensor: {wanted}"
        )
    if velocity.shape != x.shape:
        raise FieldError(
            f"Field {name!r} returned shape {tuple(velocity.shape)} for input {shape}: {wanted}"
        )
    if not torch.equal(x, torch.tensor(DRY_RUN)):
        raise FieldError(f"Field {name!r} changed its argument: compute a new tensor.")


def _check_finite(spec: FieldSpec, raw: Callable[[Tensor], Tensor]) -> None:
    d, side = spec.d, max(tables.BOX, spec.region_radius)
    x = torch.cat([torch.zeros(1, d), region_grid(spec.region_radius, d), box_grid(d)])
    finite = raw(x).isfinite().all(1)
    if not finite.all():
        place = tuple(round(value, 4) for value in x[int((~finite).int().argmax())].tolist())
        raise FieldError(
            f"Field {spec.kind!r} is not finite at x = {place}: "
            f"return finite velocities on the whole box [-{side:g}, {side:g}]."
        )


def _alpha(spec: FieldSpec, raw: Callable[[Tensor], Tensor]) -> Float[Tensor, ""]:
    if spec.normalise == "none":
        return torch.tensor(1.0)
    if spec.normalise == "region_rms":
        speed = raw(region_grid(spec.region_radius, spec.d)).square().sum(1).mean().sqrt()
    else:
        speed = raw(box_grid(spec.d)).norm(dim=1).max()
    alpha = spec.speed / speed
    if not math.isfinite(alpha):
        raise FieldError(
            f"Field {spec.kind!r} is zero wherever {spec.normalise} looks, so no factor gives it speed {spec.speed:g}: "
            "set active_dynamics.env.field.normalise to none."
        )
    return alpha
