"""stored rows -> figures: claims beside measurements, and other libraries"""

from collections.abc import Sequence
from textwrap import fill
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullFormatter

from benchmarks import claims
from benchmarks.claims import PROPOSALS, Named, Verdict
from benchmarks.speed import PLAIN, PROPOSED, Ratio, Row, times
from quatrain.plots import BLACK, BLUE, ORANGE, RED, caption, house_style

LABEL = 34
"""Characters of a line of a label."""
Bar = tuple[Ratio, str, str]
"""A ratio with its rounds, a color and a text."""


class Group(NamedTuple):
    """Holds bars under one label; `mark` is what was promised of them."""

    label: str
    bars: Sequence[Bar]
    mark: float | None = None


@house_style
def draw(rows: Sequence[Named]) -> dict[str, Figure]:
    """Returns figures by name, as far as there is something to draw."""
    groups = {f"claims_{name}": claim_groups(claims.verdicts(name, rows)) for name in PROPOSALS}
    keys = {"the seed's way": ORANGE, "ours": BLUE, "promised (weakest reading)": RED}
    axis = "times as fast, or as little memory, as before"
    figures = {name: draw_bars(each, keys, axis) for name, each in groups.items() if each}
    if works := claims.peers(rows):
        bars = [Group(work, [*map(peer_bar, each.values())]) for work, each in works.items()]
        keys = {"ours is ahead": BLUE, "the other is ahead": RED}
        figures["peers"] = draw_bars(bars, keys, "times as long, or as many bytes, as ours")
    return figures


# Bars.


def claim_groups(verdicts: Sequence[Verdict]) -> list[Group]:
    """Returns the bars of each claim: the seed's way and ours, of several rows the middle one."""
    groups = []
    for item in verdicts:
        bars = []
        for name, color in ((PROPOSED, ORANGE), (PLAIN, BLUE)):
            ratios = sorted(row.ratios[name] for _, row, _ in item.rows if name in row.ratios)
            if ratios:
                middle = ratios[len(ratios) // 2]
                bars.append((middle, color, times(middle.median)))
        groups.append(Group(item.claim.what, bars, item.claim.least))
    return [group for group in groups if group.bars]


def peer_bar(row: Row) -> Bar:
    ratio = row.ratios[PLAIN]
    return ratio, BLUE if ratio.median >= 1 else RED, f"{times(ratio.median)}  {row.against}"


def draw_bars(groups: Sequence[Group], keys: dict[str, str], axis: str) -> Figure:
    """Draws horizontal bars from 1 outwards on a logarithmic axis, the first on top, with their
    texts in a column on the right.
    """
    labels = [fill(group.label.replace("`", ""), LABEL) for group in groups]
    lines = [0.8 * (1 + label.count("\n")) for label in labels]
    heights = np.maximum(lines, [len(group.bars) for group in groups])
    middles = np.cumsum(heights + 0.6) - heights / 2
    whole = sum(heights + 0.6)
    figure = Figure(figsize=(10, 1.3 + 0.24 * whole), layout="constrained")
    axes = figure.subplots()
    axes.set_xscale("log")
    axes.axvline(1, color=BLACK, linewidth=1)
    for place, (group, middle, height) in enumerate(zip(groups, middles, heights, strict=True)):
        draw_group(axes, middle - (len(group.bars) - 1) / 2, group)
        if place % 2 == 0:
            shade(axes, middle - height / 2 - 0.3, middle + height / 2 + 0.3)
    axes.set_yticks(middles, labels, fontsize=10)
    axes.tick_params(axis="y", length=0)
    axes.set(ylim=(whole + 0.6, 0), xlabel=axis)
    mark_ticks(axes.xaxis, "x")
    axes.grid(axis="x", alpha=0.25)
    axes.spines[["top", "right", "left"]].set_visible(False)
    handles = [Patch(color=color, label=text) for text, color in keys.items()]
    place = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": len(keys)}
    axes.legend(handles=handles, frameon=False, fontsize=9, **place)
    several = "A claim with several rows shows the middle one." if ORANGE in keys.values() else ""
    caption(figure, "Medians; thin lines: least and greatest of the rounds.", several)
    return figure


def shade(axes: Axes, top: float, bottom: float) -> None:
    """Shades the rows of a group over the whole width: its label and its texts belong together."""
    span = axes.axhspan(top, bottom, xmin=-1, xmax=2, color="0.955", linewidth=0, zorder=-1)
    span.set(clip_on=False, in_layout=False)


def draw_group(axes: Axes, top: float, group: Group) -> None:
    """Draws bars from `top` on, with the rounds over each and the mark over all."""
    for place, (ratio, color, text) in enumerate(group.bars):
        y, right = top + place, axes.get_yaxis_transform()
        axes.barh(y, ratio.median - 1, left=1, height=0.8, color=color, alpha=0.85)
        axes.plot([ratio.least, ratio.greatest], [y, y], color=BLACK, linewidth=1)
        axes.text(1.01, y, text, transform=right, va="center", fontsize=9)
    if group.mark is not None:
        ends = (top - 0.5, top + len(group.bars) - 0.5)
        axes.plot([group.mark] * 2, ends, color=RED, linewidth=2.5, solid_capstyle="butt")


def mark_ticks(axis: Axis, suffix: str) -> None:
    """Writes plain numbers at powers of ten; on a short axis also at 2 and 5."""
    low, high = sorted(axis.get_view_interval())
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high / low < 1e3 else (1.0,)))
    axis.set_major_formatter(f"{{x:g}}{suffix}")
    axis.set_minor_formatter(NullFormatter())
