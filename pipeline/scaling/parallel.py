"""trials of a sweep -> parallel coordinates: an axis for each key, a line for each trial."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import Colormap, ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pipeline.scaling.labels import shortened
from pipeline.scaling.records import Trial
from pipeline.scaling.result import (
    SweepResult,
    finite_score,
    first_runs,
    ranked,
    start_of,
    winner_of,
)
from pipeline.scaling.scales import Scale, Tick, fences, nice_numbers, scale_of
from quatrain.plots import BLACK, RED, spread

# Most tick labels of a figure, on all axes together.
MOST_TICKS = 40
# Least distance of two tick labels, as a share of an axis.
LABEL_GAP = 0.06
# Widest line of a title, in characters.
TITLE_WIDTH = 17


class ScoreScale(NamedTuple):
    """Holds the axis of the score: the worst end, at which worse ones are drawn, and the best."""

    worst: float
    best: float
    clipped: int

    def position(self, score: float) -> float:
        """Returns 0 at the worst end and 1 at the best score."""
        if self.worst == self.best:
            return 0.5
        return float(np.clip((score - self.worst) / (self.best - self.worst), 0, 1))

    @property
    def ticks(self) -> list[Tick]:
        low, high = sorted((self.worst, self.best))
        numbers = nice_numbers(low, high, is_log=False, most=6)
        return [Tick(self.position(number), f"{number:.6g}") for number in numbers]


def score_scale(result: SweepResult) -> ScoreScale:
    """Returns a scale over the scores; a few that are far worse than the rest do not stretch it."""
    sign = 1 if result.higher_is_better else -1
    gains = [sign * finite_score(trial) for trial in ranked(result, first_runs(result))]
    worst = fences(gains)[0]
    return ScoreScale(sign * worst, sign * max(gains), sum(gain < worst for gain in gains))


def color_map() -> Colormap:
    """Returns dark for the best and yellow for the worst: even for colour-blind readers, and the
    best ones stand out on white.
    """
    from matplotlib import colormaps

    return ListedColormap(colormaps["viridis_r"](np.linspace(0.08, 1.0, 256)))


def parallel_coordinates(result: SweepResult) -> Figure:
    """Draws the start and the trials of the search; needs one with a score."""
    scales = key_scales(result, most=min(10, (MOST_TICKS - 6) // max(len(result.space), 1)))
    figure = Figure(figsize=(1.6 + 1.75 * max(len(scales), 2), 5.2))
    axes = figure.add_axes((0.02, 0.1, 0.96, 0.68))
    axes.axis("off")
    _draw_trials(axes, result, scales)
    for x, (key, scale) in enumerate(scales.items()):
        _draw_axis(axes, x, key, scale.ticks)
        if scale.is_log:
            _write(axes, x, 1.04, "log", fontsize=7, color="0.45", ha="center", va="bottom")
    _draw_score_axis(axes, len(scales), result)
    lowest = min(tick.position for scale in scales.values() for tick in scale.ticks)
    axes.set(xlim=(-0.25, len(scales) + 0.5), ylim=(min(lowest, 0) - 0.04, 1.03))
    title = f"{result.name}: values and {result.judge} of each trial"
    figure.text(0.02, 0.985, title, va="top", fontsize=11)
    _draw_legend(figure, result)
    return figure


def key_scales(result: SweepResult, most: int) -> dict[str, Scale]:
    """Returns the axis of each key, with at most `most` ticks and room for the start's values."""
    return {
        key: scale_of(dimension, [trial.values.get(key) for trial in first_runs(result)], most=most)
        for key, dimension in result.space.items()
    }


def _draw_trials(axes: Axes, result: SweepResult, scales: dict[str, Scale]) -> None:
    """Draws grey lines without a score first, then from the worst to the best."""
    order = ranked(result, first_runs(result))[::-1]
    scored = {trial.number for trial in order}
    others = [trial for trial in first_runs(result) if trial.number not in scored]
    width = np.clip(40 / max(len(order), 1), 0.7, 1.6)
    grey = LineCollection([_path(trial, scales) for trial in others], colors="0.8", linewidths=0.6)
    axes.add_collection(grey, autolim=False)
    scale = score_scale(result)
    heights = [scale.position(finite_score(trial)) for trial in order]
    paths = [
        [*_path(trial, scales), (len(scales), y)] for trial, y in zip(order, heights, strict=True)
    ]
    # The worst are faint, so that they hide no better ones.
    colors = color_map()(heights, alpha=np.linspace(0.4, 1, len(heights)))
    lines = LineCollection(paths, colors=colors, linewidths=width)
    axes.add_collection(lines, autolim=False)
    for trial, style in _marked(result):
        if trial.number in scored:
            axes.plot(*zip(*paths[order.index(trial)], strict=True), **style)
        else:
            axes.plot(*zip(*_path(trial, scales), strict=True), **style)


def _path(trial: Trial, scales: dict[str, Scale]) -> list[tuple[float, float]]:
    return [
        (x, scale.position(trial.values.get(key))) for x, (key, scale) in enumerate(scales.items())
    ]


def _marked(result: SweepResult) -> list[tuple[Trial, dict[str, Any]]]:
    """Returns the start and the winner, if there are such, with the style of their lines."""
    start = {"color": BLACK, "linestyle": "--", "marker": "s", "markersize": 4, "zorder": 5}
    winner = {"color": RED, "linewidth": 2.2, "marker": "o", "markersize": 6, "zorder": 4}
    styles = ((start_of(result), start), (winner_of(result), winner))
    return [(trial, style) for trial, style in styles if trial is not None]


def _draw_axis(axes: Axes, x: float, title: str, ticks: Sequence[Tick]) -> None:
    axes.plot((x, x), (0, 1), color=BLACK, linewidth=1, zorder=3)
    heights = spread([tick.position for tick in ticks], LABEL_GAP)
    for tick, y in zip(ticks, heights, strict=True):
        axes.plot((x, x + 0.03), (tick.position,) * 2, color=BLACK, linewidth=1, zorder=3)
        box = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.8}
        _write(axes, x + 0.045, y, tick.label, fontsize=8, va="center", zorder=5, bbox=box)
    _write(axes, x, 1.09, wrapped(title), fontsize=9, ha="center", va="bottom")


def _draw_score_axis(axes: Axes, x: float, result: SweepResult) -> None:
    """Draws the axis with a strip of the colours; better is always up."""
    better = "higher" if result.higher_is_better else "lower"
    strip = np.linspace(0, 1, 256)[:, None]
    axes.imshow(
        strip, cmap=color_map(), extent=(x, x + 0.05, 0, 1), aspect="auto", origin="lower", zorder=2
    )
    _draw_axis(axes, x + 0.05, result.judge, sorted(score_scale(result).ticks))
    _write(axes, x, 1.04, f"{better} is better", fontsize=7, color="0.45", ha="center", va="bottom")


def wrapped(key: str) -> str:
    """Breaks `train.learning_rate` at its points, and shortens lines that are still too long."""
    return "\n".join(shortened(part, TITLE_WIDTH) for part in key.split(".")[-3:])


def _write(axes: Axes, x: float, y: float, text: str, **style: Any) -> None:
    axes.text(x, y, text, clip_on=False, **style)


def _draw_legend(figure: Figure, result: SweepResult) -> None:
    start, winner = start_of(result), winner_of(result)
    handles = []
    for trial, style in _marked(result):
        name = "start" if trial is start else "winner"
        label = f"{name}: trial {trial.name}" + (" (the winner, too)" if start is winner else "")
        handles.append(Line2D([], [], **style, label=label))
    if start is winner:
        handles = handles[:1]
    unscored = len(first_runs(result)) - len(ranked(result, first_runs(result)))
    if unscored:
        label = f"{unscored} without a score"
        handles.append(Line2D([], [], color="0.8", linewidth=1, label=label))
    figure.legend(handles=handles, loc="lower left", ncols=3, fontsize=8, frameon=False)
