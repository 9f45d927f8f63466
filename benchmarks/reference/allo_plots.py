"""features, history -> the figures that the original program saves every 1000 steps

Written from their description; each is saved as a PNG while the training waits.
"""

import io
from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from quatrain.progress import History

DPI, PROPOSED_DPI = 300, 150
CURVES = ("loss", "graph", "dual", "barrier_term", "total_error", "norm_error")


def blocking_plots(learned: np.ndarray, true: np.ndarray, history: History) -> None:
    """Saves all figures at full resolution; maps are (d, height, width)."""
    both = {"true": true, "learned": learned}
    save([maps({"learned": learned}), maps(both), *curves(history)], DPI)


def proposed_plots(learned: np.ndarray, history: History) -> None:
    """Saves fewer figures, in the loop too, at a lower resolution."""
    save([maps({"learned": learned}), *curves(history)], PROPOSED_DPI)


def maps(rows: Mapping[str, np.ndarray]) -> Figure:
    """Draws a row of maps for each entry."""
    d = len(next(iter(rows.values())))
    figure = Figure(figsize=(2 * d, 2.2 * len(rows)))
    grid = figure.subplots(len(rows), d, squeeze=False)
    for line, (name, pictures) in zip(grid, rows.items(), strict=True):
        for i, (axes, picture) in enumerate(zip(line, pictures, strict=True)):
            axes.imshow(picture, cmap="RdBu")
            axes.set(title=f"{name} {i}", xticks=[], yticks=[])
    return figure


def curves(history: History) -> list[Figure]:
    """Draws learning curves, and the duals."""
    learning, duals = Figure(figsize=(12, 8)), Figure(figsize=(8, 5))
    for axes, name in zip(learning.subplots(2, 3).flat, CURVES, strict=True):
        axes.plot(*history[name])
        axes.set(title=name, xlabel="gradient steps")
    axes = duals.subplots()
    for name, (steps, values) in history.items():
        if name.startswith("duals_diag/"):
            axes.plot(steps, values, label=name)
    axes.legend()
    return [learning, duals]


def save(figures: list[Figure], dpi: int) -> None:
    """Saves figures as PNG into memory: the disk is not measured."""
    for figure in figures:
        figure.savefig(io.BytesIO(), format="png", dpi=dpi)
