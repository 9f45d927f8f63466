"""stored rows -> two figures: promises beside measurements, and other libraries"""

from collections.abc import Sequence
from textwrap import fill
from typing import NamedTuple

from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullFormatter

from benchmarks.rows import ORIGINAL, OURS, PROPOSAL, Claim, Ratio, Row
from quatrain.plots import BLACK, BLUE, ORANGE, RED, Figure, caption, house_style

LABEL = 44
"""Characters of a line of a label."""


Bar = tuple[Ratio, str, str]
"""A ratio, its color and text."""


class Group(NamedTuple):
    """Holds bars under one label; `mark` is what was promised of them."""

    label: str
    bars: Sequence[Bar]
    mark: float | None = None


@house_style
def draw(rows: Sequence[Row]) -> dict[str, Figure]:
    """Returns the figures, as far as there is something to draw."""
    figures = {}
    if claims := [claim_group(row, row.claim) for row in rows if row.claim]:
        colors = {PROPOSAL: ORANGE, OURS: BLUE, "promised (weakest reading)": RED}
        axis = "times as fast, or as small, as the original program"
        figures["claims"] = bars_of(claims, axis, colors)
    if peers := [peer_group(row) for row in rows if row.is_of_peers]:
        colors = {"ours is faster": BLUE, "the other is faster": RED}
        figures["peers"] = bars_of(peers, "times as long as ours", colors)
    return figures


def claim_group(row: Row, claim: Claim) -> Group:
    sides = [(row.proposed, ORANGE), (row.ratio(ORIGINAL), BLUE)]
    bars = [(ratio, color, f"{ratio.median:.3g}x") for ratio, color in sides if ratio]
    return Group(fill(f"{row.work}: {claim.promised}", LABEL), bars, claim.least)


def peer_group(row: Row) -> Group:
    bars = [
        (ratio, BLUE if ratio.median >= 1 else RED, f"{ratio.median:.3g}x  {library}")
        for library, ratio in row.gains.items()
    ]
    return Group(fill(row.work, LABEL), bars)


def bars_of(groups: Sequence[Group], axis: str, colors: dict[str, str]) -> Figure:
    """Draws horizontal bars from 1 outwards on a logarithmic axis, the first group on top."""
    heights = [max(len(group.bars), group.label.count("\n") + 1) for group in groups]
    figure = Figure(figsize=(10, 1.2 + 0.24 * (sum(heights) + len(groups))), layout="constrained")
    axes = figure.subplots()
    axes.set_xscale("log")
    axes.axvline(1, color=BLACK, linewidth=1)
    middles, top = [], 0.0
    for group, height in zip(groups, heights, strict=True):
        middles.append(top + (height - 1) / 2)
        first = middles[-1] - (len(group.bars) - 1) / 2
        for y, (ratio, color, text) in enumerate(group.bars):
            axes.barh(first + y, ratio.median - 1, left=1, color=color, alpha=0.85)
            axes.plot([ratio.low, ratio.high], [first + y] * 2, color=BLACK, linewidth=1)
            right = axes.get_yaxis_transform()
            axes.text(1.01, first + y, text, transform=right, va="center", fontsize=9)
        if group.mark is not None:
            axes.plot([group.mark] * 2, [top - 0.5, top + height - 0.5], color=RED, linewidth=2.5)
        top += height + 1
    axes.set_yticks(middles, [group.label for group in groups], fontsize=9)
    axes.set(ylim=(top - 1, -1), xlabel=axis)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_locator(LogLocator())
    axes.xaxis.set_major_formatter("{x:g}x")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="x", alpha=0.25)
    handles = [Patch(color=color, label=text) for text, color in colors.items()]
    axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(colors))
    caption(figure, "Medians of the rounds; thin lines: quartiles.")
    return figure
