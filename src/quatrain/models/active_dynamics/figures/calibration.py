"""field estimates -> figure: observed coverage of intervals over their nominal coverage"""

import numpy as np
from jaxtyping import Float64
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import ndtri

from quatrain.models.active_dynamics.evaluate import SMALLEST
from quatrain.models.active_dynamics.figures.parts import (
    COLORS,
    end_label,
    explain_arms,
    explain_lines,
    label_arms,
    median_with_band,
)
from quatrain.models.active_dynamics.figures.study import Study
from quatrain.plots import EndLabel, caption

NOMINAL = np.arange(1, 20) / 20
# Nominal coverage that is marked and named in the title.
HIGHLIGHTED = 0.9


def draw_calibration(study: Study) -> Figure:
    figure = Figure(figsize=(6.4, 5.8), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="0.3", linestyle="--", linewidth=1)
    ends = _draw_coverage(axes, study)
    for x, text in ((0.25, "underconfident"), (0.75, "overconfident")):
        axes.text(x, 1 - x, text, color="0.6", fontsize=12, ha="center", va="center")
    axes.set(
        xlabel="nominal coverage of the learner's intervals",
        ylabel="observed coverage, share of the field",
        xlim=(0, 1),
        ylim=(0, 1),
        aspect="equal",
    )
    label_arms(axes, f"Coverage of {HIGHLIGHTED:.0%} intervals: {study.pair_text(ends)}", ends)
    caption(figure, explain_arms(study.arms), explain_lines(study.config.seeds))
    return figure


def _draw_coverage(axes: Axes, study: Study) -> list[EndLabel]:
    observed = coverage(study)
    place = int(np.argmin(np.abs(NOMINAL - HIGHLIGHTED)))
    ends = []
    for arm in study.arms:
        color = COLORS[arm]
        median = median_with_band(
            axes,
            NOMINAL,
            study.of_arm(arm, observed),
            color=color,
            linewidth=2,
        )
        axes.plot(NOMINAL[place], median[place], "o", color=color, markersize=6, zorder=3)
        ends.append(end_label(arm, median[place], f" {median[place]:.0%}"))
    return ends


def coverage(study: Study) -> Float64[np.ndarray, "learner level"]:
    """Returns the share of the field's components within central intervals of each nominal size."""
    estimate = study.estimate
    variance = np.maximum(estimate.variance, SMALLEST)
    square = (estimate.mean - study.dataset.held_out.grid_field) ** 2 / variance
    limits = ndtri((1 + NOMINAL) / 2) ** 2
    return np.stack([(square <= limit).mean((1, 2)) for limit in limits], 1)
