"""a field, states that it was learned from -> a picture of it without actions

Two states whose squares sum to 1 are cosine and sine of an angle, and count as one coordinate. The
picture has the first angle (else the first state) and the coordinate that tells most of how that
changes, such as its velocity; all others have their medians.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize

from quatrain.plots import BLACK, BLUE, GREY, Figure, caption

# Points along each axis of a plane, and states that are drawn as dots, at most.
SIDE, DOTS = 21, 3000
# Largest error of cos² + sin² = 1.
OFF_CIRCLE = 0.02
# Share of arrows that are no longer than the distance of two.
NOT_LONGER = 0.95
SHADES = "Blues"
# Standard deviations of half a 95 % interval.
HALF_INTERVAL = 1.96

# States -> velocities, and their standard deviations: 0 of a true field.
Field = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


class Coordinate(NamedTuple):
    """Holds a measured state, or an angle by its cosine and sine: name, and places among states."""

    name: str
    places: tuple[int, ...]

    def of(self, y: Float64[np.ndarray, "*point d"]) -> Float64[np.ndarray, "*point"]:
        if len(self.places) == 1:
            return y[..., self.places[0]]
        cos, sin = self.places
        angle: np.ndarray = np.arctan2(y[..., sin], y[..., cos])
        return angle

    def write(
        self, y: Float64[np.ndarray, "*point d"], values: Float64[np.ndarray, "*point"]
    ) -> None:
        """Changes states so that the coordinate has these values."""
        parts = (values,) if len(self.places) == 1 else (np.cos(values), np.sin(values))
        for place, part in zip(self.places, parts, strict=True):
            y[..., place] = part

    def slopes(self, y: Float64[np.ndarray, "*point d"]) -> Float64[np.ndarray, "*point d"]:
        """Returns its derivative by each state."""
        slopes = np.zeros_like(y)
        if len(self.places) == 1:
            slopes[..., self.places[0]] = 1
        else:
            cos, sin = self.places
            slopes[..., cos], slopes[..., sin] = -y[..., sin], y[..., cos]
        return slopes


def coordinates(y: Float64[np.ndarray, "point d"], names: Sequence[str]) -> list[Coordinate]:
    """Returns the coordinates of states, angles first."""
    angles: list[Coordinate] = []
    free = [*range(y.shape[1])]
    for cos, sin in combinations(range(y.shape[1]), 2):
        is_circle = np.abs(y[:, cos] ** 2 + y[:, sin] ** 2 - 1).max() < OFF_CIRCLE
        if is_circle and {cos, sin} <= {*free}:
            column = names[cos].removeprefix("cos ")
            name = column if column != names[cos] else f"angle of {names[cos]} and {names[sin]}"
            angles.append(Coordinate(name, (cos, sin)))
            free = [place for place in free if place not in (cos, sin)]
    return angles + [Coordinate(names[place], (place,)) for place in free]


def shown_coordinates(
    y: Float64[np.ndarray, "point d"],
    velocity: Float64[np.ndarray, "point d"],
    names: Sequence[str],
) -> list[Coordinate]:
    """Returns the coordinates that are drawn: two, or the only one."""
    first, *others = coordinates(y, names)
    speed = (first.slopes(y) * velocity).sum(1)

    def correlation(other: Coordinate) -> float:
        with np.errstate(invalid="ignore", divide="ignore"):
            return float(np.nan_to_num(abs(np.corrcoef(speed, other.of(y))[0, 1])))

    return [first, max(others, key=correlation)] if others else [first]


class Plane(NamedTuple):
    """Holds a lattice of one or two coordinates.

    ticks: its points along each. states: at each point. dots: coordinates that were learned from.
    """

    shown: list[Coordinate]
    ticks: list[Float64[np.ndarray, " tick"]]
    states: Float64[np.ndarray, "*tick d"]
    dots: Float64[np.ndarray, "coordinate dot"]

    def flow(self, field: Field) -> Float64[np.ndarray, "2 coordinate *tick"]:
        """Returns how fast the coordinates change, and the standard deviations of that."""
        d = self.states.shape[-1]
        velocity, deviation = (
            part.reshape(self.states.shape) for part in field(self.states.reshape(-1, d))
        )
        slopes = np.stack([each.slopes(self.states) for each in self.shown])
        spread = np.sqrt(np.square(slopes * deviation).sum(-1))
        return np.stack([(slopes * velocity).sum(-1), spread])


def make_plane(
    y: Float64[np.ndarray, "point d"],
    velocity: Float64[np.ndarray, "point d"],
    names: Sequence[str],
) -> Plane:
    """Returns a lattice over these states, which change so fast."""
    shown = shown_coordinates(y, velocity, names)
    columns = [each.of(y) for each in shown]
    side = SIDE if len(shown) == 2 else SIDE**2
    ticks = [np.linspace(column.min(), column.max(), side) for column in columns]
    states = np.empty((*[side] * len(shown), y.shape[1]))
    for each in coordinates(y, names):
        each.write(states, np.full(states.shape[:-1], np.median(each.of(y))))
    for each, values in zip(shown, np.meshgrid(*ticks, indexing="ij"), strict=True):
        each.write(states, values)
    return Plane(shown, ticks, states, np.stack(columns)[:, :: -(-len(y) // DOTS)])


def draw(plane: Plane, fields: Mapping[str, Field]) -> Figure:
    """Draws fields side by side, the learned one first.

    fields: title -> field.
    """
    figure = Figure(figsize=(5.4 * len(fields) + 0.8, 5.8), layout="constrained")
    panels = figure.subplots(1, len(fields), sharex=True, sharey=True, squeeze=False)[0]
    flows = [plane.flow(field) for field in fields.values()]
    names = [each.name for each in plane.shown]
    if len(names) == 1:
        for axes, flow in zip(panels, flows, strict=True):
            _draw_line(axes, plane, flow[:, 0])
        names.append(f"velocity of {names[0]}")
        text = "Band: 95 % intervals. Dots: states that were learned from."
    else:
        extents = np.array([np.ptp(tick) for tick in plane.ticks])[:, None, None]
        lengths = np.linalg.norm(flows[0][0] / extents, axis=0)
        size = np.sqrt(np.square(lengths).mean())
        scale = float(SIDE * np.quantile(lengths, NOT_LONGER) / size)
        for axes, flow in zip(panels, flows, strict=True):
            _draw_arrows(axes, plane, flow / (size * extents), scale)
        label = "standard deviation, relative to the field's size (r.m.s.)"
        values = ScalarMappable(Normalize(0, 1), SHADES)
        figure.colorbar(values, ax=panels, label=label, extend="max", shrink=0.8)
        text = "Arrows: where the state moves, and how fast. Dots: states that were learned from."
    for axes, title in zip(panels, fields, strict=True):
        axes.set(title=title, xlabel=names[0], ylabel=names[1])
        axes.label_outer()
    has_others = plane.states.shape[-1] > sum(len(each.places) for each in plane.shown)
    caption(figure, text, "Other states have their medians." if has_others else "")
    return figure


def _draw_arrows(
    axes: Axes, plane: Plane, flow: Float64[np.ndarray, "2 coordinate x y"], scale: float
) -> None:
    (u, v), spread = flow
    style: dict[str, Any] = {"cmap": SHADES, "vmin": 0, "vmax": 1, "shading": "gouraud"}
    axes.pcolormesh(*plane.ticks, np.linalg.norm(spread, axis=0).T, **style)
    x, y = plane.dots
    axes.scatter(x, y, s=4, color=GREY, alpha=0.3, linewidths=0)
    axes.quiver(*plane.ticks, u.T, v.T, color=BLACK, width=0.003, scale=scale, pivot="middle")
    axes.set_box_aspect(1)


def _draw_line(axes: Axes, plane: Plane, flow: Float64[np.ndarray, "2 x"]) -> None:
    (ticks,), (speed, spread) = plane.ticks, flow
    band = HALF_INTERVAL * spread
    axes.fill_between(ticks, speed - band, speed + band, color=BLUE, alpha=0.2, linewidth=0)
    axes.plot(ticks, speed, color=BLUE, linewidth=2)
    axes.scatter(plane.dots, np.zeros_like(plane.dots), s=4, color=GREY, alpha=0.3, linewidths=0)
    axes.grid(alpha=0.25)
