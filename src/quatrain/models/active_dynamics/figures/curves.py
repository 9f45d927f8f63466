"""learners, checkpoints, history -> curves: error, information, prediction, bound"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float64
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quatrain.models.active_dynamics.evaluate import HORIZONS, SMALLEST
from quatrain.models.active_dynamics.figures.parts import (
    COLORS,
    DOTTED_LINE,
    TRUTH,
    draw_arm,
    end_label,
    explain_arms,
    explain_lines,
    format_number,
    label_arms,
    log_ticks,
    median_with_band,
    set_title,
    set_transitions_axis,
)
from quatrain.models.active_dynamics.figures.study import (
    Study,
    arm_metric,
    information_at_checkpoints,
)
from quatrain.models.active_dynamics.rules import REFERENCE_NAMES
from quatrain.models.active_dynamics.transition_ratio import same_error
from quatrain.plots import EndLabel, caption
from quatrain.progress import History

REFERENCE_COLOR = "0.35"
# Lower end of the axis, relative to the lowest drawn error.
MARGIN = 0.6
# Level below which a reference is written as 0.
SMALLEST_SHOWN = 1e-4
# Ratio that is written as 1.1.
LEAST_SHOWN = 1.05
# Term -> its name, and the label of its axis.
ELBO_PANELS = {
    "elbo_exact": ("Evidence bound", "nats per time and channel"),
    "ell": ("Expected log likelihood", "nats per time and channel"),
    "kl_first": ("KL of the first state", "nats per time and dimension"),
    "kl_steps": ("KL of steps", "nats per time and dimension"),
    "beta": ("Weight of the KL terms", "β"),
    "grad_norm": ("Gradients before clipping", "norm"),
}
R2_TICKS = (-9, -1, 0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9999)


# The error of the field.


def draw_learning_curve(study: Study, scores: Mapping[str, float]) -> Figure:
    figure = Figure(figsize=(9, 5.4), layout="constrained")
    axes = figure.subplots()
    axes.set(yscale="log", ylabel="error of the field, relative to its size")
    set_transitions_axis(axes, study.steps)
    ends = _draw_errors_of_arms(axes, study)
    ends += _draw_references(axes, scores)
    _draw_ratio(axes, study)
    log_ticks(axes.yaxis)
    label_arms(axes, headline(study, scores), ends, 11)
    caption(
        figure,
        "Root mean square over the region of interest.",
        explain_arms(study.arms),
        explain_lines(study.config.seeds),
    )
    return figure


def headline(study: Study, scores: Mapping[str, float]) -> str:
    """Returns how much sooner the active arm reaches the same error as another one.

    Without an active arm or another one, or a ratio: the final errors.
    """
    last = study.config.train.transitions
    rival = study.pair[-1]
    ratio = scores.get(f"transition_ratio.{rival}", np.nan)
    if not np.isfinite(ratio):
        finals = [f"{arm} {format_number(scores[f'field_nrmse.{arm}'])}" for arm in study.arms]
        return f"Error of the field after {last:,} transitions: {', '.join(finals)}"
    return (
        f"For the same error, planned actions need {_comparison(ratio)} transitions"
        f" {'as' if _is_equal(ratio) else 'than'} {rival} ones, of {last:,}"
    )


def _comparison(ratio: float) -> str:
    if _is_equal(ratio):
        return "as many"
    factor, comparison = (ratio, "fewer") if ratio > 1 else (1 / ratio, "more")
    return f"{factor:.1f} times {comparison}"


def _is_equal(ratio: float) -> bool:
    """Returns whether a ratio or its inverse is written as 1.0."""
    return max(ratio, 1 / ratio) < LEAST_SHOWN


def _draw_errors_of_arms(axes: Axes, study: Study) -> list[EndLabel]:
    errors = study.estimate.nrmse.T
    return [
        draw_arm(axes, arm, study.steps, study.of_arm(arm, errors), **DOTTED_LINE)
        for arm in study.arms
    ]


def _draw_references(axes: Axes, scores: Mapping[str, float]) -> list[EndLabel]:
    """Draws lines of the references, and sets the limits of the y axis around all lines."""
    low, high = axes.dataLim.intervaly
    axes.set_ylim(MARGIN * low, 1.3 * max(high, scores["zero_field"]))
    return [
        _draw_reference(axes, scores[name], text, MARGIN * low)
        for name, text in REFERENCE_NAMES.items()
        if scores[name] > 0
    ]


def _draw_reference(axes: Axes, level: float, text: str, bottom: float) -> EndLabel:
    """Draws a line at the level. If it is below the axes, the label at the lower edge says so."""
    if level < bottom:
        shown = level if level > SMALLEST_SHOWN else 0
        return EndLabel(bottom, f"↓ {text} {format_number(shown)}", REFERENCE_COLOR)
    axes.axhline(level, color=REFERENCE_COLOR, linestyle="--", linewidth=1)
    return EndLabel(level, f"{text} {format_number(level)}", REFERENCE_COLOR)


def _draw_ratio(axes: Axes, study: Study) -> None:
    """Draws an arrow between the transitions after which two arms have the same error."""
    active, rival = study.pair[0], study.pair[-1]
    if active != "active":
        return
    errors, planned = (
        np.median(study.of_arm(arm, study.estimate.nrmse.T), 0) for arm in (rival, active)
    )
    reached = same_error(study.steps, errors, planned)
    if np.isnan(reached.ratio) or _is_equal(reached.ratio):
        return
    level = reached.error
    arrow = {"arrowstyle": "<|-|>", "color": TRUTH, "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", (reached.active, level), (reached.arm, level), arrowprops=arrow)
    axes.annotate(
        _comparison(reached.ratio),
        (float(np.sqrt(reached.active * reached.arm)), level),
        (0, 6),
        textcoords="offset points",
        ha="center",
        fontsize=10,
        color=TRUTH,
        bbox={"color": "white", "alpha": 0.7, "pad": 1, "linewidth": 0},
    )


# Information and uncertainty.


def draw_information(study: Study, history: History) -> Figure:
    """Draws the information each arm gained, and its expected beside its actual error."""
    figure = Figure(figsize=(13, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    ends, expected = [], []
    for arm in study.arms:
        steps, _, gained = information_at_checkpoints(study, history, arm)
        ends.append(draw_arm(left, arm, steps, gained, **DOTTED_LINE))
        expected.append(_draw_errors(right, study, history, arm))
    left.set_ylabel("information gained, nats")
    right.set(yscale="log", ylabel="error of a component of the field, r.m.s.")
    log_ticks(right.yaxis)
    for axes in (left, right):
        set_transitions_axis(axes, history[f"information_gained.{study.arms[0]}"][0])
    label_arms(left, f"Nats gained about the field's weights: {study.pair_text(ends)}", ends)
    label_arms(right, "The error that the learner expects, and its actual error", expected)
    caption(
        figure,
        "Right, lines and numbers: expected error; rings: actual error, which an honest learner's "
        "line follows.",
        explain_arms(study.arms),
        explain_lines(study.config.seeds),
    )
    return figure


def _draw_errors(axes: Axes, study: Study, history: History, arm: str) -> EndLabel:
    steps = history[f"field_sd.{arm}"][0]
    color = COLORS[arm]
    expected = median_with_band(
        axes,
        steps,
        arm_metric(study, history, "field_sd", arm),
        color=color,
        linewidth=2,
        marker=".",
    )
    size = float(np.sqrt(np.square(study.dataset.held_out.grid_field.astype(float)).mean()))
    error = size * np.median(arm_metric(study, history, "monitor/field_nrmse", arm), 0)
    axes.plot(steps, error, "o", color=color, markersize=4, fillstyle="none")
    return end_label(arm, expected[-1], f" {format_number(expected[-1])}")


# The evidence bound.


def draw_elbo(study: Study, history: History) -> Figure:
    figure = Figure(figsize=(12, 6.5), layout="constrained")
    panels = figure.subplots(2, 3, sharex=True)
    for axes, (name, (title, unit)) in zip(panels.flat, ELBO_PANELS.items(), strict=True):
        for arm in study.arms:
            median_with_band(
                axes,
                history[f"{name}.{arm}"][0],
                arm_metric(study, history, name, arm),
                color=COLORS[arm],
                linewidth=1.5,
                marker=".",
                label=arm,
            )
        set_title(axes, title)
        axes.set_ylabel(unit)
        axes.grid(alpha=0.25)
    panels[0, -1].legend(loc="upper left", bbox_to_anchor=(1, 1))
    for axes in panels[1]:
        axes.set_xlabel("transitions, warm-up included")
    caption(
        figure,
        "At each transition's last gradient step; 0 before the first step.",
        explain_lines(study.config.seeds),
    )
    return figure


# Predictions.


def draw_horizon(study: Study) -> Figure:
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    ends = []
    r2_by_learner = np.stack([study.prediction_r2[f"displacement_r2_{k}"] for k in HORIZONS], 1)
    for arm in study.arms:
        r2 = study.of_arm(arm, r2_by_learner)
        text = f" {np.median(r2[:, -1]):.4f}"
        ends.append(draw_arm(axes, arm, HORIZONS, nines(r2), text, linewidth=2, marker="o"))
    axes.set_yticks(nines(np.array(R2_TICKS)), [f"{tick:g}" for tick in R2_TICKS])
    low, high = axes.dataLim.intervaly
    axes.set(
        xlabel="transitions ahead",
        ylabel="R² of the displacement by the field",
        xticks=HORIZONS,
        ylim=(low - 0.15, high + 0.15),
    )
    label_arms(
        axes,
        f"R² of the displacement by the field in {HORIZONS[-1]} transitions:"
        f" {study.pair_text(ends)}",
        ends,
    )
    caption(
        figure,
        "From true states, with held-out actions; 0: as without a field, 1: all. Over equal "
        "heights the unexplained share falls by the same factor.",
        explain_arms(study.arms),
        explain_lines(study.config.seeds),
    )
    return figure


def nines(r2: Float64[np.ndarray, "*axes"]) -> Float64[np.ndarray, "*axes"]:
    """Computes -log₁₀(1 - R²): 0 for 0, 1 for 0.9, 2 for 0.99."""
    return -np.log10(np.maximum(1 - r2, SMALLEST))
