"""scores by replicate -> figures: is what is believed true as often as said, and how far ahead can be told?"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64
from matplotlib.figure import Figure
from scipy.special import ndtri

from quatrain.models.active_dynamics.evaluate import HORIZONS, SMALLEST
from quatrain.models.active_dynamics.figures.parts import COLORS, median_with_band, told
from quatrain.models.active_dynamics.figures.study import Study
from quatrain.plots import EndLabel, caption, label_ends

NOMINAL = np.arange(1, 20) / 20
"""Shares that intervals promise to hold."""
TOLD = 0.9
"""The one of them that is told in words."""
R2_TICKS = (-9, -1, 0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9999)


def draw_calibration(study: Study) -> Figure:
    """How much of the field intervals hold, over how much they promise to."""
    observed, place = coverage(study), int(np.argmin(np.abs(NOMINAL - TOLD)))
    figure = Figure(figsize=(6.4, 5.8), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="0.3", linestyle="--", linewidth=1)
    ends = []
    for arm in study.arms:
        median = median_with_band(
            axes, NOMINAL, study.of(arm, observed), color=COLORS[arm], linewidth=2
        )
        axes.plot(NOMINAL[place], median[place], "o", color=COLORS[arm], markersize=6, zorder=3)
        ends.append(EndLabel(float(median[place]), f"{arm} {median[place]:.0%}", COLORS[arm]))
    for x, y, said in ((0.25, 0.75, "too cautious"), (0.75, 0.25, "too sure")):
        axes.text(x, y, said, color="0.6", fontsize=12, ha="center", va="center")
    held = _of_pair(study, ends)
    axes.set_title(f"Of {TOLD:.0%} promised, intervals hold: {held}", loc="left", fontsize=10)
    axes.set(
        xlabel="share of the field that intervals promise to hold", ylabel="share that they hold"
    )
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes.grid(alpha=0.25)
    label_ends(axes, ends)
    caption(figure, told(study.config.seeds).replace("; bands", ";\nbands"))
    return figure


def coverage(study: Study) -> Float64[np.ndarray, "learner level"]:
    """Share of the field's components, over the region, that lie in central intervals of these sizes."""
    variance = np.maximum(study.known.variance, SMALLEST)
    square = (study.known.mean - study.dataset.held_out.grid_field) ** 2 / variance
    return np.stack([(square <= ndtri((1 + level) / 2) ** 2).mean((1, 2)) for level in NOMINAL], 1)


def draw_horizon(study: Study) -> Figure:
    """How much of the way that the field moves a state is told ahead, over transitions ahead."""
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    ends = []
    for arm in study.arms:
        r2 = np.stack([study.of(arm, study.ahead[f"displacement_r2_{k}"]) for k in HORIZONS], 1)
        median = median_with_band(
            axes, HORIZONS, nines(r2), color=COLORS[arm], linewidth=2, marker="o"
        )
        ends.append(EndLabel(float(median[-1]), f"{arm} {np.median(r2[:, -1]):.4f}", COLORS[arm]))
    axes.set_yticks(nines(np.array(R2_TICKS)), [f"{tick:g}" for tick in R2_TICKS])
    low, high = axes.dataLim.intervaly
    axes.set_ylim(low - 0.15, high + 0.15)
    axes.set_xticks(HORIZONS)
    axes.set_title(
        f"R² of where the field carries a state in {HORIZONS[-1]} transitions: {_of_pair(study, ends)}",
        loc="left",
        fontsize=10,
    )
    axes.set(xlabel="transitions ahead", ylabel="R² of the displacement by the field")
    axes.grid(alpha=0.25)
    label_ends(axes, ends)
    caption(
        figure,
        "From true states, by actions that were not learned from; 0: as if there were no field. What is left "
        f"unexplained\nfalls to a tenth over equal heights. {told(study.config.seeds)}",
    )
    return figure


def _of_pair(study: Study, ends: Sequence[EndLabel]) -> str:
    """In words, of the arms that maps are of."""
    return ", ".join(
        end.text for arm, end in zip(study.arms, ends, strict=True) if arm in study.pair
    )


def nines(r2: Float64[np.ndarray, "*axes"]) -> Float64[np.ndarray, "*axes"]:
    """-log₁₀(1 - R²): 0 for 0, 1 for 0.9, 2 for 0.99."""
    return -np.log10(np.maximum(1 - r2, SMALLEST))
