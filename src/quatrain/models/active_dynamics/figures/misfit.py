"""learners, scores -> figure: signs that features or noise do not fit

Innovations of a right filter have the size that it expects, and do not follow each other. The
field's error near the data is as large as its variance says.
"""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quatrain.models.active_dynamics import misfit
from quatrain.models.active_dynamics.figures.parts import (
    COLORS,
    DOTTED_LINE,
    end_label,
    format_number,
    label_arms,
    log_ticks,
    set_title,
)
from quatrain.models.active_dynamics.figures.study import Study
from quatrain.plots import EndLabel, caption

EXPECTED = {"color": "0.3", "linestyle": "--", "linewidth": 1}
# Distance at which the last range, which has no end, is drawn.
LAST = 1.6


def draw_misfit(study: Study, scores: Mapping[str, float]) -> Figure:
    """Draws error by distance; for a filter also size and correlation of its innovations."""
    has_innovations = f"nis.{study.arms[0]}" in scores
    figure = Figure(figsize=(13 if has_innovations else 7, 5), layout="constrained")
    panels = figure.subplots(1, 2 if has_innovations else 1, squeeze=False)[0]
    ends = [_draw_distances(panels[0], study, arm) for arm in study.arms]
    label_arms(panels[0], "Error by distance to the data", ends)
    log_ticks(panels[0].yaxis)
    if has_innovations:
        _draw_innovations(panels[1], study, scores)
    caption(
        figure,
        "Left, dashed: the error that the learner expects.",
        "Right: innovations are observations minus their prediction; grey: if the field is right."
        if has_innovations
        else "",
        f"Medians over {study.config.seeds} replicates.",
    )
    return figure


def _draw_distances(axes: Axes, study: Study, arm: str) -> EndLabel:
    truth = study.dataset.held_out
    square = ((study.estimate.mean - truth.grid_field) ** 2).sum(2)
    variance = study.estimate.variance.sum(2)
    rows = (square, variance, misfit.nearest_distances(study.path, truth.grid))
    ranges = misfit.by_distance(*(study.of_arm(arm, row) for row in rows))
    x = np.array([*misfit.EDGES[:-1], LAST])
    filled = np.isfinite(ranges.error).any(0)
    error, expected = (np.nanmedian(values[:, filled], 0) for values in ranges)
    axes.plot(x[filled], error, color=COLORS[arm], **DOTTED_LINE)
    axes.plot(x[filled], expected, color=COLORS[arm], linestyle="--")
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="distance to the nearest visited state, up to",
        ylabel="error of the field, speed",
    )
    log_ticks(axes.xaxis)
    return end_label(arm, error[-1], f" {format_number(error[-1])}")


def _draw_innovations(axes: Axes, study: Study, scores: Mapping[str, float]) -> None:
    for name, line in (("nis", axes.axvspan), ("whiteness", axes.axhspan)):
        line(scores[f"{name}_expected_low"], scores[f"{name}_expected_high"], color="0.85")
    for arm in study.arms:
        x, y = scores[f"nis.{arm}"], scores[f"whiteness.{arm}"]
        axes.plot(x, y, "o", color=COLORS[arm], markersize=8, label=arm)
    axes.plot(scores["nis_oracle"], scores["whiteness_oracle"], "k*", label="true field")
    axes.set(
        xlabel="mean square of innovations, relative to the expected one",
        ylabel="correlation with the innovation before",
    )
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    axes.grid(alpha=0.25)
    set_title(axes, "What a filter with the learned field does not foresee")
