"""What figures share: colours of arms, medians with bands, ticks, numbers in words."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from quatrain.plots import BLACK, ORANGE, RED
from quatrain.statistics import Interval, median_interval

COLORS = {
    "active": RED,
    "random": "0.55",
    "prbs": ORANGE,
    "step": "#0072B2",
    "chirp": "#009E73",
    "off": "#882255",
}
"""Of each arm, in every figure."""
TRUTH = BLACK
WIDE = 2.5
"""Ratio of the ends of an axis from which on it is logarithmic."""


def interval(values: Float[np.ndarray, " replicate"]) -> Interval | None:
    """Where the median lies with 95 % confidence; of fewer than 6 from the least to the greatest; None of one."""
    if len(values) == 1:
        return None
    return median_interval(values) or Interval(float(values.min()), float(values.max()))


def median_with_band(
    axes: Axes,
    x: Sequence[int] | np.ndarray,
    values: Float[np.ndarray, "replicate point"],
    **style: Any,
) -> Float[np.ndarray, " point"]:
    """The median over replicates as a line, its interval as a band that does not widen the axis; returns the median."""
    median = np.median(values, 0)
    (line,) = axes.plot(x, median, **style)
    bands = [band for column in values.T if (band := interval(column)) is not None]
    if bands:
        limits = axes.dataLim.frozen()
        axes.fill_between(x, *np.array(bands).T, color=line.get_color(), alpha=0.18, linewidth=0)
        axes.dataLim.set(limits)
    return median


def told(replicates: int) -> str:
    """What lines and bands are."""
    if replicates == 1:
        return "One replicate."
    sure = median_interval(np.zeros(replicates)) is not None
    band = (
        "where the median lies with 95 % confidence" if sure else "from the least to the greatest"
    )
    return f"Lines: medians over {replicates} replicates; bands: {band}."


def typical_told(replicates: int) -> str:
    """Which replicate a map is of."""
    return "" if replicates == 1 else f"Of {replicates} replicates the one with the median error."


def over_transitions(axes: Axes, steps: Sequence[int] | np.ndarray) -> None:
    """Their axis, logarithmic where they span enough for it."""
    axes.set_xlabel("transitions met, warm-up included")
    if steps[-1] >= WIDE * steps[0]:
        axes.set_xscale("log")
        log_ticks(axes.xaxis)


def log_ticks(axis: Axis) -> None:
    """1, 2, 5, 10, ... as they are written."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(NullFormatter())


def number(value: float) -> str:
    """Two digits that count: 0.079, 1.2, 350."""
    return f"{value:.2g}" if abs(value) < 10 else f"{value:,.0f}"
