"""field in the plane -> maps of the true and learned field, of expected and actual errors"""

from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float64
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.patches import Circle
from matplotlib.ticker import MaxNLocator

from quatrain.animation import Animation, with_bar
from quatrain.models.active_dynamics.evaluate import fields_while_learning
from quatrain.models.active_dynamics.family import AffineAlignment
from quatrain.models.active_dynamics.figures.study import (
    COLORS,
    Study,
    draw_border,
    draw_states,
    explain_arms,
    explain_replicate,
    format_number,
)
from quatrain.plots import TICKS, Figure, caption, log_ticks

FLOW_COLORS = "viridis"
ERROR_COLORS = "magma"
# Points of a chart along each axis.
SIDE = 49
# Points of a chart from one arrow to the next.
ARROW_SPACING = 4
# Arrows of the film along each axis, and how long a frame is shown.
ARROWS = 11
MILLISECONDS = 400
# Least difference of the film's colours: few colours make it small.
SHADE = 51
# Half the width of charts, in units of the region's radius.
EDGE = 1.1
# Quantile of errors at the lower end of the colour scale.
LOWEST_QUANTILE = 0.02
# Least lower end of that scale, as a share of its upper end.
SMALLEST_SHARE = 1e-4


class Chart(NamedTuple):
    """The true field, and mean and variance of the learned ones, on a square lattice.

    inside: points of the region of interest.
    """

    axis: Float64[np.ndarray, " x1"]
    inside: Bool[np.ndarray, "x1 x2"]
    true: Float64[np.ndarray, "x1 x2 d"]
    mean: Float64[np.ndarray, "learner x1 x2 d"]
    variance: Float64[np.ndarray, "learner x1 x2 d"]

    def expected_error(self, learner: int) -> Float64[np.ndarray, "x1 x2"]:
        """Computes √E|f̂ - f|²."""
        return np.sqrt(self.variance[learner].sum(2))

    def error(self, learner: int) -> Float64[np.ndarray, "x1 x2"]:
        """Computes |f̂ - f|."""
        return np.linalg.norm(self.mean[learner] - self.true, axis=2)


@torch.no_grad()
def make_chart(study: Study) -> Chart:
    """Evaluates the fields of all learners in true coordinates, in double precision."""
    edge = EDGE * study.radius
    axis = torch.linspace(-edge, edge, SIDE, dtype=torch.float64)
    points = torch.cartesian_prod(axis, axis)
    learner = study.training.learner
    alignment = AffineAlignment(
        *(part.double() for part in learner.alignment(learner.weights, study.dataset.held_out))
    )
    z = alignment.to_latent(points.expand(study.config.learners, -1, -1))
    learned = alignment.to_field(learner.moments(z))
    inside = points.norm(dim=1) <= study.radius
    true = study.training.world.field(points.float()).double()  # in single precision, as it acts
    lattices = [field.unflatten(-2, (SIDE, SIDE)).numpy(force=True) for field in (true, *learned)]
    return Chart(axis.numpy(force=True), inside.view(SIDE, SIDE).numpy(force=True), *lattices)


# The field.


def film_field(study: Study) -> Animation:
    """Shows how the arrows of a learned field turn into those of the true one, from checkpoint to
    checkpoint.
    """
    learner, color = study.median_learner(study.pair[0]), COLORS[study.pair[0]]
    points, true, learned = _arrows_while_learning(study, learner)
    figure = Figure(figsize=(5, 5), dpi=100, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.subplots()
    style: dict[str, Any] = {"angles": "xy", "pivot": "middle", "scale": _arrow_scale(study, true)}
    frames = []
    for step, field, nrmse in zip(study.steps, learned, study.estimate.nrmse, strict=True):
        axes.clear()
        axes.plot(*study.path[learner, :step].T, ".", color="0.75", markersize=3)
        axes.quiver(*points.T, *true.T, color="0.6", width=0.014, headwidth=2.5, **style)
        axes.quiver(*points.T, *field.T, color=color, width=0.006, **style)
        title = f"after {step:,} transitions: {nrmse[learner]:.0%} off"
        _set_frame(axes, study, title, fontsize=13)
        canvas.draw()
        frames.append(np.array(canvas.buffer_rgba())[..., :3] // SHADE * SHADE)
    return Animation(with_bar(np.stack(frames)), MILLISECONDS)


@torch.no_grad()
def _arrows_while_learning(
    study: Study, learner: int
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Returns points of the region, and the true and the learned velocities there."""
    axis = torch.linspace(-study.radius, study.radius, ARROWS, dtype=torch.float64)
    points = torch.cartesian_prod(axis, axis)
    points = points[points.norm(dim=1) <= study.radius]
    fields = fields_while_learning(
        study.config,
        study.training.learner,
        study.training,
        study.dataset.held_out,
        points.expand(study.config.learners, -1, -1),
    )
    learned = [field[learner].numpy(force=True) for field in fields]
    true = study.training.world.field(points.float()).numpy(force=True)
    return points.numpy(force=True), true, learned


def _arrow_scale(study: Study, true: np.ndarray) -> float:
    """Returns the speed of an arrow as long as the axes are wide; the longest true one is as long
    as three halves of the way between two arrows.
    """
    longest = 3 * study.radius / (ARROWS - 1)
    return float(np.linalg.norm(true, axis=1).max() / longest * 2 * EDGE * study.radius)


def draw_field(study: Study, chart: Chart) -> Figure:
    """Draws streamlines of the true and of a learned field, and their difference as arrows."""
    arm = study.pair[0]
    learner = study.median_learner(arm)
    figure = Figure(figsize=(13, 5.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3, sharex=True, sharey=True)
    speeds = Normalize(0, float(np.linalg.norm(chart.true[chart.inside], axis=1).max()))
    _draw_flow(left, chart, chart.true, speeds)
    _draw_flow(middle, chart, chart.mean[learner], speeds)
    draw_states(middle, study, learner, COLORS[arm])
    _add_colorbar(figure, [left, middle], speeds, FLOW_COLORS, "speed", extend="max")
    _draw_difference(figure, right, study, chart, learner)
    transitions = study.path.shape[1]
    _set_frame(left, study, "True field")
    _set_frame(middle, study, f"Learned by {arm} from {transitions:,} transitions (dots)")
    error = study.estimate.nrmse[-1, learner]
    _set_frame(right, study, f"Difference: {error:.1%} of the true field (r.m.s.)")
    caption(
        figure,
        "Lines follow the flow. Dotted: the region of interest.",
        explain_arms([arm]),
        explain_replicate(study.config.seeds),
    )
    return figure


def _draw_flow(
    axes: Axes, chart: Chart, field: Float64[np.ndarray, "x1 x2 d"], speeds: Normalize
) -> None:
    u, v = field.transpose(2, 1, 0)
    style: dict[str, Any] = {"density": 1.4, "linewidth": 1, "arrowsize": 0.8}
    color = {"color": np.hypot(u, v), "cmap": FLOW_COLORS, "norm": speeds}
    axes.streamplot(chart.axis, chart.axis, u, v, **color, **style)


def _draw_difference(figure: Figure, axes: Axes, study: Study, chart: Chart, learner: int) -> None:
    error = chart.error(learner)
    lengths = Normalize(0, float(error[chart.inside].max()))
    _draw_map(axes, study, chart, error, lengths)
    _add_colorbar(figure, [axes], lengths, ERROR_COLORS, "length of the difference, speed")
    has_arrow = np.zeros((SIDE, SIDE), bool)
    has_arrow[ARROW_SPACING // 2 :: ARROW_SPACING, ARROW_SPACING // 2 :: ARROW_SPACING] = True
    x1, x2 = np.nonzero(has_arrow & chart.inside)
    u, v = (chart.mean[learner] - chart.true)[x1, x2].T
    axes.quiver(chart.axis[x1], chart.axis[x2], u, v, color="white", width=0.004, pivot="middle")


def _add_colorbar(
    figure: Figure, panels: list[Axes], norm: Normalize, colors: str, label: str, **style: Any
) -> None:
    style |= {"location": "bottom", "shrink": 0.8 / len(panels), "aspect": 30}
    values = ScalarMappable(norm, colors)
    figure.colorbar(values, ax=panels, label=label, ticks=MaxNLocator(TICKS), **style)


# Uncertainty.


def draw_uncertainty(study: Study, chart: Chart) -> Figure:
    """Draws the expected beside the actual error of two arms, on one scale."""
    learners = {arm: study.median_learner(arm) for arm in study.pair}
    errors = {}
    for arm, learner in learners.items():
        errors["Expected", arm] = chart.expected_error(learner)
        errors["Actual", arm] = chart.error(learner)
    norm = error_scale(np.concatenate([error[chart.inside] for error in errors.values()]))
    figure = Figure(figsize=(9.4, 4.3 * len(learners) + 0.6), layout="constrained")
    panels = figure.subplots(len(learners), 2, squeeze=False, sharex=True, sharey=True)
    for axes, ((kind, arm), error) in zip(panels.flat, errors.items(), strict=True):
        _draw_map(axes, study, chart, error, norm)
        draw_states(axes, study, learners[arm], "white")
        size = format_number(float(np.sqrt(np.square(error[chart.inside]).mean())))
        _set_frame(axes, study, f"{kind} error of {arm}: {size} (r.m.s.)", color=COLORS[arm])
    values = ScalarMappable(norm, ERROR_COLORS)
    label = "length of the field's error, speed"
    bar = figure.colorbar(values, ax=panels, label=label, shrink=0.6)
    log_ticks(bar.ax.yaxis)
    caption(
        figure,
        f"Dots: the states after {study.path.shape[1]:,} transitions.",
        explain_replicate(study.config.seeds),
    )
    return figure


def error_scale(errors: Float64[np.ndarray, " points"]) -> LogNorm:
    """Returns a logarithmic scale of errors, which may be 0 or infinite where a learner failed."""
    finite = errors[np.isfinite(errors) & (errors > 0)]
    if not len(finite):
        return LogNorm(SMALLEST_SHARE, 1, clip=True)
    lowest, highest = np.quantile(finite, (LOWEST_QUANTILE, 1))
    return LogNorm(max(lowest, SMALLEST_SHARE * highest), highest, clip=True)


def _draw_map(
    axes: Axes, study: Study, chart: Chart, values: Float64[np.ndarray, "x1 x2"], norm: Normalize
) -> None:
    style: dict[str, Any] = {"cmap": ERROR_COLORS, "norm": norm, "shading": "gouraud"}
    mesh = axes.pcolormesh(chart.axis, chart.axis, values.T, **style)
    mesh.set_clip_path(Circle((0, 0), study.radius, transform=axes.transData))


def _set_frame(axes: Axes, study: Study, title: str, **style: Any) -> None:
    """Sets the title, gives both axes the same limits and draws the region's border."""
    axes.set_title(title, **style)
    draw_border(axes, study)
    edge = EDGE * study.radius
    axes.set(xlim=(-edge, edge), ylim=(-edge, edge), aspect="equal", xlabel="x₁", ylabel="x₂")
    axes.label_outer()
