"""a comparison -> its figures: differences of each metric by seed, and learning curves."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from quatrain.baselines import Rule
from quatrain.comparison import Comparison, Difference, curves
from quatrain.plots import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    RED,
    Figure,
    caption,
    describe_seeds,
    draw_seeds,
    format_thousands,
    house_style,
)

STYLES: dict[str, dict[str, Any]] = {
    "before": {"color": ORANGE, "linestyle": "--"},
    "after": {"color": BLUE},
}
COLOURS = {"better": GREEN, "worse": RED, "differs": ORANGE}


@house_style
def draw(comparison: Comparison) -> dict[str, Figure]:
    figures = {"differences": draw_differences(comparison)}
    recorded = {name: curves(comparison.after, name) for name in comparison.curves}
    names = [name for name, curve in recorded.items() if curve and len(curve[0]) > 1]
    return figures | ({"curves": draw_curves(comparison, names)} if names else {})


def draw_differences(comparison: Comparison) -> Figure:
    """Draws a row for each metric, on a scale of its own that is better to the right."""
    rules = {rule.metric: rule for rule in comparison.rules}
    count = len(comparison.differences)
    figure = Figure(figsize=(8, 1.1 + 0.85 * count), layout="constrained")
    rows = figure.subplots(count, squeeze=False)[:, 0]
    for axes, (metric, difference) in zip(rows, comparison.differences.items(), strict=True):
        rule = rules[metric]
        draw_difference(axes, difference, comparison.margin_of(rule), rule)
        best = "best near a value" if rule.direction == "near" else f"{rule.direction} is better"
        weight = "bold" if metric == comparison.metric else "normal"
        title = f"{metric} ({best}): {difference.verdict}"
        axes.set_title(title, weight=weight)
    caption(
        figure,
        "after - before: the mean with its 95 % interval, a dot for each seed. Better is to the",
        "right: an axis is reversed where lower is better. Grey: what is tolerated. Bold: the "
        "metric that decides.",
    )
    return figure


def draw_difference(axes: Axes, difference: Difference, margin: float, rule: Rule) -> None:
    colour = COLOURS.get(difference.verdict, BLACK)
    axes.axvspan(-margin, margin, color=GREY, alpha=0.15, linewidth=0)
    axes.axvline(0, color=GREY, linewidth=1)
    axes.plot(difference.each, np.full(len(difference.each), -0.5), ".", color=colour, alpha=0.6)
    ends = [[difference.mean - difference.low], [difference.high - difference.mean]]
    style: dict[str, Any] = {"marker": "o", "capsize": 4, "linewidth": 2, "color": colour}
    axes.errorbar([difference.mean], [0.3], xerr=ends, **style)
    # A tolerance far beyond what was seen leaves nothing to see.
    widest = max(abs(difference.low), abs(difference.high), *abs(difference.each))
    reach = 1.1 * max(widest, min(margin, 4 * widest) or margin or 1.0)
    axes.set(ylim=(-1, 1), yticks=[], xlim=(-reach, reach))
    axes.spines["left"].set_visible(False)
    if rule.direction == "lower":
        axes.invert_xaxis()


def draw_curves(comparison: Comparison, names: list[str]) -> Figure:
    """Draws the recorded metrics of both sides over steps."""
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        for side, (label, style) in zip(comparison.sides, STYLES.items(), strict=True):
            if recorded := curves(side, name):
                draw_seeds(axes, *recorded, label=label, **style)
        axes.set_title(name)
        axes.set_xlabel("training steps")
        axes.grid(alpha=0.25)
        format_thousands(axes)
    axes.legend()
    caption(figure, "Metrics while training.", describe_seeds(len(comparison.after)))
    return figure
