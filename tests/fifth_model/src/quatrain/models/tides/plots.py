"""learner, dataset, history -> figures: the curve on its readings, and how the loss fell."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from quatrain.envs.harbour import height
from quatrain.models.tides.collect import Dataset
from quatrain.models.tides.config import TidesConfig
from quatrain.models.tides.evaluate import curves
from quatrain.models.tides.train import State
from quatrain.plots import BLACK, GREY, RED, curve, mean_with_interval
from quatrain.progress import History


def plots(
    config: TidesConfig,
    state: State,
    dataset: Dataset,
    history: History,
    scores: Mapping[str, float],
) -> dict[str, Figure]:
    """Figures of one trained tides."""
    return {
        "curve": draw_curve(config, state, dataset, scores["rmse"]),
        "loss": draw_loss(config, history),
    }


def draw_curve(config: TidesConfig, state: State, dataset: Dataset, rmse: float) -> Figure:
    """Readings, the true height, and what was learned."""
    figure = Figure(figsize=(7, 4))
    axes = figure.subplots()
    time = np.linspace(0, 1, config.evaluate.points)
    axes.plot(
        dataset.train.time, dataset.train.height, ".", color=GREY, markersize=2, label="readings"
    )
    axes.plot(time, height(time), color=BLACK, label="true")
    mean_with_interval(
        axes, time, curves(config, state, time), color=RED, label=f"learned, rmse {rmse:.3f} m"
    )
    axes.set(xlabel="time (days)", ylabel="height (m)")
    axes.legend()
    return figure


def draw_loss(config: TidesConfig, history: History) -> Figure:
    """Mean squared error of the batches."""
    figure = Figure(figsize=(7, 3))
    axes = figure.subplots()
    found = curve(history, "error", config.seeds)
    mean_with_interval(axes, found.steps, found.values, color=RED)
    axes.set(xlabel="gradient steps", ylabel="squared error (m²)", yscale="log")
    return figure
