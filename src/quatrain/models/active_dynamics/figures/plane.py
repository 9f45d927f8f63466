"""a field in the plane -> maps: truth, what was learned, where it is wrong and where it believes so, paths along it."""

from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float64
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from quatrain.models.active_dynamics.figures.parts import (
    COLORS,
    TRUTH,
    log_ticks,
    number,
    typical_told,
)
from quatrain.models.active_dynamics.figures.study import Paths, Study, undriven
from quatrain.plots import caption

FLOWS, ERRORS = "viridis", "magma"
SIDE, ARROWS = 49, 4
"""Points of a chart along each axis, and of these every so many-th has an arrow."""
EDGE = 1.1
"""How far charts reach, in units of the region's radius."""
FAINTEST = 0.02
"""Quantile of errors below which all have one colour."""
FAN_STARTS, FAN_RADII, FAN_TIME = 12, (0.95, 0.25), 5.0
"""Of undriven paths: on each circle, relative to the region's radius, and how long they are followed."""


class Chart(NamedTuple):
    """The field on a square lattice, by x1 and x2: the true one, that of each row, and what its errors are believed."""

    axis: Float64[np.ndarray, " x1"]
    true: Float64[np.ndarray, "x1 x2 d"]
    mean: Float64[np.ndarray, "learner x1 x2 d"]
    variance: Float64[np.ndarray, "learner x1 x2 d"]

    def believed(self, row: int) -> Float64[np.ndarray, "x1 x2"]:
        """√E|f̂ - f|²."""
        return np.sqrt(self.variance[row].sum(2))

    def error(self, row: int) -> Float64[np.ndarray, "x1 x2"]:
        """|f̂ - f|."""
        return np.linalg.norm(self.mean[row] - self.true, axis=2)

    def within(self, radius: float) -> np.ndarray:
        """Whether points are in the region."""
        return np.hypot(self.axis[:, None], self.axis) <= radius


@torch.no_grad()
def charted(study: Study) -> Chart:
    """Of all rows, in the true gauge."""
    axis = torch.linspace(-EDGE * study.radius, EDGE * study.radius, SIDE, dtype=torch.float64)
    points, alignment = torch.cartesian_prod(axis, axis), study.alignment
    found = study.training.learner.moments(
        alignment.to_latent(points.expand(study.config.learners, -1, -1))
    )
    true = study.true_field(points)
    parts = (
        true,
        alignment.to_velocity(found.mean.double()),
        alignment.to_velocity_variance(found.variance.double()),
    )
    return Chart(
        axis.numpy(force=True),
        *(part.unflatten(-2, (SIDE, SIDE)).numpy(force=True) for part in parts),
    )


# The field.


def draw_field(study: Study, chart: Chart) -> Figure:
    """Streamlines of the true field and of the learned one, and their difference as arrows."""
    arm, met = study.pair[0], study.path.shape[1]
    row = study.typical(arm)
    inside = chart.within(study.radius)
    speeds = Normalize(0, float(np.linalg.norm(chart.true[inside], axis=1).max()))
    figure = Figure(figsize=(15, 6), layout="compressed")
    left, middle, right = figure.subplots(1, 3, sharex=True, sharey=True)
    for axes, field in ((left, chart.true), (middle, chart.mean[row])):
        _draw_streams(axes, chart, field, speeds)
    below: dict[str, Any] = {"location": "bottom", "shrink": 0.8, "aspect": 30}
    figure.colorbar(
        ScalarMappable(speeds, FLOWS),
        ax=middle,
        label="speed (left, middle)",
        extend="max",
        **below,
    )
    _draw_visits(middle, study, row, COLORS[arm])
    error = chart.error(row)
    sizes = Normalize(0, float(error[inside].max()))
    _draw_map(right, study, chart, error, sizes)
    figure.colorbar(ScalarMappable(sizes, ERRORS), ax=right, label="length of the error", **below)
    _draw_arrows(right, study, chart, chart.mean[row] - chart.true)
    left.set_title("The true field", loc="left", fontsize=11)
    middle.set_title(
        f"As {arm} learned it from {met:,} transitions (dots)", loc="left", fontsize=11
    )
    right.set_title(
        f"What is wrong with it: {study.known.nrmse[-1, row]:.1%}", loc="left", fontsize=11
    )
    for axes in (left, middle, right):
        _frame(axes, study)
    caption(figure, "Dotted: the region of interest.", typical_told(study.config.seeds))
    return figure


def _draw_streams(
    axes: Axes, chart: Chart, field: Float64[np.ndarray, "x1 x2 d"], norm: Normalize
) -> None:
    u, v = np.moveaxis(field, 2, 0).transpose(0, 2, 1)
    style: dict[str, Any] = {
        "cmap": FLOWS,
        "norm": norm,
        "density": 1.4,
        "linewidth": 1,
        "arrowsize": 0.8,
    }
    axes.streamplot(chart.axis, chart.axis, u, v, color=np.hypot(u, v), **style)


def _draw_arrows(
    axes: Axes, study: Study, chart: Chart, field: Float64[np.ndarray, "x1 x2 d"]
) -> None:
    """On some points of the region."""
    chosen = np.zeros((SIDE, SIDE), bool)
    chosen[ARROWS // 2 :: ARROWS, ARROWS // 2 :: ARROWS] = True
    x1, x2 = np.nonzero(chosen & chart.within(0.97 * study.radius))
    axes.quiver(
        chart.axis[x1], chart.axis[x2], *field[x1, x2].T, color="white", width=0.004, pivot="middle"
    )


# Where it is sure, and where it should be.


def draw_uncertainty(study: Study, chart: Chart) -> Figure:
    """The error that is believed beside the true one, of two arms on one scale."""
    rows = {arm: study.typical(arm) for arm in study.pair}
    maps = {
        arm: {"expects": chart.believed(row), "makes": chart.error(row)}
        for arm, row in rows.items()
    }
    inside = chart.within(study.radius)
    sizes = np.concatenate([values[inside] for pair in maps.values() for values in pair.values()])
    norm = LogNorm(*np.quantile(sizes, (FAINTEST, 1)))
    figure = Figure(figsize=(9.4, 4.6 * len(rows)), layout="compressed")
    panels = figure.subplots(len(rows), 2, squeeze=False, sharex=True, sharey=True)
    for line, (arm, pair) in zip(panels, maps.items(), strict=True):
        for axes, (said, values) in zip(line, pair.items(), strict=True):
            _draw_map(axes, study, chart, values, norm)
            _draw_visits(axes, study, rows[arm], "white")
            _frame(axes, study)
            size = float(np.sqrt(np.square(values[inside]).mean()))
            axes.set_title(
                f"Error that {arm} {said}: {number(size)}",
                loc="left",
                fontsize=11,
                color=COLORS[arm],
            )
    bar = figure.colorbar(
        ScalarMappable(norm, ERRORS), ax=panels, label="length of the field's error", shrink=0.6
    )
    log_ticks(bar.ax.yaxis)
    met = f"Dots: {study.path.shape[1]:,} transitions. In titles: root mean squares."
    caption(figure, met, typical_told(study.config.seeds))
    return figure


def _draw_map(
    axes: Axes, study: Study, chart: Chart, values: Float64[np.ndarray, "x1 x2"], norm: Normalize
) -> None:
    """Of the region."""
    mesh = axes.pcolormesh(
        chart.axis, chart.axis, values.T, cmap=ERRORS, norm=norm, shading="gouraud"
    )
    mesh.set_clip_path(Circle((0, 0), study.radius, transform=axes.transData))


def _draw_visits(axes: Axes, study: Study, row: int, color: str) -> None:
    x1, x2 = study.path[row].T
    axes.scatter(x1, x2, s=4, color=color, alpha=0.5, linewidths=0)


# Paths.


def draw_portraits(study: Study) -> Figure:
    """Undriven paths along the true field and along learned ones, from circles of starts."""
    paths = undriven(study, fan_starts(study), round(FAN_TIME / study.config.env.dt))
    figure = Figure(figsize=(6.2 * len(study.pair), 6.6), layout="compressed")
    panels = figure.subplots(1, len(study.pair), squeeze=False, sharex=True, sharey=True)[0]
    for axes, arm in zip(panels, study.pair, strict=True):
        learned = paths.learned[study.typical(arm)]
        _draw_fan(axes, study, Paths(paths.true, learned[None]), COLORS[arm])
        title = f"Undriven paths by {arm}: {number(off_by(study, paths.true, learned))} off the true ones"
        axes.set_title(title, loc="left", fontsize=11, color=COLORS[arm])
        _frame(axes, study)
    caption(
        figure,
        f"Black: the true field; dashed: the learned one; rings: starts; {FAN_TIME:g} units of time. "
        "In titles: root mean square distance in the region.",
        typical_told(study.config.seeds),
    )
    return figure


def off_by(
    study: Study,
    true: Float64[np.ndarray, "time start d"],
    learned: Float64[np.ndarray, "time start d"],
) -> float:
    """Root mean square distance, of each path as long as the true one has not left the region."""
    inside = np.logical_and.accumulate(np.linalg.norm(true, axis=2) <= study.radius)
    return float(np.sqrt(np.square(learned - true).sum(2)[inside].mean()))


def fan_starts(study: Study) -> Float64[np.ndarray, "start d"]:
    """Evenly on circles."""
    angle = np.linspace(0, 2 * np.pi, FAN_STARTS, endpoint=False)
    circle = np.column_stack([np.cos(angle), np.sin(angle)])
    return np.concatenate([radius * study.radius * circle for radius in FAN_RADII])


def _draw_fan(axes: Axes, study: Study, paths: Paths, color: str) -> None:
    """The true paths, and over them the learned ones; as far as they stay."""
    styles: tuple[dict[str, Any], ...] = (
        {"color": TRUTH, "linewidth": 1},
        {"color": color, "linestyle": (0, (3, 1.5))},
    )
    for found, style in zip((paths.true, paths.learned[0]), styles, strict=True):
        stays = np.abs(found).max(2, keepdims=True) <= study.config.env.escape_radius
        axes.plot(*np.moveaxis(np.where(stays, found, np.nan), 2, 0), **style)
    axes.plot(*paths.true[0].T, "o", markersize=4, color=TRUTH, fillstyle="none")


def _frame(axes: Axes, study: Study) -> None:
    """Both axes alike, with the region's border."""
    axes.add_patch(
        Circle((0, 0), study.radius, fill=False, edgecolor="0.3", linewidth=1, linestyle=":")
    )
    edge = EDGE * study.radius
    axes.set(xlim=(-edge, edge), ylim=(-edge, edge), aspect="equal", xlabel="x₁", ylabel="x₂")
    axes.label_outer()
