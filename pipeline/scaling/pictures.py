"""a sweep -> pictures, each with a caption that tells how to read it."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pipeline.scaling import importance
from pipeline.scaling.labels import shortened
from pipeline.scaling.parallel import key_scales, parallel_coordinates, score_scale, wrapped
from pipeline.scaling.records import Trial
from pipeline.scaling.result import (
    SweepResult,
    finite_score,
    first_runs,
    has_score,
    interval_of,
    ranked,
    start_of,
    winner_of,
)
from pipeline.scaling.scales import fences
from quatrain.plots import BLACK, BLUE, GREY, RED, SMALL_TITLE, house_style
from quatrain.seeds import SEEDS_OF_INTERVAL

# Most panels of a row of slices.
COLUMNS = 4


class Picture(NamedTuple):
    figure: Figure
    caption: str


@house_style
def pictures(result: SweepResult) -> dict[str, Picture]:
    """Draws what the trials allow: nothing without a score, no importance with an obstacle."""
    if not ranked(result, first_runs(result)):
        return {}
    drawn = {
        "parallel_coordinates": Picture(parallel_coordinates(result), _parallel_caption(result)),
        "slices": Picture(slices(result), _slices_caption(result)),
        "history": Picture(history(result), _history_caption(result)),
    }
    if not importance.obstacle(result):
        shares = importance.importance(result)
        drawn["importance"] = Picture(bars(result, shares), _importance_caption(shares))
    return drawn


def slices(result: SweepResult) -> Figure:
    """Draws the score of each trial against its value of each key."""
    scales = key_scales(result, most=5)
    rows = math.ceil(len(scales) / COLUMNS)
    columns = math.ceil(len(scales) / rows)
    figure = Figure(figsize=(max(3.4 * columns, 5.5), 3.4 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False)
    for panel in panels.flat[len(scales) :]:
        panel.remove()
    for panel, (key, scale) in zip(panels.flat, scales.items(), strict=False):
        _draw_slice(panel, result, [scale.position(t.values.get(key)) for t in result.trials])
        turned: dict[str, Any] = {"rotation": 30, "ha": "right"} if scale.options else {}
        panel.set_xticks(
            [tick.position for tick in scale.ticks],
            [tick.label for tick in scale.ticks],
            fontsize=8,
            **turned,
        )
        panel.set_xlim(-0.14, 1.06)
        panel.set_title(wrapped(key) + " (log)" * scale.is_log, **SMALL_TITLE)
    for panel in panels[:, 0]:
        panel.set_ylabel(_score_label(result))
    _set_score_limits(panels[0, 0], result)
    figure.legend(
        *panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8
    )
    figure.suptitle(f"{result.name}: {result.judge} against each key", fontsize=11)
    return figure


def _draw_slice(panel: Axes, result: SweepResult, positions: Sequence[float]) -> None:
    """Draws scores at these positions of all trials, and those without a score at the bottom."""
    place = dict(zip((trial.number for trial in result.trials), positions, strict=True))
    others = [trial for trial in first_runs(result) if not has_score(trial)]
    trials = ranked(result, first_runs(result))
    x = [place[trial.number] for trial in trials]
    panel.scatter(x, _heights(result, trials), s=16, color=BLUE, alpha=0.6, linewidths=0)
    if others:
        bottom = panel.get_xaxis_transform()
        x = [place[trial.number] for trial in others]
        style: dict[str, Any] = {
            "marker": "|",
            "color": GREY,
            "clip_on": False,
            "label": "without a score",
        }
        panel.scatter(x, [0.02] * len(x), s=30, linewidths=0.8, transform=bottom, **style)
    for trial, mark in _marks(result):
        panel.scatter([place[trial.number]], _heights(result, [trial]), **mark)


def _marks(result: SweepResult) -> list[tuple[Trial, dict[str, Any]]]:
    """Returns start and winner, if they have a score, with the style of their marks."""
    start = {"marker": "s", "s": 80, "facecolor": "none", "edgecolor": BLACK, "linewidths": 1.5}
    winner = {"marker": "o", "s": 40, "color": RED}
    marks = (
        (start_of(result), {**start, "label": "start", "zorder": 5}),
        (winner_of(result), {**winner, "label": "winner", "zorder": 4}),
    )
    return [(trial, style) for trial, style in marks if trial and has_score(trial)]


def history(result: SweepResult) -> Figure:
    """Draws scores in the order of the trials, and below the metric that stopping is decided by."""
    watched = [
        trial
        for trial in first_runs(result)
        if trial.state in ("finished", "stopped") and trial.last is not None
    ]
    rows = 2 if watched else 1
    figure = Figure(figsize=(9, 3.4 * rows), layout="constrained")
    panels = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
    _draw_scores(panels[0], result)
    if watched:
        _draw_watched(panels[1], result, watched)
    panels[-1].set_xlabel("number of the trial, in the order they began")
    panels[-1].xaxis.set_major_locator(MaxNLocator(12, integer=True))
    for panel in panels:
        panel.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8, frameon=False)
    return figure


def _draw_scores(panel: Axes, result: SweepResult) -> None:
    trials = sorted(ranked(result, first_runs(result)), key=lambda trial: trial.number)
    numbers = [trial.number for trial in trials]
    heights = _heights(result, trials)
    panel.scatter(numbers, heights, s=18, color=BLUE, label="score in the search")
    running = np.maximum if result.higher_is_better else np.minimum
    best = running.accumulate(heights)
    panel.step(numbers, best, where="post", color=BLUE, linewidth=1, label="best so far")
    start = start_of(result)
    if start is not None and has_score(start):
        score = finite_score(start)
        panel.axhline(score, color=BLACK, linestyle="--", linewidth=1, label="start")
    _draw_confirmations(panel, result)
    failed = [t.number for t in first_runs(result) if t.state in ("diverged", "failed", "refused")]
    if failed:
        bottom = panel.get_xaxis_transform()
        panel.scatter(
            failed,
            [0.03] * len(failed),
            s=24,
            marker="x",
            color=GREY,
            linewidths=1,
            transform=bottom,
            label="diverged, failed\nor refused",
        )
    panel.set_ylabel(_score_label(result))
    panel.set_title(f"{result.name}: judged at the end", **SMALL_TITLE)
    _set_score_limits(panel, result)


def _draw_confirmations(panel: Axes, result: SweepResult) -> None:
    """Draws confirmed scores above or below the trials that they repeat, with their intervals."""
    repeats = [trial for trial in result.trials if trial.role == "confirm" and has_score(trial)]
    label = "the same confirmed"
    for trial in repeats:
        score = finite_score(trial)
        low, high = interval_of(trial) or (score, score)
        panel.errorbar(
            trial.repeats or 0,
            score,
            yerr=[[score - low], [high - score]],
            fmt="D",
            markersize=5,
            markerfacecolor="white",
            color=RED,
            linewidth=1,
            label=label,
        )
        label = "_"


def _draw_watched(panel: Axes, result: SweepResult, trials: Sequence[Trial]) -> None:
    """Draws the last watched values; outliers are drawn at the ends of the axis."""
    values = {trial.number: trial.last.value for trial in trials if trial.last is not None}
    low, high = fences(list(values.values()))
    for state, color in (("finished", BLUE), ("stopped", "none")):
        numbers = [trial.number for trial in trials if trial.state == state]
        heights = np.clip([values[number] for number in numbers], low, high)
        if numbers:
            panel.scatter(numbers, heights, s=18, facecolor=color, edgecolor=BLUE, label=state)
    panel.set_ylabel(f"last train/{result.watch}")
    panel.set_title("Watched while training: stopped ones are hollow", **SMALL_TITLE)


def bars(result: SweepResult, shares: importance.Importance) -> Figure:
    """Draws the importance of each key, and what a key without effect would get."""
    figure = Figure(figsize=(8, 1.6 + 0.42 * len(shares.shares)), layout="constrained")
    axes = figure.subplots()
    keys = list(shares.shares)[::-1]
    values = [shares.shares[key] for key in keys]
    noise = [shares.noise[key] for key in keys]
    colors = [BLUE if key in shares.clear else "0.75" for key in keys]
    labels = [shortened(key, 40) for key in keys]
    places = range(len(keys))
    axes.barh(places, values, color=colors, height=0.6, tick_label=labels)
    axes.scatter(noise, places, marker="|", s=220, color=BLACK, zorder=3)
    for place, value in zip(places, values, strict=True):
        axes.text(1.01, place, f"{value:.2f}", va="center", transform=axes.get_yaxis_transform())
    axes.set_xlim(0, 1.05 * max(*values, *noise, 0.01))
    axes.set_title(f"{result.name}: importance of each key", **SMALL_TITLE)
    confidence = f"{100 * importance.CONFIDENCE:.0f} %"
    figure.supxlabel(
        f"share of being among the best {shares.top} of {shares.trials} that the key explains alone"
        f"\nblue: more than {confidence} of keys without effect get (black mark)",
        fontsize=9,
    )
    return figure


def _heights(result: SweepResult, trials: Sequence[Trial]) -> list[float]:
    """Returns scores; those beyond the worse end of the scale are drawn at it."""
    worst = score_scale(result).worst
    limit = max if result.higher_is_better else min
    return [limit(finite_score(trial), worst) for trial in trials]


def _set_score_limits(panel: Axes, result: SweepResult) -> None:
    """Leaves room for marks at the bottom; better is always up."""
    low, high = panel.get_ylim()
    panel.set_ylim(low - 0.06 * (high - low), high)
    if not result.higher_is_better:
        panel.set_ylim(high + 0.06 * (high - low), low)


def _score_label(result: SweepResult) -> str:
    better = "higher is better" if result.higher_is_better else "lower is better, axis reversed"
    return f"{result.judge}\n({better})"


def _clipped_note(result: SweepResult) -> str:
    count = score_scale(result).clipped
    return f" {count} far worse scores are drawn at the bottom end." if count else ""


def _parallel_caption(result: SweepResult) -> str:
    return (
        "Each line is a trial: it crosses each axis at the trial's value and ends at its score "
        f"({result.judge} in the search), the better the higher and the darker. Thin grey lines "
        "have no score: they were stopped, diverged, failed or were refused. Numbered or shortened "
        "choices stand in full in the table of the space." + _clipped_note(result)
    )


def _slices_caption(result: SweepResult) -> str:
    return (
        "Each dot is a trial. A key matters where the dots rise or fall across its panel; a winner "
        "at the end of a range suggests a wider one. Other keys differ from dot to dot, too. "
        "Ticks at the bottom are trials without a score." + _clipped_note(result)
    )


def _history_caption(result: SweepResult) -> str:
    return (
        "Top: scores in the order of the trials, and the same values confirmed with another seed "
        f"(diamonds, with 95 % intervals from {SEEDS_OF_INTERVAL} seeds on): a diamond below its "
        "dot shows how much of the score was luck. Bottom, if drawn: the last "
        f"train/{result.watch} that each trial recorded, at whatever step it ended, so it is no "
        "score." + _clipped_note(result)
    )


def _importance_caption(shares: importance.Importance) -> str:
    return (
        f"PED-ANOVA: how differently a key is spread among the best {shares.top} of "
        f"{shares.trials} finished trials than among all of them. 0: the best look like all; "
        "1: the key alone decides who is among the best. It says nothing of how much worse the "
        "others are, nor of keys that matter only together. Black marks: of shuffled scores, "
        f"{100 * importance.CONFIDENCE:.0f} % give the key less; a grey bar is below its mark: "
        "these trials show no effect of that key. Stopped trials do not count: what made them stop "
        "early is underrated."
    )
