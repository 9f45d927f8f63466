"""rows -> figures: claims beside measurements, scaling of time, other libraries"""

from collections.abc import Mapping, Sequence
from textwrap import fill, wrap
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from benchmarks import result_files, verdicts
from benchmarks.claims import PROPOSALS
from benchmarks.result_files import Measured, Named
from benchmarks.table import FACTORS
from benchmarks.verdicts import PROPOSED, ClaimVerdict
from pipeline.reporting.speed import PLAIN, REFERENCE, Ratio, times
from quatrain.plots import BLACK, BLUE, GREY, ORANGE, RED, EndLabel, caption, label_ends

WIDTH = 10.0
BAR_INCHES, AROUND_INCHES = 0.2, 1.5
COLUMNS = 3
LABEL, LABEL_LINES, TITLE = 31, 3, 42
"""Characters of a line of a label, how many lines, and characters of a line of a title."""
LEAST_SPAN = 10.0
"""Of the times that a panel shows, from least to greatest."""
SIDES = {"before": BLACK, "its way": ORANGE, "ours": BLUE, "limit": GREY}
"""What is drawn of a scaling curve."""
NUMBER, NAME_AND_NUMBER = 0.09, 0.22
"""Shares of the width that texts beside bars take."""
THIN = "Medians; thin lines: least and greatest of the rounds."


class Bar(NamedTuple):
    """Holds one bar with the rounds around it and its text."""

    ratio: Ratio
    color: str
    text: str


class Group(NamedTuple):
    """Bars under one label; `mark` is what was promised of them."""

    label: str
    bars: Sequence[Bar]
    mark: float | None = None


def draw(rows: Sequence[Named]) -> dict[str, Figure]:
    """Figures by name, as far as there is something to draw."""
    scored = verdicts.claim_verdicts(rows)
    figures = {
        f"claims_{name}": draw_claims(verdicts.of_proposal(scored, name)) for name in PROPOSALS
    }
    figures |= {"scaling": draw_scaling(rows), "peers": draw_peers(rows)}
    return {name: figure for name, figure in figures.items() if figure is not None}


# Bars.


def draw_claims(scored: Sequence[ClaimVerdict]) -> Figure | None:
    """Draws each item of a proposal: the gain of its way, our gain, and the promise."""
    groups = [
        Group(shortened(item.claim.what), bars, item.claim.least)
        for item in scored
        if (bars := claim_bars(item))
    ]
    if not groups:
        return None
    figure, axes = bar_chart(groups, NUMBER)
    legend(
        axes,
        groups,
        {ORANGE: "the proposal's way", BLUE: "ours", RED: "promised (weakest reading)"},
    )
    axes.set_xlabel("times as fast, or as little memory, as before")
    several = (
        "an item with several rows shows the middle one."
        if any(len(item.rows) > 1 for item in scored)
        else ""
    )
    caption(figure, f"{THIN} {several[:1].upper()}{several[1:]}")
    return figure


def claim_bars(item: ClaimVerdict) -> list[Bar]:
    """Returns the proposal's bar and ours for the middle row of those that have both."""
    result = []
    for name, color in ((PROPOSED, ORANGE), (PLAIN, BLUE)):
        ratios = sorted(
            (row.row.ratios[name] for row in item.rows if name in row.row.ratios),
            key=lambda r: r.median,
        )
        if ratios:
            middle = ratios[len(ratios) // 2]
            result.append(Bar(middle, color, times(middle.median)))
    return result


def draw_peers(rows: Sequence[Named]) -> Figure | None:
    """Draws each work beside other libraries: how many times as long they take."""
    works = result_files.against_peers(list(rows))
    if not works:
        return None
    groups = [
        Group(shortened(work), [peer_bar(name, item) for name, item in each.items()])
        for work, each in works.items()
    ]
    figure, axes = bar_chart(groups, NAME_AND_NUMBER)
    legend(axes, groups, {BLUE: "ours is ahead", RED: "the other is ahead"})
    axes.set_xlabel("times as long, or as many bytes, as ours")
    caption(figure, THIN)
    return figure


def peer_bar(library: str, item: Named) -> Bar:
    ratio = item.row.ratios[PLAIN]
    return Bar(ratio, BLUE if ratio.median >= 1 else RED, f"{library} {times(ratio.median)}")


def bar_chart(groups: Sequence[Group], room: float) -> tuple[Figure, Axes]:
    """Draws horizontal bars from 1 outwards on a logarithmic axis, the first on top; `room` is the
    space for texts.
    """
    places = group_places([len(group.bars) for group in groups])
    height = places[-1] + len(groups[-1].bars) + 1
    figure = Figure(figsize=(WIDTH, AROUND_INCHES + BAR_INCHES * height), layout="constrained")
    axes = figure.subplots()
    axes.set_xscale("log")
    axes.axvline(1, color=BLACK, linewidth=1)
    for group, place in zip(groups, places, strict=True):
        draw_group(axes, place, group)
    middles = [
        place + (len(group.bars) - 1) / 2 for group, place in zip(groups, places, strict=True)
    ]
    axes.set_yticks(middles, [group.label for group in groups], fontsize=9)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(height - 1, -1)
    low, high = axes.get_xlim()
    axes.set_xlim(low, high * (high / low) ** (room / (1 - room)))
    mark_times(axes)
    axes.grid(axis="x", alpha=0.25)
    axes.spines[["top", "right", "left"]].set_visible(False)
    for group, place in zip(groups, places, strict=True):
        write_texts(axes, place, group, room)
    return figure, axes


def draw_group(axes: Axes, place: float, group: Group) -> None:
    """Draws a group of bars from `place` on, with the rounds over each and the mark over all."""
    for offset, bar in enumerate(group.bars):
        ratio = bar.ratio
        axes.barh(place + offset, ratio.median - 1, left=1, height=0.8, color=bar.color, alpha=0.85)
        axes.plot(
            [ratio.least, ratio.greatest], [place + offset] * 2, color=BLACK, linewidth=1, zorder=3
        )
    if group.mark is not None:
        ends = place - 0.6, place + len(group.bars) - 0.4
        axes.plot([group.mark] * 2, ends, color=RED, linewidth=2.5, solid_capstyle="butt", zorder=4)


def write_texts(axes: Axes, place: float, group: Group, room: float) -> None:
    """Writes each text to the right of its bar, or of the mark if they would overlap."""
    low, high = np.log(axes.get_xlim())
    for offset, bar in enumerate(group.bars):
        right = max(1.0, bar.ratio.median, bar.ratio.greatest)
        if group.mark is not None and right < group.mark < right * np.exp(room * (high - low)):
            right = group.mark
        here = right, place + offset
        axes.annotate(
            bar.text, here, (5, 0), textcoords="offset points", va="center", fontsize=8, zorder=5
        )


def group_places(sizes: Sequence[int]) -> list[float]:
    """Returns the position of each group's first bar, with a gap between groups."""
    return [sum(sizes[:index]) + 0.6 * index for index in range(len(sizes))]


def legend(axes: Axes, groups: Sequence[Group], keys: Mapping[str, str]) -> None:
    """Draws the legend of the colours in use above the axes."""
    used = {bar.color for group in groups for bar in group.bars}
    used |= {RED for group in groups if group.mark is not None}
    for color, text in keys.items():
        if color in used:
            axes.plot([], [], color=color, linewidth=6, label=text)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=len(used), frameon=False, fontsize=9)


def mark_times(axes: Axes) -> None:
    """Ticks as `0.5x` and `1000x`."""
    mark_ticks(axes.xaxis, axes.get_xlim(), "x")


def mark_ticks(axis: Axis, limits: tuple[float, float], suffix: str) -> None:
    """Writes plain numbers at powers of ten; on a short axis also at 2 and 5."""
    low, high = limits
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high / low < 1e3 else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}{suffix}"))
    axis.set_minor_formatter(NullFormatter())


# Curves.


def draw_scaling(rows: Sequence[Named]) -> Figure | None:
    """Draws a panel per curve: the time of each side against size, with the ratio at both ends."""
    curves = curves_of(rows)
    if not curves:
        return None
    columns = min(COLUMNS, len(curves))
    lines = -(-len(curves) // columns)
    figure = Figure(figsize=(4.2 * columns, 0.4 + 3.4 * lines), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    caption(figure, "Medians of the rounds, both axes logarithmic; on top: before / ours.")
    for axes, ((benchmark, curve), points) in zip(panels, curves.items(), strict=False):
        draw_curve(axes, points)
        axes.set_title(fill(f"{benchmark}: {curve}", TITLE), loc="left", fontsize=10)
    for axes in panels[len(curves) :]:
        axes.set_axis_off()
    figure.draw_without_rendering()  # labels stand where the layout puts the axes
    for axes, points in zip(panels, curves.values(), strict=False):
        label_ends(axes, end_labels(ordered(points)))
    return figure


def curves_of(rows: Sequence[Named]) -> dict[tuple[str, str], list[Named]]:
    """Returns (benchmark, curve) -> its points; the first of rows at one position."""
    result: dict[tuple[str, str], dict[float, Named]] = {}
    for item in rows:
        if item.row.point is not None:
            result.setdefault((item.benchmark, item.row.point.curve), {}).setdefault(
                item.row.point.at, item
            )
    return {curve: list(points.values()) for curve, points in result.items()}


def ordered(points: Sequence[Named]) -> list[Named]:
    return sorted(points, key=at)


def at(item: Named) -> float:
    assert item.row.point is not None
    return item.row.point.at


def sides(item: Named) -> Mapping[str, Measured | None]:
    row = item.row
    return dict(zip(SIDES, (row.before, row.seed_way, row.ours, row.limit), strict=True))


def draw_curve(axes: Axes, points: Sequence[Named]) -> None:
    """Draws a line for each measured side, and the ratios on top."""
    points = ordered(points)
    unit, point = points[0].row.unit, points[0].row.point
    axes.set(xscale="log", yscale="log", xlabel=point and point.axis, ylabel=unit)
    for name, color in SIDES.items():
        line = [
            (at(item), side.median * FACTORS[unit])
            for item in points
            if (side := sides(item)[name]) is not None
        ]
        if line:
            axes.plot(*zip(*line, strict=True), "o-", color=color, markersize=3.5, linewidth=1.5)
    axes.margins(x=0.12, y=0.12)
    low, high = axes.get_ylim()
    widen = max(1.0, (LEAST_SPAN / (high / low)) ** 0.5)  # a flat curve shall look flat
    low, high = low / widen, high * widen
    axes.set_ylim(low, high * (high / low) ** 0.12)
    for item in points:
        if PLAIN in item.row.ratios:
            message, place = times(item.row.ratios[PLAIN].median), (at(item), 0.98)
            axes.text(
                *place,
                message,
                transform=axes.get_xaxis_transform(),
                ha="center",
                va="top",
                fontsize=8,
            )
    axes.set_xticks([at(item) for item in points], [compact(at(item)) for item in points])
    axes.xaxis.set_minor_locator(NullLocator())
    mark_ticks(axes.yaxis, axes.get_ylim(), "")
    axes.grid(alpha=0.25)


def end_labels(points: Sequence[Named]) -> list[EndLabel]:
    """Returns the name of each side at the end of its line."""
    result = []
    for name, color in SIDES.items():
        values = [side.median for item in points if (side := sides(item)[name]) is not None]
        if values:
            other = name == "before" and points[0].row.against != REFERENCE
            text = points[0].row.against if other else name
            result.append(EndLabel(values[-1] * FACTORS[points[0].row.unit], text, color))
    return result


def compact(number: float) -> str:
    """Formats 1000000 as 1M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if number >= size and np.isclose(number / size, round(number / size, 1)):
            return f"{number / size:g}{letter}"
    return f"{number:g}"


def shortened(text: str) -> str:
    """Wraps a label over several lines to fit beside the bars."""
    return "\n".join(wrap(text.replace("`", ""), LABEL, max_lines=LABEL_LINES, placeholder=" …"))
