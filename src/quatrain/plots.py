"""numbers of several learners or worlds -> lines with their intervals, labelled where they end."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Shaped
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quatrain.progress import History
from quatrain.statistics import half_interval

GREY, BLACK, RED, ORANGE, BLUE = "0.5", "0.2", "crimson", "darkorange", "tab:blue"
"""Chance, a floor, what was learned, the same while it learns, and a ceiling: in every figure of a policy."""
LINE_HEIGHT = 11
"""Points that a label takes."""


class Curve(NamedTuple):
    """A recorded metric of each learner."""

    steps: Shaped[np.ndarray, " points"]
    values: Float[np.ndarray, "learners points"]


class EndLabel(NamedTuple):
    """What stands beside an axis, at the height where a line ends."""

    y: float
    text: str
    color: Any


def curve(history: History, name: str, learners: int) -> Curve:
    """A metric as each learner has it; of several, `cosine/3` of learner 1 is recorded as `cosine/seed/1/3`."""
    if learners == 1:
        steps, values = history[name]
        return Curve(steps, values[None])
    parts = name.split("/")
    axes = next((place for place, part in enumerate(parts) if part.isdigit()), len(parts))
    names = [
        "/".join([*parts[:axes], "seed", str(learner), *parts[axes:]])
        for learner in range(learners)
    ]
    return Curve(history[names[0]][0], np.stack([history[one][1] for one in names]))


def mean_with_interval(
    axes: Axes, x: np.ndarray, values: Float[np.ndarray, "samples points"], **style: Any
) -> None:
    """The mean over samples as a line, and its 95 % t-interval as a band that does not widen the axis."""
    mean, half = values.mean(0), half_interval(values)
    (line,) = axes.plot(x, mean, **style)
    if len(values) > 1:
        limits = axes.dataLim.frozen()
        axes.fill_between(
            x, mean - half, mean + half, color=line.get_color(), alpha=0.15, linewidth=0
        )
        axes.dataLim.set(limits)


def label_ends(axes: Axes, labels: Sequence[EndLabel]) -> None:
    """Text right of the axes, each at its height, pushed apart where they would overlap; after everything is drawn."""
    axes.autoscale_view()
    gap = LINE_HEIGHT / (
        72 * axes.figure.get_figure(root=True).get_figheight() * axes.get_position().height
    )
    ordered = sorted(labels, key=lambda label: label.y)
    to_fraction = axes.transData + axes.transAxes.inverted()
    wanted = [float(to_fraction.transform((0, label.y))[1]) for label in ordered]
    for label, height in zip(ordered, spread(wanted, gap), strict=True):
        axes.text(
            1.015,
            height,
            label.text,
            color=label.color,
            fontsize=8,
            va="center",
            transform=axes.transAxes,
        )


def caption(figure: Figure, *sentences: str) -> None:
    """What lines and bands are, below a figure; empty sentences are left out."""
    figure.supxlabel(
        " ".join(sentence for sentence in sentences if sentence), fontsize=8, color="0.35"
    )


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Ascending heights, moved as little as it takes to be `gap` apart: clusters stay around their own middle."""
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
