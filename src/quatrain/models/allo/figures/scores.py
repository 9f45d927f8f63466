"""table, truth, scores -> figures of the end: cosines beside references, overlaps"""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quatrain.envs.host.config import HostEnv
from quatrain.models.allo.config import AlloConfig
from quatrain.models.allo.learning.spectra import fit
from quatrain.models.allo.learning.spectra.spectrum import Spectrum
from quatrain.plots import BLACK, GREY, RED, SMALL_TITLE, caption

# Scores of `baseline_comparison` by rule, from top to bottom.
COMPARED = {
    "Strict cosine with the true vectors of the buffer": {
        "ceiling_truth": "true vectors",
        "held_out_cosine": "true vectors, on held-out data",
        "cosine_mean": "learned, mean",
        "cosine_min": "learned, lowest component",
        "floor_untrained": "untrained network",
        "floor_random": "random numbers",
        "floor_constant": "constant",
    },
    "Cosine with the uniform policy's, equal eigenvalues as one space (the paper's metric)": {
        "ceiling_paper": "true vectors of the buffer",
        "cosine_paper": "learned",
        "random_paper": "random numbers",
    },
    "Cosine with the uniform policy's, vector by vector": {
        "cosine_index": "learned",
        "random_index": "random numbers",
    },
}
PREFIX_COLORS = {"floor": GREY, "random": GREY, "cosine": RED}


def draw_baseline_comparison(config: AlloConfig, scores: Mapping[str, float]) -> Figure:
    """Draws the cosines by each rule, beside what the truth and random numbers score by it."""
    labels = {
        rule: {name: label for name, label in of_rule.items() if name in scores}
        for rule, of_rule in COMPARED.items()
    }
    shown = {rule: of_rule for rule, of_rule in labels.items() if of_rule}
    heights = [len(of_rule) + 1 for of_rule in shown.values()]
    figure = Figure(figsize=(9, 0.36 * sum(heights) + 0.8), layout="constrained")
    panels = figure.subplots(len(shown), height_ratios=heights, sharex=True, squeeze=False).flat
    for axes, (rule, of_rule) in zip(panels, shown.items(), strict=True):
        _draw_bars(axes, {label: scores[name] for name, label in of_rule.items()}, list(of_rule))
        axes.set_title(rule, **SMALL_TITLE)
        axes.set_xlim(0, 1.12)
    env = config.env
    place = f"{env.name}." if isinstance(env, HostEnv) else f"Map {env.map.name}."
    caption(
        figure,
        f"{place} Red: learned. Grey: without learning. Dark: what limits it.",
    )
    return figure


def _draw_bars(axes: Axes, values: Mapping[str, float], names: Sequence[str]) -> None:
    """Draws a bar for each value from top to bottom, coloured by what its score is."""
    colors = [PREFIX_COLORS.get(name.split("_")[0], BLACK) for name in names]
    axes.barh(list(values), list(values.values()), color=colors)
    for row, value in enumerate(values.values()):
        axes.text(max(value, 0), row, f" {value:.4f}", va="center", fontsize=9)
    axes.invert_yaxis()


def draw_orthogonality(table: np.ndarray, truth: Spectrum) -> Figure:
    """Draws |FᵀRF − I|: bright off the diagonal are two components that overlap."""
    figure = Figure(figsize=(5.5, 4.5))
    axes = figure.subplots()
    error = fit.orthogonality(table, truth)
    picture = axes.imshow(
        np.log10(error + 1e-6),
        cmap="magma",
        vmin=-4,
        vmax=0,
    )
    figure.colorbar(picture, ax=axes, label="log10 |FᵀRF − I|")
    axes.set(xlabel="component", ylabel="component")
    axes.set_title(f"Overlap of components: {error.max():.2g} off at most", **SMALL_TITLE)
    return figure
