"""study, scores, history -> curves and dots of arms: error, actions, signs of misfit, bound"""

from collections.abc import Mapping
from functools import partial

import numpy as np
from matplotlib.axes import Axes

from quatrain.models.active_dynamics.evaluate import EDGES, by_distance, same_error
from quatrain.models.active_dynamics.figures.study import (
    COLORS,
    DOTTED_LINE,
    PLANE,
    TRANSITIONS,
    Study,
    draw_states,
    end_label,
    explain_arms,
    explain_lines,
    explain_replicate,
    format_number,
    median_with_band,
)
from quatrain.models.active_dynamics.rules import REFERENCE_NAMES
from quatrain.plots import (
    BLACK,
    EndLabel,
    Figure,
    Line,
    Panel,
    caption,
    curve,
    label_ends,
    log_ticks,
    update_panels,
)
from quatrain.progress import History

REFERENCE_COLOR = "0.35"
# Lower end of the axis, relative to the lowest drawn error.
MARGIN = 0.6
# Ratio of the ends of an axis from which on it is logarithmic.
LOG_AXIS_RATIO = 2.5
# Ratio that is written as 1.1.
LEAST_SHOWN = 1.05

TRANSITIONS_SHOWN = 150
WARMUP_SHOWN = 20
# Greatest number of shown dimensions of an action.
TRACES = 4
# Distance between traces, in units of the largest action.
SPACING = 2.4

# Term -> its name, and the label of its axis.
ELBO_PANELS = {
    "elbo_exact": ("Evidence bound", "nats per time and channel"),
    "ell": ("Expected log likelihood", "nats per time and channel"),
    "kl_first": ("KL of the first state", "nats per time and dimension"),
    "kl_steps": ("KL of steps", "nats per time and dimension"),
    "beta": ("Weight of the KL terms", "β"),
    "grad_norm": ("Gradients before clipping", "norm"),
}


# The error of the field.


def draw_learning_curve(study: Study, scores: Mapping[str, float]) -> Figure:
    figure = Figure(figsize=(9, 5.4), layout="constrained")
    axes = figure.subplots()
    axes.set(yscale="log", ylabel="error of the field, relative to its size")
    ends = []
    for arm in study.arms:
        errors = study.of_arm(arm, study.estimate.nrmse.T)
        median = median_with_band(axes, study.steps, errors, color=COLORS[arm], **DOTTED_LINE)
        ends.append(end_label(arm, median[-1]))
    ends += _draw_references(axes, scores)
    arrow = _draw_ratio(axes, study)
    axes.set_xlabel(TRANSITIONS)
    if study.steps[-1] >= LOG_AXIS_RATIO * study.steps[0]:
        axes.set_xscale("log")
        log_ticks(axes.xaxis)
    log_ticks(axes.yaxis)
    axes.grid(alpha=0.25)
    label_ends(axes, ends)
    caption(
        figure,
        "Root mean square over the region of interest.",
        arrow,
        explain_arms(study.arms),
        explain_lines(study.config.seeds),
    )
    return figure


def _draw_references(axes: Axes, scores: Mapping[str, float]) -> list[EndLabel]:
    """Draws lines of the references; the label of one below the axes, at their lower end, says so.

    Sets the limits of the y axis around all lines.
    """
    low, high = axes.dataLim.intervaly
    bottom = MARGIN * low
    axes.set_ylim(bottom, 1.3 * max(high, scores["zero_field"]))
    ends = []
    for name, text in REFERENCE_NAMES.items():
        level = scores[name]
        place = "↓ " if level < bottom else ""
        label = f"{place}{text} {format_number(level)}"
        ends.append(EndLabel(max(level, bottom), label, REFERENCE_COLOR))
        if not place:
            axes.axhline(level, color=REFERENCE_COLOR, linestyle="--", linewidth=1)
    return ends


def _draw_ratio(axes: Axes, study: Study) -> str:
    """Draws an arrow between the transitions after which two arms have the same error.

    Returns what it says; empty without an arrow.
    """
    active, rival = study.pair[0], study.pair[-1]
    if active != "active":
        return ""
    errors, planned = (
        np.median(study.of_arm(arm, study.estimate.nrmse.T), 0) for arm in (rival, active)
    )
    reached = same_error(study.steps, errors, planned)
    factor = max(reached.ratio, 1 / reached.ratio)
    if not factor >= LEAST_SHOWN:
        return ""
    level = reached.error
    arrow = {"arrowstyle": "<|-|>", "color": BLACK, "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", (reached.active, level), (reached.arm, level), arrowprops=arrow)
    axes.annotate(
        f"{factor:.1f} times {'fewer' if reached.ratio > 1 else 'more'}",
        (float(np.sqrt(reached.active * reached.arm)), level),
        (0, 6),
        textcoords="offset points",
        ha="center",
        color=BLACK,
        bbox={"color": "white", "alpha": 0.7, "pad": 1, "linewidth": 0},
    )
    return f"Arrow: from {active} to {rival} at the same error."


# Actions.


def draw_actions(study: Study) -> Figure:
    """Draws the first actions of a replicate of each arm; in the plane, all states it visited."""
    rows = len(study.arms)
    has_maps = study.config.env.d == PLANE
    figure = Figure(figsize=(12 if has_maps else 9, 2.6 * rows + 0.7), layout="constrained")
    ratios = (2.6, 1) if has_maps else (1,)
    panels = figure.subplots(
        rows, len(ratios), squeeze=False, sharex="col", sharey="col", width_ratios=ratios
    )
    for (left, *right), arm in zip(panels, study.arms, strict=True):
        _draw_traces(left, study, arm)
        for axes in right:
            draw_states(axes, study, study.median_learner(arm), COLORS[arm])
            axes.set(aspect="equal", ylabel="x₂")
            axes.set_title(f"{arm}: all {study.path.shape[1]:,} states", color=COLORS[arm])
    panels[-1, 0].set_xlabel("transition")
    if has_maps:
        panels[-1, 1].set_xlabel("x₁")
    bound = study.config.env.action_bound
    caption(
        figure,
        f"Each action is from −{bound:g} to {bound:g}, 0 on its grey line. Vertical line: end of "
        "the warm-up, which all arms share.",
        "Dotted circle: the region of interest." if has_maps else "",
        explain_arms(study.arms),
        explain_replicate(study.config.seeds),
    )
    return figure


def _draw_traces(axes: Axes, study: Study, arm: str) -> None:
    bound = study.config.env.action_bound
    warmup = study.config.collect.warmup
    first = max(0, warmup - WARMUP_SHOWN)
    actions = study.actions[study.median_learner(arm)][first : first + TRANSITIONS_SHOWN, :TRACES]
    times = first + np.arange(len(actions) + 1)
    heights = -SPACING * bound * np.arange(actions.shape[1])
    for height, trace in zip(heights, actions.T, strict=True):
        axes.axhline(height, color="0.8", linewidth=0.8, zorder=0)
        axes.stairs(height + trace, times, baseline=None, color=COLORS[arm], linewidth=1.2)
    axes.axvline(warmup, color="0.3", linestyle=":", linewidth=1)
    axes.set_yticks(heights, [f"a{chr(0x2081 + place)}" for place in range(len(heights))])
    axes.set_ylim(heights[-1] - 1.15 * bound, 1.15 * bound)
    axes.set_title(f"{arm}: actions {first + 1} to {times[-1]}", color=COLORS[arm])


# Misfit.


def draw_misfit(study: Study, scores: Mapping[str, float]) -> Figure:
    """Draws the field's error by distance to the data; size and correlation of the innovations.

    Innovations of a right filter have the size that it expects, and do not follow each other. The
    field's error near the data is as large as its variance says.
    """
    figure = Figure(figsize=(12, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_distances(left, study)
    _draw_innovations(right, study, scores)
    caption(
        figure,
        "Left, lines: actual error; dashed: the error that the learner expects. Right: innovations "
        "are observations minus their prediction; grey: where they are if the field is right.",
        f"Medians over {study.config.seeds} replicates." if study.config.seeds > 1 else "",
    )
    return figure


def _draw_distances(axes: Axes, study: Study) -> None:
    truth = study.dataset.held_out
    square = ((study.estimate.mean - truth.grid_field) ** 2).sum(2)
    columns = (square, study.estimate.variance.sum(2), study.estimate.distance)
    ends = []
    for arm in study.arms:
        ranges = by_distance(*(study.of_arm(arm, column) for column in columns))
        filled = np.flatnonzero(np.isfinite(ranges.error).any(0))
        error, expected = (np.nanmedian(values[:, filled], 0) for values in ranges)
        axes.plot(filled, error, color=COLORS[arm], **DOTTED_LINE)
        axes.plot(filled, expected, color=COLORS[arm], linestyle="--")
        ends.append(end_label(arm, error[-1]))
    nearest = [f"to {edge:g}" for edge in EDGES[:-1]]
    axes.set_xticks(range(len(EDGES)), [*nearest, "farther"])
    axes.set(
        yscale="log",
        xlabel="distance to the nearest visited state",
        ylabel="error of the field, speed",
        title="Error by distance to the data",
    )
    log_ticks(axes.yaxis)
    axes.grid(alpha=0.25)
    label_ends(axes, ends)


def _draw_innovations(axes: Axes, study: Study, scores: Mapping[str, float]) -> None:
    for name, span in (("nis", axes.axvspan), ("whiteness", axes.axhspan)):
        low, high = scores[f"{name}_expected_low"], scores[f"{name}_expected_high"]
        span(low, high, color="0.88", linewidth=0)
    for arm in study.arms:
        point = scores[f"nis.{arm}"], scores[f"whiteness.{arm}"]
        axes.plot(*point, "o", color=COLORS[arm], markersize=8, label=arm)
    axes.plot(scores["nis_oracle"], scores["whiteness_oracle"], "k*", label="true field")
    axes.set(
        xlabel="mean square of innovations, relative to the expected one",
        ylabel="correlation with the innovation before",
        title="What a filter with the learned field does not foresee",
    )
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    axes.grid(alpha=0.25)


# The evidence bound.


def draw_elbo(study: Study, history: History) -> Figure:
    seeds = study.config.seeds
    panels = []
    for name, (title, unit) in ELBO_PANELS.items():
        curves = {arm: curve(history, f"{name}.{arm}", seeds) for arm in study.arms}
        panels.append(Panel(title, unit, [Line(curves[arm], COLORS[arm], arm) for arm in curves]))
    figure = update_panels(panels, TRANSITIONS, draw=partial(median_with_band, marker="."))
    caption(
        figure,
        "At each transition's last gradient step; 0 before the first step.",
        explain_arms(study.arms),
        explain_lines(seeds),
    )
    return figure
