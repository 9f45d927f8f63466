"""table, truth, scores -> figures of the end: cosines beside references, overlaps"""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from quatrain.models.allo.config import AlloConfig
from quatrain.models.allo.evaluate import orthogonality
from quatrain.models.allo.rules import REFERENCE_NAMES
from quatrain.models.allo.truth import Spectrum
from quatrain.plots import BLUE, GREY, RED, SMALL_TITLE, Level, caption, draw_ladder

# Scores by the rule that gives them.
COMPARED = {
    "Strict cosine with the true vectors of the buffer": {
        "cosine_mean": "learned, mean",
        "cosine_min": "learned, lowest component",
        **REFERENCE_NAMES,
    },
    "Cosine with the uniform policy's, equal eigenvalues as one space (the paper's metric)": {
        "cosine_paper": "learned",
        "ceiling_paper": "true vectors of the buffer",
        "random_paper": "random numbers",
    },
    "Cosine with the uniform policy's, vector by vector": {
        "cosine_index": "learned",
        "random_index": "random numbers",
    },
}
PREFIX_COLORS = {"cosine": RED, "ceiling": BLUE}


def draw_baseline_comparison(config: AlloConfig, scores: Mapping[str, float]) -> Figure:
    """Draws the cosines by each rule, beside what the truth and random numbers score by it."""
    rules = {
        rule: [_level(name, label, scores) for name, label in named.items() if name in scores]
        for rule, named in COMPARED.items()
    }
    shown = {rule: levels for rule, levels in rules.items() if levels}
    heights = [len(levels) + 1 for levels in shown.values()]
    figure = Figure(figsize=(9, 0.36 * sum(heights) + 0.9), layout="constrained")
    panels = figure.subplots(len(shown), height_ratios=heights, sharex=True, squeeze=False).flat
    for axes, (rule, levels) in zip(panels, shown.items(), strict=True):
        draw_ladder(axes, levels, 4, (min(0.0, *(level.value for level in levels)), 1.0))
        axes.set_title(rule, **SMALL_TITLE)
    panels[-1].set_xlabel("cosine: 1 is the truth")
    caption(
        figure,
        f"In {config.env.name}. Red: learned. Blue: the truth. Grey: without learning.",
        _held_out_sentence(scores),
    )
    return figure


def _level(name: str, label: str, scores: Mapping[str, float]) -> Level:
    return Level(label, scores[name], PREFIX_COLORS.get(name.split("_")[0], GREY))


def _held_out_sentence(scores: Mapping[str, float]) -> str:
    """Says how far the data decide the truth: it is no score of what was learned."""
    if "held_out_cosine" not in scores:
        return ""
    cosine = f"{scores['held_out_cosine']:.4f}"
    return (
        f"The true vectors of other data of this size agree with those of these data by {cosine}."
    )


def draw_orthogonality(table: np.ndarray, truth: Spectrum) -> Figure:
    """Draws |FᵀRF − I|: bright off the diagonal are two components that overlap."""
    figure = Figure(figsize=(6, 4.8), layout="constrained")
    axes = figure.subplots()
    error = orthogonality(table, truth)
    picture = axes.imshow(np.log10(error + 1e-6), cmap="magma", vmin=-4, vmax=0)
    bar = figure.colorbar(picture, ax=axes, label="overlap |FᵀRF − I|", ticks=range(-4, 1))
    bar.ax.set_yticklabels([f"{10.0**power:g}" for power in range(-4, 1)])
    axes.set(xlabel="component", ylabel="component")
    axes.set_title(f"Overlap of components: {error.max():.2g} at most", **SMALL_TITLE)
    return figure
