"""state, dataset, history -> figures: the curve with its readings, and the loss."""

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
    """Draws the figures of a report."""
    return {
        "curve": draw_curve(config, state, dataset, scores["rmse"]),
        "loss": draw_loss(config, history),
    }


def draw_curve(config: TidesConfig, state: State, dataset: Dataset, rmse: float) -> Figure:
    """Draws readings, true height and learned curve."""
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
    """Draws the mean squared error of the batches."""
    figure = Figure(figsize=(7, 3))
    axes = figure.subplots()
    error = curve(history, "error", config.seeds)
    mean_with_interval(axes, error.steps, error.values, color=RED)
    axes.set(xlabel="gradient steps", ylabel="squared error (m²)", yscale="log")
    return figure
