"""stored rows -> figures: claims beside measurements, other libraries, time against size"""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

from benchmarks import claims
from benchmarks.claims import PROPOSALS, Named, Verdict
from pipeline.reporting.speed import FACTORS, PLAIN, PROPOSED, REFERENCE, Ratio, Row, times
from quatrain.plots import BLACK, BLUE, GREY, ORANGE, RED, caption

LABEL, TITLE, COLUMNS = 34, 44, 3
"""Characters of a line of a label and of a title; panels side by side."""
SIDES = {"before": BLACK, "its way": ORANGE, "ours": BLUE, "limit": GREY}
"""What is drawn of a scaling curve."""
Bar = tuple[Ratio, str, str]
"""A ratio with its rounds, a color and a text."""


class Group(NamedTuple):
    """Holds bars under one label; `mark` is what was promised of them."""

    label: str
    bars: Sequence[Bar]
    mark: float | None = None


def draw(rows: Sequence[Named]) -> dict[str, Figure]:
    """Returns figures by name, as far as there is something to draw."""
    groups = {f"claims_{name}": claim_groups(claims.verdicts(name, rows)) for name in PROPOSALS}
    keys = {"the proposed way": ORANGE, "ours": BLUE, "promised (weakest reading)": RED}
    axis = "times as fast, or as little memory, as before"
    figures = {name: draw_bars(each, keys, axis) for name, each in groups.items() if each}
    if works := claims.peers(rows):
        bars = [Group(work, [*map(peer_bar, each.values())]) for work, each in works.items()]
        keys = {"ours is ahead": BLUE, "the other is ahead": RED}
        figures["peers"] = draw_bars(bars, keys, "times as long, or as many bytes, as ours")
    if curves := curves_of(rows):
        figures["scaling"] = draw_curves(curves)
    return figures


# Bars.


def claim_groups(verdicts: Sequence[Verdict]) -> list[Group]:
    """Returns the bars of each claim: the proposed way and ours, of several rows the middle one."""
    groups = []
    for item in verdicts:
        bars = []
        for name, color in ((PROPOSED, ORANGE), (PLAIN, BLUE)):
            ratios = sorted(row.ratios[name] for _, row in item.rows if name in row.ratios)
            if ratios:
                middle = ratios[len(ratios) // 2]
                bars.append((middle, color, times(middle.median)))
        groups.append(Group(item.claim.what, bars, item.claim.least))
    return [group for group in groups if group.bars]


def peer_bar(row: Row) -> Bar:
    ratio = row.ratios[PLAIN]
    return ratio, BLUE if ratio.median >= 1 else RED, f"{times(ratio.median)} {row.against}"


def draw_bars(groups: Sequence[Group], keys: dict[str, str], axis: str) -> Figure:
    """Draws horizontal bars from 1 outwards on a logarithmic axis, the first on top, with their
    texts in a column on the right.
    """
    labels = [fill(group.label.replace("`", ""), LABEL) for group in groups]
    lines = [0.8 * (1 + label.count("\n")) for label in labels]
    heights = np.maximum(lines, [len(group.bars) for group in groups])
    middles = np.cumsum(heights + 0.6) - heights / 2
    whole = sum(heights + 0.6)
    figure = Figure(figsize=(10, 1.3 + 0.22 * whole), layout="constrained")
    axes = figure.subplots()
    axes.set_xscale("log")
    axes.axvline(1, color=BLACK, linewidth=1)
    for group, middle in zip(groups, middles, strict=True):
        draw_group(axes, middle - (len(group.bars) - 1) / 2, group)
    axes.set_yticks(middles, labels, fontsize=9)
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


def draw_group(axes: Axes, top: float, group: Group) -> None:
    """Draws bars from `top` on, with the rounds over each and the mark over all."""
    for place, (ratio, color, text) in enumerate(group.bars):
        y, right = top + place, axes.get_yaxis_transform()
        axes.barh(y, ratio.median - 1, left=1, height=0.8, color=color, alpha=0.85)
        axes.plot([ratio.least, ratio.greatest], [y, y], color=BLACK, linewidth=1)
        axes.text(1.01, y, text, transform=right, va="center", fontsize=8)
    if group.mark is not None:
        ends = (top - 0.5, top + len(group.bars) - 0.5)
        axes.plot([group.mark] * 2, ends, color=RED, linewidth=2.5, solid_capstyle="butt")


def mark_ticks(axis: Axis, suffix: str) -> None:
    """Writes plain numbers at powers of ten; on a short axis also at 2 and 5."""
    low, high = sorted(axis.get_view_interval())
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high / low < 1e3 else (1.0,)))
    axis.set_major_formatter(f"{{x:g}}{suffix}")
    axis.set_minor_formatter(NullFormatter())


# Curves.


def curves_of(rows: Sequence[Named]) -> dict[str, list[Row]]:
    """Returns the points of each curve in order; the first of rows at one position."""
    curves: dict[str, dict[float, Row]] = {}
    for benchmark, row in rows:
        if row.point is not None:
            points = curves.setdefault(f"{benchmark}: {row.point.curve}", {})
            points.setdefault(row.point.at, row)
    return {name: [points[at] for at in sorted(points)] for name, points in curves.items()}


def draw_curves(curves: Mapping[str, Sequence[Row]]) -> Figure:
    """Draws a panel per curve: the time of each side against size, with the ratios on top."""
    columns = min(COLUMNS, len(curves))
    lines = -(-len(curves) // columns)
    figure = Figure(figsize=(4.2 * columns, 0.6 + 3.4 * lines), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    for axes, (name, rows) in zip(panels, curves.items(), strict=False):
        others = {row.against for row in rows if row.before} - {REFERENCE}
        before = f" (before: {', '.join(others)})" if others else ""
        axes.set_title(fill(name + before, TITLE), loc="left", fontsize=10)
        draw_curve(axes, rows)
    for axes in panels[len(curves) :]:
        axes.set_axis_off()
    handles = [Patch(color=color, label=name) for name, color in SIDES.items()]
    figure.legend(handles=handles, loc="outside upper left", ncols=len(SIDES), frameon=False)
    caption(figure, "Medians of the rounds, both axes logarithmic; on top: before / ours.")
    return figure


def draw_curve(axes: Axes, rows: Sequence[Row]) -> None:
    points = [row.point for row in rows if row.point is not None]
    places, unit = [point.at for point in points], rows[0].unit
    axes.set(xscale="log", yscale="log", xlabel=points[0].axis, ylabel=unit)
    sides = zip(*((row.before, row.seed_way, row.ours, row.limit) for row in rows), strict=True)
    for color, side in zip(SIDES.values(), sides, strict=True):
        values = [each.median * FACTORS[unit] if each else np.nan for each in side]
        axes.plot(places, values, "o-", color=color, markersize=3.5)
    axes.margins(x=0.12, y=0.12)
    low, high = axes.get_ylim()
    widen = max(1.0, (10 * low / high) ** 0.5)  # a flat curve shall look flat
    low, high = low / widen, high * widen
    axes.set_ylim(low, high * (high / low) ** 0.12)
    for at, row in zip(places, rows, strict=True):
        text = times(row.ratios[PLAIN].median) if PLAIN in row.ratios else ""
        place = {"transform": axes.get_xaxis_transform(), "ha": "center", "va": "top"}
        axes.text(at, 0.98, text, fontsize=8, **place)
    axes.set_xticks(places, [compact(at) for at in places])
    axes.xaxis.set_minor_locator(NullLocator())
    mark_ticks(axes.yaxis, "")
    axes.grid(alpha=0.25)


def compact(number: float) -> str:
    """Formats 1000000 as 1M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if number >= size and number % (size / 10) == 0:
            return f"{number / size:g}{letter}"
    return f"{number:g}"
