"""predicted states -> figure: R² of the displacement by the field, over transitions ahead"""

import numpy as np
from jaxtyping import Float64
from matplotlib.figure import Figure

from quatrain.models.active_dynamics.evaluate import HORIZONS, SMALLEST
from quatrain.models.active_dynamics.figures.parts import (
    draw_arm,
    explain_arms,
    explain_lines,
    label_arms,
)
from quatrain.models.active_dynamics.figures.study import Study
from quatrain.plots import caption

R2_TICKS = (-9, -1, 0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9999)


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
