"""state, history, scores -> figures of what was learned, and how."""

import numpy as np
from matplotlib.figure import Figure

from quatrain.models.sketch import network
from quatrain.models.sketch.collect import Dataset, truth
from quatrain.models.sketch.config import SketchConfig
from quatrain.models.sketch.train import State
from quatrain.plots import RED, SMALL_TITLE, curve, draw_seeds
from quatrain.progress import History


def plots(
    config: SketchConfig,
    state: State,
    dataset: Dataset,
    history: History,
    scores: dict[str, float],
) -> dict[str, Figure]:
    """Draws the true and the learned function, and the loss while learning."""
    return {"function": _draw_function(config, state), "loss": _draw_loss(config, history)}


def _draw_function(config: SketchConfig, state: State) -> Figure:
    """Draws both as maps of one colour scale; the learned one is that of the first seed."""
    axis = np.linspace(-1, 1, config.evaluate.points, dtype=np.float32)
    inputs = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    maps = {
        "true function": truth(config.env, inputs),
        "learned by the first seed": network.predict(state.params, inputs)[0],
    }
    figure = Figure(figsize=(9, 4), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (title, values) in zip(panels, maps.items(), strict=True):
        picture = axes.imshow(
            values.reshape(len(axis), -1),
            origin="lower",
            extent=(-1, 1, -1, 1),
            vmin=-1,
            vmax=1,
            cmap="RdBu_r",
        )
        axes.set_title(title, **SMALL_TITLE)
        axes.set_xlabel("x")
    panels[0].set_ylabel("y")
    figure.colorbar(picture, ax=panels, label="value")
    return figure


def _draw_loss(config: SketchConfig, history: History) -> Figure:
    recorded = curve(history, "error", config.seeds)
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    draw_seeds(axes, recorded.steps, recorded.values, color=RED)
    axes.set_yscale("log")
    axes.set_xlabel("gradient steps")
    axes.set_ylabel("mean squared error of a batch")
    return figure
