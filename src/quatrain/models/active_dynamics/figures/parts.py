"""values of arms -> elements of figures: colours, medians with bands, titles, labels, ticks"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.patches import Circle
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from quatrain.plots import (
    BLACK,
    BLUE,
    GREY,
    ORANGE,
    RED,
    EndLabel,
    draw_each,
    label_ends,
    line_with_band,
)
from quatrain.statistics import median_interval

COLORS = {"active": RED, "random": GREY, "prbs": ORANGE, "step": BLUE}
# What the actions of an arm are, where its name does not say it.
ACTIONS = {"active": "planned for information", "prbs": "a pseudo-random binary sequence"}
TRUTH = BLACK
DOTTED_LINE: dict[str, Any] = {"linewidth": 2, "marker": "o", "markersize": 3}
# Ratio of the ends of an axis from which on it is logarithmic.
LOG_AXIS_RATIO = 2.5


def median_with_band(
    axes: Axes,
    x: Sequence[int] | np.ndarray,
    values: Float[np.ndarray, "replicate point"],
    **style: Any,
) -> Float[np.ndarray, " point"]:
    """Draws the median over replicates as a line and its 95 % interval as a band; of fewer than 6
    replicates each by itself. Returns the median.
    """
    median = np.median(values, 0)
    intervals = [median_interval(column) for column in values.T]
    if None in intervals:
        draw_each(axes, np.asarray(x), values, **style)
    else:
        line_with_band(axes, np.asarray(x), median, *np.array(intervals).T, **style)
    return median


def end_label(arm: str, y: float, text: str) -> EndLabel:
    return EndLabel(float(y), f"{arm}{text}", COLORS[arm])


def draw_arm(
    axes: Axes,
    arm: str,
    x: Sequence[int] | np.ndarray,
    values: Float[np.ndarray, "replicate point"],
    text: str | None = None,
    **style: Any,
) -> EndLabel:
    """Draws the median and the band of an arm.

    Returns the label at the end of the line: `text`, by default the last median.
    """
    last = median_with_band(axes, x, values, color=COLORS[arm], **style)[-1]
    return end_label(arm, last, f" {format_number(last)}" if text is None else text)


def label_arms(axes: Axes, title: str, ends: Sequence[EndLabel], fontsize: int = 10) -> None:
    """Adds a title, a grid and the labels of lines; call it after all lines are drawn."""
    set_title(axes, title, fontsize)
    axes.grid(alpha=0.25)
    label_ends(axes, ends)


def set_title(axes: Axes, text: str, fontsize: int = 10, **style: Any) -> None:
    axes.set_title(text, loc="left", fontsize=fontsize, **style)


def region_border(radius: float) -> Circle:
    return Circle((0, 0), radius, fill=False, edgecolor="0.3", linewidth=1, linestyle=":")


def explain_arms(arms: Sequence[str]) -> str:
    """Returns what the arms of a figure are that are not called by what they do."""
    described = [f"{arm}: {ACTIONS[arm]}" for arm in arms if arm in ACTIONS]
    return f"Actions of {', '.join(described)}." if described else ""


def explain_lines(replicates: int) -> str:
    if replicates == 1:
        return "One replicate."
    if median_interval(np.zeros(replicates)) is None:
        return f"A line for each of {replicates} replicates."
    band = "95 % confidence intervals of the median"
    return f"Lines: medians over {replicates} replicates; bands: {band}."


def explain_replicate(replicates: int) -> str:
    return "" if replicates == 1 else f"Of {replicates} replicates the one with the median error."


def set_transitions_axis(axes: Axes, steps: Sequence[int] | np.ndarray) -> None:
    """Labels the x axis; makes it logarithmic if the steps span a large enough ratio."""
    axes.set_xlabel("transitions, warm-up included")
    if steps[-1] >= LOG_AXIS_RATIO * steps[0]:
        axes.set_xscale("log")
        log_ticks(axes.xaxis)


def log_ticks(axis: Axis) -> None:
    """Puts ticks at 1, 2, 5, 10, ..., written as plain numbers."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(NullFormatter())


def format_number(value: float) -> str:
    """Formats with two significant digits: 0.079, 1.2, 350."""
    return f"{value:.2g}" if abs(value) < 10 else f"{value:,.0f}"
