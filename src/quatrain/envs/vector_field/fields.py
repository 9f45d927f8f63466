"""a kind of field and its parameters -> velocities at any states, scaled to the requested speed."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Float64
from torch import Generator, Tensor
from torch.nn.functional import grid_sample
from torch.quasirandom import SobolEngine

from quatrain.envs.vector_field.config import Env, FieldChoice
from quatrain.envs.vector_field.kinds import (
    FORMULAS,
    KINDS,
    FieldError,
    registered_function,
    unknown_kind,
)

# Steps of the region's grid from its middle to its border: 31 points per axis.
REGION_STEPS = 15
# Points per axis of the box's grid.
BOX_POINTS = 40
SOBOL_POINTS = 2048
DRY_RUN = ((0.0, 0.0), (1.0, -0.5), (-0.5, 1.0), (0.25, 0.75))
# Boxes and random tables cover [-BOX, BOX] in each dimension.
BOX = 2.0
JITTER = 1e-6
SHORTEST = 1e-8

Nodes = Float[Tensor, "one component x2 x1"]
# The first and the last node of each axis.
Ends = Float[Tensor, "2 axis"]


class Field(NamedTuple):
    """Holds a field, alpha times `raw`. table: nodes that `raw` interpolates; empty if it is a
    formula.
    """

    kind: str
    raw: Callable[[Tensor], Tensor]
    alpha: Float[Tensor, ""]
    table: Nodes

    def __call__(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        return self.alpha * self.raw(x)


def make_field(env: Env, generator: Generator) -> Field:
    """Builds the field of an environment; only kind multi_attractor draws from the generator.

    Raises:
        FieldError: the kind is unknown, the function or the table is no field, or the speed cannot
            be set.
    """
    kind = env.field.kind
    nodes = torch.empty(0, 0, 0, 0)
    if kind == "multi_attractor":
        nodes = multi_attractor(generator, **_parameters(env.field))
    elif env.field.table is not None:
        vectors = env.field.table.vectors.transpose(2, 1, 0)
        nodes = torch.tensor(vectors[None], dtype=torch.float32)
    function = registered_function(kind)
    if function is not None:
        _dry_run(kind, function)
    raw = _raw(env.field, nodes)
    _check_finite(env, raw)
    return Field(kind, raw, _alpha(env, raw), nodes)


def restore_field(choice: FieldChoice, alpha: Float[Tensor, ""], table: Nodes) -> Field:
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
        return BOX * (2 * _sobol(d) - 1)
    axis = torch.linspace(-BOX, BOX, BOX_POINTS)
    return torch.cartesian_prod(*[axis] * d).reshape(-1, d)


def _raw(choice: FieldChoice, nodes: Nodes) -> Callable[[Tensor], Tensor]:
    function = registered_function(choice.kind)
    if function is not None:
        return lambda x: function(x.reshape(-1, x.shape[-1])).to(x.dtype).reshape(x.shape)
    if choice.kind in ("table", "multi_attractor"):
        axes = [(-BOX, BOX)] * 2 if choice.table is None else choice.table.axes
        ends = torch.tensor([(axis[0], axis[-1]) for axis in axes], dtype=torch.float32).T
        return partial(interpolate, nodes=nodes, ends=ends)
    if choice.kind == "linear":
        matrix = torch.tensor(choice.matrix, dtype=torch.float32)
        return lambda x: x @ matrix.T.to(x.dtype)
    if choice.kind not in FORMULAS:
        raise FieldError(f"Field {unknown_kind(choice.kind)}.")
    formula = FORMULAS[choice.kind]
    parameters = _parameters(choice)
    return lambda x: torch.stack(formula(*x.unbind(-1), **parameters), -1)


def _parameters(choice: FieldChoice) -> dict[str, float]:
    return KINDS[choice.kind] | choice.parameters


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
        side = max(BOX, env.region_radius)
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


# Tables. Nodes have the layout of grid_sample, [1, component, node of x2, node of x1]: its
# coordinates are (x1, x2), while the last axis of its input is x1.


def gaussian_process(
    s: Float64[Tensor, " node"], length: float, variance: float, generator: Generator
) -> Float64[Tensor, "2 node node"]:
    """Draws two independent functions with covariance variance exp(-|x - x'|² / (2 length²)) at the
    nodes (s_i, s_j).

    The kernel is a product over the axes, so the Cholesky factor A of one axis serves both: A Z Aᵀ.
    """
    factor = torch.linalg.cholesky(
        torch.exp(-(s[:, None] - s).square() / (2 * length**2))
        + JITTER * torch.eye(len(s), dtype=s.dtype)
    )
    white = torch.randn(2, len(s), len(s), generator=generator, dtype=s.dtype)
    return variance**0.5 * factor @ white @ factor.T


def multi_attractor(
    generator: Generator,
    *,
    nodes: float,
    length: float,
    variance: float,
    speed: float,
    w_attractor: float,
) -> Nodes:
    """Draws velocities of constant norm and smooth random direction, and adds - w |x| x, towards
    the middle.
    """
    s = torch.linspace(-BOX, BOX, int(nodes), dtype=torch.float64)
    arrows = gaussian_process(s, length, variance, generator)
    x2, x1 = torch.meshgrid(s, s, indexing="ij")
    x = torch.stack([x1, x2])
    unit = arrows / arrows.norm(dim=0).clamp(min=SHORTEST)
    return (speed * unit - w_attractor * x.norm(dim=0) * x)[None].float()


def interpolate(
    x: Float[Tensor, "*batch 2"], nodes: Nodes, ends: Ends
) -> Float[Tensor, "*batch 2"]:
    """Interpolates velocities at x; outside the table, those of its border."""
    low, high = ends.to(x.dtype)
    position = (2 * x - (low + high)) / (high - low)
    velocity = grid_sample(
        nodes.to(x.dtype),
        position.reshape(1, 1, -1, 2),
        mode="bilinear",
        padding_mode="border",
        align_corners=True,
    )
    return velocity[0, :, 0].T.reshape(x.shape)
