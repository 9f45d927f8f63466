"""numbers of several learners or worlds -> lines, with confidence intervals where there are
enough, labelled at their ends; policies beside each other; the style of all figures.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Shaped
from matplotlib import rc_context, rcdefaults, rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullFormatter

from quatrain.animation import Animation
from quatrain.progress import History
from quatrain.statistics import (
    LEAST_SEEDS,
    half_interval,
    interquartile_interval,
    interquartile_mean,
)

# Colours of chance, what limits a score, learner, learner during training, and upper reference:
# apart for any colour vision, and dark enough for text.
GREY = "0.5"
BLACK = "0.2"
RED = "#C8102E"
ORANGE = "#D17A00"
BLUE = "#0072B2"
GREEN = "#009E73"


@contextmanager
def matplotlib_defaults(changes: Mapping[Any, Any]) -> Iterator[None]:
    """Sets matplotlib's own defaults with changes, whatever a matplotlibrc or a style of the caller
    says; restores the caller's at the end.
    """
    with rc_context():
        rcdefaults()
        rcParams.update(changes)
        yield


# Decorates what makes figures: one look for all.
house_style = matplotlib_defaults(
    {
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": "0.4",
        "axes.titlesize": 10,
        "axes.titlelocation": "left",
        "axes.axisbelow": True,
        "axes.labelcolor": "0.15",
        "xtick.color": "0.3",
        "ytick.color": "0.3",
        "legend.frameon": False,
        "legend.fontsize": 9,
    }
)
# Title of one panel of several.
SMALL_TITLE: dict[str, Any] = {"loc": "left", "fontsize": 10}
# Height of a label, in points.
LINE_HEIGHT = 11
# Most marked numbers of an axis, so that they stay apart.
TICKS = 5
# Characters of a caption in an inch of the figure's width.
CHARACTERS_PER_INCH = 13.5


Picture = Figure | Animation


def in_order(pictures: Mapping[str, Picture], captions: Mapping[str, str]) -> dict[str, Picture]:
    """Returns the pictures in the order of their captions, each with its caption."""
    return {
        name: _with_caption(pictures[name], text)
        for name, text in captions.items()
        if name in pictures
    }


def _with_caption(picture: Picture, text: str) -> Picture:
    if isinstance(picture, Animation):
        return picture._replace(caption=text)
    picture.set_label(text)
    return picture


class Curve(NamedTuple):
    """Holds a recorded metric of each learner."""

    steps: Shaped[np.ndarray, " points"]
    values: Float[np.ndarray, "learners points"]


class EndLabel(NamedTuple):
    """Holds a text right of the axes, at the height where a line ends."""

    y: float
    text: str
    color: Any


class Level(NamedTuple):
    """Holds what one policy (or table, or field) scores, and half the interval of that."""

    name: str
    value: float
    color: Any
    half: float = 0.0


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
    axes: Axes, x: np.ndarray, values: Float[np.ndarray, "samples points"], **style: Any
) -> Float[np.ndarray, " points"]:
    """Draws the mean over held-out samples as a line and its 95 % t-interval as a band; returns the
    mean.
    """
    mean = values.mean(0)
    half = half_interval(values)
    line_with_band(axes, x, mean, mean - half, mean + half, **style)
    return mean


def draw_seeds(
    axes: Axes, x: np.ndarray, values: Float[np.ndarray, "seeds points"], **style: Any
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
    axes: Axes, x: np.ndarray, values: Float[np.ndarray, "seeds points"], **style: Any
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
    """Writes labels right of the axes, moved apart where they would overlap, yet beside the axes;
    call it after all lines are drawn.
    """
    axes.autoscale_view()
    height = axes.figure.get_figure(root=True).get_figheight() * axes.get_position().height
    gap = LINE_HEIGHT / (72 * height)
    ordered = sorted(labels, key=lambda label: label.y)
    to_fraction = axes.transData + axes.transAxes.inverted()
    positions = [float(to_fraction.transform((0, label.y))[1]) for label in ordered]
    for label, y in zip(ordered, within(spread(positions, gap), gap), strict=True):
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
    """Formats the x axis as 40k rather than 40000, with few numbers."""
    axes.xaxis.set_major_locator(MaxNLocator(TICKS))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def mark_decades(axes: Axes) -> None:
    """Makes the y axis logarithmic, with a number at few powers of ten and none between."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(numticks=TICKS))
    axes.yaxis.set_minor_formatter(NullFormatter())


def draw_ladder(
    axes: Axes,
    levels: Sequence[Level],
    decimals: int,
    limits: tuple[float | None, float | None] = (None, None),
) -> None:
    """Draws a bar for each level, the best on top, with its number and interval beside it.

    limits: the least and the greatest value that are possible; no axis shows more.
    """
    ordered = sorted(levels, key=lambda level: level.value, reverse=True)
    for place, level in enumerate(ordered):
        style: dict[str, Any] = {"xerr": level.half, "ecolor": BLACK, "capsize": 3}
        axes.barh(place, level.value, color=level.color, **(style if level.half else {}))
        text = f"{level.value + 0.0:.{decimals}f}" + f" ± {level.half:.{decimals}f}" * bool(
            level.half
        )
        axes.text(1.01, place, text, transform=axes.get_yaxis_transform(), va="center", fontsize=9)
    axes.set_yticks(range(len(ordered)), [level.name for level in ordered])
    for label, level in zip(axes.get_yticklabels(), ordered, strict=True):
        label.set_color(BLACK if level.color == GREY else level.color)
    axes.invert_yaxis()
    axes.axvline(0, color="0.4", linewidth=0.8)
    low, high = axes.get_xlim()
    least, most = limits
    axes.set_xlim(
        low if least is None else max(low, least), high if most is None else min(high, most)
    )
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", alpha=0.25)


def draw_levels_beside(axes: Axes, levels: Sequence[Level], decimals: int) -> None:
    """Draws levels as dots with intervals in narrow axes that share their height with a curve, and
    names them on the right.
    """
    for level in levels:
        axes.errorbar(
            [0], [level.value], yerr=level.half or None, color=level.color, marker="o", capsize=4
        )
        axes.axhline(level.value, color=level.color, linestyle="--", linewidth=1, alpha=0.5)
    axes.set(xticks=[], xlim=(-1, 1))
    axes.tick_params(axis="y", labelleft=False)
    axes.grid(alpha=0.25)
    texts = [f"{level.name} {level.value + 0.0:.{decimals}f}" for level in levels]
    label_ends(
        axes,
        [
            EndLabel(level.value, text, level.color)
            for level, text in zip(levels, texts, strict=True)
        ],
    )


def caption(figure: Figure, *sentences: str) -> None:
    """Writes sentences below a figure, in lines of its width; empty ones are left out."""
    text = " ".join(sentence for sentence in sentences if sentence)
    width = int(CHARACTERS_PER_INCH * figure.get_figwidth())
    figure.supxlabel(fill(text, width), fontsize=9, color="0.3")


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


def within(heights: Sequence[float], gap: float) -> list[float]:
    """Moves ascending heights, `gap` apart, into 0..1 where there is room; they stay apart."""
    above = range(len(heights) - 1, -1, -1)
    return [
        max(min(height, 1 - gap * (0.5 + places)), gap * (0.5 + len(heights) - 1 - places))
        for height, places in zip(heights, above, strict=True)
    ]


def _low(cluster: Sequence[float], gap: float) -> float:
    return float(np.mean(cluster)) - gap * (len(cluster) - 1) / 2


def _high(cluster: Sequence[float], gap: float) -> float:
    return float(np.mean(cluster)) + gap * (len(cluster) - 1) / 2
