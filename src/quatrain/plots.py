"""numbers of several learners or worlds -> lines, with confidence intervals where there are
enough, labelled at their ends.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Shaped
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from quatrain.progress import History
from quatrain.statistics import (
    LEAST_SEEDS,
    half_interval,
    interquartile_interval,
    interquartile_mean,
)

# Colors of chance, lower reference, learner, learner during training, and upper reference.
GREY = "0.5"
BLACK = "0.2"
RED = "crimson"
ORANGE = "darkorange"
BLUE = "tab:blue"
# Title of one panel of several.
SMALL_TITLE: dict[str, Any] = {"loc": "left", "fontsize": 10}
# Height of a label, in points.
LINE_HEIGHT = 11


class Curve(NamedTuple):
    """Holds a recorded metric of each learner."""

    steps: Shaped[np.ndarray, " points"]
    values: Float[np.ndarray, "learners points"]


class EndLabel(NamedTuple):
    """Holds a text right of the axes, at the height where a line ends."""

    y: float
    text: str
    color: Any


def curve(history: History, name: str, learners: int) -> Curve:
    """Returns a metric of each learner; `cosine/3` of learner 1 is recorded as `cosine/seed/1/3` if
    there are several.
    """
    if learners == 1:
        steps, values = history[name]
        return Curve(steps, values[None])
    parts = name.split("/")
    digits = (place for place, part in enumerate(parts) if part.isdigit())
    axes = next(digits, len(parts))
    points = []
    for learner in range(learners):
        key = "/".join([*parts[:axes], "seed", str(learner), *parts[axes:]])
        points.append(history[key])
    return Curve(points[0][0], np.stack([values for _, values in points]))


def mean_with_interval(
    axes: Axes,
    x: np.ndarray,
    values: Float[np.ndarray, "samples points"],
    **style: Any,
) -> Float[np.ndarray, " points"]:
    """Draws the mean over held-out samples as a line and its 95 % t-interval as a band; returns the
    mean.
    """
    mean = values.mean(0)
    half = half_interval(values)
    line_with_band(axes, x, mean, mean - half, mean + half, **style)
    return mean


def draw_seeds(
    axes: Axes,
    x: np.ndarray,
    values: Float[np.ndarray, "seeds points"],
    **style: Any,
) -> Float[np.ndarray, " points"]:
    """Draws the curve of each seed or, from LEAST_SEEDS on, the interquartile mean over seeds with
    its 95 % bootstrap interval as a band.

    Returns the mean of the drawn curves or the interquartile mean, for a label at its end.
    """
    if len(values) >= LEAST_SEEDS:
        center = interquartile_mean(values)
        line_with_band(axes, x, center, *interquartile_interval(values), **style)
        return center
    draw_each(axes, x, values, **style)
    return values.mean(0)


def draw_each(
    axes: Axes,
    x: np.ndarray,
    values: Float[np.ndarray, "seeds points"],
    **style: Any,
) -> None:
    """Draws the curve of each seed in one colour, thin if there are several."""
    if len(values) > 1:
        style["linewidth"] = style.get("linewidth", 1.5) / 2
    for seed_values in values:
        (line,) = axes.plot(x, seed_values, **style)
        style |= {"color": line.get_color(), "label": None}


def describe_seeds(seeds: int) -> str:
    """Returns the caption's sentence about what `draw_seeds` draws; empty for a single seed."""
    if seeds == 1:
        return ""
    if seeds < LEAST_SEEDS:
        return f"A line for each of {seeds} seeds."
    return f"Lines: interquartile means over {seeds} seeds; bands: their 95 % bootstrap intervals."


def line_with_band(
    axes: Axes,
    x: np.ndarray,
    center: Float[np.ndarray, " points"],
    low: Float[np.ndarray, " points"],
    high: Float[np.ndarray, " points"],
    **style: Any,
) -> None:
    """Draws a line, and a band that does not widen the axis."""
    (line,) = axes.plot(x, center, **style)
    limits = axes.dataLim.frozen()
    axes.fill_between(x, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
    axes.dataLim.set(limits)


def label_ends(axes: Axes, labels: Sequence[EndLabel]) -> None:
    """Writes labels right of the axes, moved apart where they would overlap; call it after all
    lines are drawn.
    """
    axes.autoscale_view()
    height = axes.figure.get_figure(root=True).get_figheight() * axes.get_position().height
    gap = LINE_HEIGHT / (72 * height)
    ordered = sorted(labels, key=lambda label: label.y)
    to_fraction = axes.transData + axes.transAxes.inverted()
    positions = [float(to_fraction.transform((0, label.y))[1]) for label in ordered]
    for label, y in zip(ordered, spread(positions, gap), strict=True):
        axes.text(
            1.015,
            y,
            label.text,
            color=label.color,
            fontsize=8,
            va="center",
            transform=axes.transAxes,
        )


def format_thousands(axes: Axes) -> None:
    """Formats the x axis as 40k rather than 40000."""
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def caption(figure: Figure, *sentences: str) -> None:
    """Writes sentences below a figure; empty ones are left out."""
    text = " ".join(sentence for sentence in sentences if sentence)
    figure.supxlabel(text, fontsize=8, color="0.35")


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Moves ascending heights at least `gap` apart; each cluster keeps its mean."""
    clusters: list[list[float]] = []
    for height in heights:
        clusters.append([height])
        while len(clusters) > 1 and _low(clusters[-1], gap) - _high(clusters[-2], gap) < gap:
            above = clusters.pop()
            clusters[-1] += above
    return [
        _low(cluster, gap) + place * gap for cluster in clusters for place in range(len(cluster))
    ]


def _low(cluster: Sequence[float], gap: float) -> float:
    return float(np.mean(cluster)) - gap * (len(cluster) - 1) / 2


def _high(cluster: Sequence[float], gap: float) -> float:
    return float(np.mean(cluster)) + gap * (len(cluster) - 1) / 2
