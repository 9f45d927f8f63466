"""numbers of several learners or policies -> figures: a metric while learning beside the policies'
scores, panels of diagnostics, the distribution of returns; the style of all figures.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from itertools import cycle
from textwrap import fill
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Shaped
from matplotlib import rc_context, rcdefaults, rcParams
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator, NullFormatter

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


class Figure(MatplotlibFigure):
    """Shows itself in a notebook, also without `%matplotlib inline`."""

    def _repr_png_(self) -> bytes:
        file = BytesIO()
        self.savefig(file, format="png")
        return file.getvalue()


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
# Height of a label, in points.
LINE_HEIGHT = 11
# Most marked numbers of an axis, so that they stay apart.
TICKS = 5
# Characters of a caption in an inch of the figure's width.
CHARACTERS_PER_INCH = 13.5

Picture = Figure | Animation


def in_order(pictures: Mapping[str, Picture], captions: Mapping[str, str]) -> dict[str, Picture]:
    """Returns the pictures in the order of their captions, each with its caption, and each figure
    under the question with which its caption begins.
    """
    return {
        name: _with_caption(pictures[name], text)
        for name, text in captions.items()
        if name in pictures
    }


def _with_caption(picture: Picture, text: str) -> Picture:
    if isinstance(picture, Animation):
        return picture._replace(caption=text)
    picture.set_label(text)
    question, mark, _ = text.partition("?")
    if mark:
        picture.suptitle(question + mark, x=0.01, horizontalalignment="left", fontsize=12)
    return picture


def caption(figure: Figure, *sentences: str) -> None:
    """Writes sentences below a figure, in lines of its width; empty ones are left out."""
    text = " ".join(sentence for sentence in sentences if sentence)
    width = int(CHARACTERS_PER_INCH * figure.get_figwidth())
    figure.supxlabel(fill(text, width), fontsize=9, color="0.3")


# What is drawn.


class Curve(NamedTuple):
    """A recorded metric of each learner."""

    steps: Shaped[np.ndarray, " points"]
    values: Float[np.ndarray, "learners points"]


def curve(history: History, name: str, learners: int, over: str = "") -> Curve:
    """Returns a metric of each learner; `cosine/3` of learner 1 is recorded as `cosine/seed/1/3` if
    there are several.

    over: a recorded count, as `transitions`, in place of the steps of the history.
    """
    keys = [name]
    if learners > 1:
        parts = name.split("/")
        axes = next((place for place, part in enumerate(parts) if part.isdigit()), len(parts))
        keys = [
            "/".join([*parts[:axes], "seed", str(learner), *parts[axes:]])
            for learner in range(learners)
        ]
    steps = history[keys[0]][0]
    values = np.stack([history[key][1] for key in keys])
    return Curve(np.interp(steps, *history[over]) if over else steps, values)


class Line(NamedTuple):
    """A curve, and its name and colour; without a name it has no label."""

    curve: Curve
    color: Any = RED
    name: str = ""


class Level(NamedTuple):
    """What one policy (or table, or field) scores, and half the interval of that."""

    name: str
    value: float
    color: Any
    half: float = 0.0


class Panel(NamedTuple):
    """A diagnostic of learning.

    level: where something happens, as the norm to which gradients are cut. limits: the least and
    the greatest value that are possible, or shown.
    """

    title: str
    unit: str
    lines: Sequence[Line]
    level: float | None = None
    scale: Literal["linear", "log"] = "linear"
    limits: tuple[float | None, float | None] = (None, None)


class PolicyReturns(NamedTuple):
    """What a policy gets in held-out episodes, of each of its seeds.

    mean: as it was judged, where a policy that draws was judged with other draws.
    """

    name: str
    color: Any
    values: Float[np.ndarray, "seeds episodes"]
    mean: float | None = None

    @property
    def level(self) -> Level:
        """Returns the mean with its 95 % interval: over episodes of one seed, over seeds of
        several; few seeds give none.
        """
        samples = self.values.T if len(self.values) == 1 else self.values.mean(1, keepdims=True)
        few = 1 < len(self.values) < LEAST_SEEDS
        half = 0.0 if few else float(half_interval(samples)[0])
        mean = float(self.values.mean()) if self.mean is None else self.mean
        return Level(self.name, mean, self.color, half)


# Parts of figures.


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


class EndLabel(NamedTuple):
    """A text right of the axes, at the height where a line ends."""

    y: float
    text: str
    color: Any


def label_ends(axes: Axes, labels: Sequence[EndLabel]) -> None:
    """Writes labels right of the axes, moved apart where they would overlap, yet beside the axes;
    call it after all lines are drawn. A line of NaN has no end.
    """
    axes.autoscale_view()
    height = axes.figure.get_figure(root=True).get_figheight() * axes.get_position().height
    ordered = sorted((label for label in labels if np.isfinite(label.y)), key=lambda label: label.y)
    to_fraction = axes.transData + axes.transAxes.inverted()
    ends = [float(to_fraction.transform((0, label.y))[1]) for label in ordered]
    style: dict[str, Any] = {"fontsize": 8, "va": "center", "transform": axes.transAxes}
    for label, y in zip(ordered, apart(ends, LINE_HEIGHT / (72 * height)), strict=True):
        axes.text(1.015, y, label.text, color=label.color, **style)


def apart(heights: Sequence[float], gap: float) -> Float[np.ndarray, " label"]:
    """Moves ascending heights at least `gap` apart, and into 0..1 where there is room."""
    places = gap * np.arange(len(heights))
    free = np.asarray(heights) - places
    pushed_up = np.maximum.accumulate(free)
    pushed_down = np.minimum.accumulate(free[::-1])[::-1]
    middle = (pushed_up + pushed_down) / 2
    return np.clip(middle, gap / 2, 1 + gap / 2 - gap * len(heights)) + places


def format_thousands(axes: Axes) -> None:
    """Formats the x axis as 40k rather than 40000, with few numbers."""
    axes.xaxis.set_major_locator(MaxNLocator(TICKS))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def mark_decades(axes: Axes) -> None:
    """Makes the y axis logarithmic, with a number at few powers of ten and none between."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(numticks=TICKS))
    axes.yaxis.set_minor_formatter(NullFormatter())


def log_ticks(axis: Axis) -> None:
    """Puts ticks at 1, 2, 5, 10, ..., written as plain numbers."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(NullFormatter())


# Figures that several models have.


def learning_curve(
    lines: Sequence[Line],
    levels: Sequence[Level],
    decimals: int,
    x_label: str,
    y_label: str,
    titles: tuple[str, str] = ("While learning", "Then, held out"),
) -> Figure:
    """Draws a metric of each seed over training, and beside it, since that is measured elsewhere,
    what the learned policy and its references score in the end.
    """
    figure = Figure(figsize=(10, 5), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(7, 1))
    ends = []
    for line in lines:
        last = _last(draw_seeds(left, *line.curve, color=line.color, linewidth=2))
        ends.append(EndLabel(last, f"{line.name} {last:.{decimals}f}", line.color))
    left.set(xlabel=x_label, ylabel=y_label, title=titles[0])
    left.grid(alpha=0.25)
    format_thousands(left)
    right.set_title(titles[1])
    _draw_levels(right, levels, decimals)
    label_ends(left, ends)
    return figure


def _draw_levels(axes: Axes, levels: Sequence[Level], decimals: int) -> None:
    """Draws levels as dots with intervals, named on the right."""
    ends = []
    for level in levels:
        axes.errorbar(0, level.value, level.half or None, color=level.color, marker="o", capsize=4)
        axes.axhline(level.value, color=level.color, linestyle="--", linewidth=1, alpha=0.5)
        text = f"{level.name} {level.value + 0.0:.{decimals}f}"
        ends.append(EndLabel(level.value, text, level.color))
    axes.set(xticks=[], xlim=(-1, 1))
    axes.tick_params(axis="y", labelleft=False)
    axes.grid(alpha=0.25)
    label_ends(axes, ends)


def update_panels(
    panels: Sequence[Panel],
    x_label: str,
    columns: int = 3,
    draw: Callable[..., np.ndarray] = draw_seeds,
) -> Figure:
    """Draws a panel for each diagnostic of learning.

    draw: draws a line; it has the signature of `draw_seeds`.
    """
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(4 * columns, 2.8 * rows + 0.6), layout="constrained")
    grid = figure.subplots(rows, columns, sharex=True, squeeze=False)
    for axes, panel in zip(grid.flat, panels, strict=False):
        _draw_panel(axes, panel, draw)
    for axes in grid.flat[len(panels) :]:
        axes.remove()
    for axes in grid.flat[len(panels) - columns : len(panels)]:
        axes.set_xlabel(x_label)
        axes.tick_params(labelbottom=True)
    return figure


def _draw_panel(axes: Axes, panel: Panel, draw: Callable[..., np.ndarray]) -> None:
    ends = []
    for line in panel.lines:
        drawn = draw(axes, *line.curve, color=line.color, linewidth=1.4)
        if line.name:
            ends.append(EndLabel(_last(drawn), line.name, line.color))
    if panel.level is not None:
        axes.axhline(panel.level, color=GREY, linestyle="--", linewidth=1.2)
        ends.append(EndLabel(panel.level, f"{panel.level:g}", GREY))
    axes.set(title=panel.title, ylabel=panel.unit)
    axes.grid(alpha=0.25)
    format_thousands(axes)
    if panel.scale == "log":
        mark_decades(axes)
    axes.set_ylim(*panel.limits)
    label_ends(axes, ends)


def returns_ecdf(policies: Sequence[PolicyReturns], x_label: str) -> Figure:
    """Draws which share of held-out episodes returns at most so much, for each policy; names them
    from the best mean to the worst.
    """
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.subplots()
    dashes = {policy.color: cycle(("-", "--", ":")) for policy in policies}
    for policy in sorted(policies, key=lambda policy: policy.level.value, reverse=True):
        level = policy.level
        text = f"{level.name} {level.value:.4g}" + f" ± {level.half:.2g}" * bool(level.half)
        style = {"color": level.color, "linestyle": next(dashes[level.color]), "linewidth": 1.8}
        axes.ecdf(policy.values.ravel(), label=text, **style)
    axes.set(xlabel=x_label, ylabel="share of episodes with at most that", ylim=(0, 1))
    axes.grid(alpha=0.25)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), title="mean", alignment="left")
    return figure


def _last(values: Float[np.ndarray, " points"]) -> float:
    """Returns the last finite value; NaN without any."""
    finite = values[np.isfinite(values)]
    return float(finite[-1]) if len(finite) else np.nan
