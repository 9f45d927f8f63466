"""checkpoints, history -> figures over transitions: error, information, the terms of the evidence bound."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quatrain.models.active_dynamics.figures.parts import (
    COLORS,
    TRUTH,
    log_ticks,
    median_with_band,
    number,
    over_transitions,
    told,
)
from quatrain.models.active_dynamics.figures.study import Study, at_checkpoints, recorded
from quatrain.plots import EndLabel, caption, label_ends
from quatrain.progress import History

FLOORS = {
    "zero_field": "no field",
    "affine_field": "best affine field",
    "projection_floor": "best of these features",
}
MARGIN, NOTHING = 0.6, 1e-4
"""Of the lowest error that is drawn; floors below are told at the edge. And what is not told apart from 0."""
ELBO_PANELS = {
    "elbo_exact": "Evidence bound, nats per time and channel",
    "ell": "Expected log likelihood, nats per time and channel",
    "kl_first": "KL of the first state, nats per time and dimension",
    "kl_steps": "KL of steps, nats per time and dimension",
    "beta": "β, weight of the KL terms",
    "grad_norm": "Norm of gradients before they are cut",
}


# The error of the field.


def draw_learning_curve(study: Study, scores: Mapping[str, float]) -> Figure:
    """Error of each arm's field over transitions, between what needs no learning and what is possible."""
    figure = Figure(figsize=(9, 5.4), layout="constrained")
    axes = figure.subplots()
    axes.set_yscale("log")
    over_transitions(axes, study.steps)
    ends = []
    for arm in study.arms:
        values = study.of(arm, study.known.nrmse.T)
        median = median_with_band(
            axes, study.steps, values, color=COLORS[arm], linewidth=2, marker="o", markersize=3
        )
        ends.append(EndLabel(float(median[-1]), f"{arm} {number(median[-1])}", COLORS[arm]))
    low, high = axes.dataLim.intervaly
    bottom = MARGIN * low
    axes.set_ylim(bottom, 1.3 * max(high, scores["zero_field"]))
    ends += [
        _draw_floor(axes, scores[name], said, bottom)
        for name, said in FLOORS.items()
        if scores[name] > 0
    ]
    axes.set_title(headline(study, scores), loc="left", fontsize=11)
    _draw_ratio(axes, study, scores)
    axes.set_ylabel("error of the field, relative to its size")
    axes.grid(alpha=0.25)
    log_ticks(axes.yaxis)
    label_ends(axes, ends)
    caption(figure, f"Root mean square over the region of interest. {told(study.config.seeds)}")
    return figure


def headline(study: Study, scores: Mapping[str, float]) -> str:
    """How much sooner the active arm knew; without it or without a rival, the final errors."""
    last, rival = study.config.train.transitions, study.pair[-1]
    if f"transition_ratio.{rival}" not in scores:
        finals = (f"{arm} {number(scores[f'field_nrmse.{arm}'])}" for arm in study.arms)
        return f"Error of the field after {last:,} transitions: {', '.join(finals)}"
    ratio = scores[f"transition_ratio.{rival}"]
    if ratio == 0:
        return f"Planned actions never know the field as well as {rival} ones after {last:,} transitions"
    return f"Planned actions know the field after {last / ratio:,.0f} transitions as well as {rival} ones after {last:,}"


def _draw_floor(axes: Axes, level: float, said: str, bottom: float) -> EndLabel:
    """A line where there is room for it; else its label stands at the lower edge, with an arrow."""
    color = "0.35"
    if level < bottom:
        return EndLabel(bottom, f"↓ {said} {number(level) if level > NOTHING else 0}", color)
    axes.axhline(level, color=color, linestyle="--", linewidth=1)
    return EndLabel(level, f"{said} {number(level)}", color)


def _draw_ratio(axes: Axes, study: Study, scores: Mapping[str, float]) -> None:
    """An arrow at the rival's final error, back to where the active arm was that good."""
    last, rival = study.config.train.transitions, study.pair[-1]
    ratio = scores.get(f"transition_ratio.{rival}", 0.0)
    if ratio <= 1:
        return
    level, first = scores[f"field_nrmse.{rival}"], last / ratio
    arrow = {"arrowstyle": "<|-|>", "color": TRUTH, "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", (first, level), (last, level), arrowprops=arrow)
    middle = float(np.sqrt(first * last))
    text = f"{ratio:.1f} times fewer"
    style: dict[str, Any] = {
        "color": TRUTH,
        "bbox": {"color": "white", "alpha": 0.7, "pad": 1, "linewidth": 0},
    }
    axes.annotate(
        text, (middle, level), (0, 6), textcoords="offset points", ha="center", fontsize=10, **style
    )


# What is known, and how surely.


def draw_information(study: Study, history: History) -> Figure:
    """Nats that each arm gained about the weights; how wrong it believes to be, beside how wrong it is."""
    figure = Figure(figsize=(13, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    ends = []
    for arm in study.arms:
        kept = at_checkpoints(study, history, arm)
        median = median_with_band(
            left, kept.steps, kept.values, color=COLORS[arm], linewidth=2, marker="o", markersize=3
        )
        ends.append(EndLabel(float(median[-1]), f"{arm} {number(median[-1])}", COLORS[arm]))
        _draw_belief(right, study, history, arm)
    gains = ", ".join(
        end.text for arm, end in zip(study.arms, ends, strict=True) if arm in study.pair
    )
    left.set_title(f"Nats gained about the field's weights: {gains}", loc="left", fontsize=10)
    left.set_ylabel("information gained, nats")
    right.set_title(
        "How wrong each arm believes to be (lines), and is (rings)", loc="left", fontsize=10
    )
    right.set(yscale="log", ylabel="error of the field by component, r.m.s.")
    log_ticks(right.yaxis)
    for axes in (left, right):
        over_transitions(axes, history[f"information_gained.{study.arms[0]}"][0])
        axes.grid(alpha=0.25)
    label_ends(left, ends)
    caption(figure, told(study.config.seeds))
    return figure


def _draw_belief(axes: Axes, study: Study, history: History, arm: str) -> None:
    """The deviation that is believed, and the error, both of a component."""
    steps = history[f"field_sd.{arm}"][0]
    size = float(np.sqrt(np.square(study.dataset.held_out.grid_field.astype(float)).mean()))
    median_with_band(
        axes,
        steps,
        recorded(study, history, "field_sd", arm),
        color=COLORS[arm],
        linewidth=2,
        marker=".",
    )
    error = size * np.median(recorded(study, history, "monitor/field_nrmse", arm), 0)
    axes.plot(steps, error, "o", color=COLORS[arm], markersize=4, fillstyle="none")


# The evidence bound.


def draw_elbo(study: Study, history: History) -> Figure:
    """The terms of the evidence bound over transitions."""
    figure = Figure(figsize=(15, 7), layout="constrained")
    panels = figure.subplots(2, 3, sharex=True)
    for axes, (name, title) in zip(panels.flat, ELBO_PANELS.items(), strict=True):
        for arm in study.arms:
            values, steps = recorded(study, history, name, arm), history[f"{name}.{arm}"][0]
            median_with_band(
                axes, steps, values, color=COLORS[arm], linewidth=1.5, marker=".", label=arm
            )
        axes.set_title(title, loc="left", fontsize=10)
        axes.grid(alpha=0.25)
    panels[0, 0].legend(frameon=False, loc="lower right")
    for axes in panels[1]:
        axes.set_xlabel("transitions met, warm-up included")
    caption(
        figure,
        f"Of each transition's last gradient step, and 0 before the first. {told(study.config.seeds)}",
    )
    return figure
