"""state, dataset -> a figure of the curve with its readings."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from quatrain.envs.harbour import height
from quatrain.models.tides.collect import Dataset
from quatrain.models.tides.config import TidesConfig
from quatrain.models.tides.evaluate import curves
from quatrain.models.tides.train import State
from quatrain.plots import BLACK, GREY, RED, mean_with_interval
from quatrain.progress import History


def plots(
    config: TidesConfig,
    state: State,
    dataset: Dataset,
    history: History,
    scores: Mapping[str, float],
) -> dict[str, Figure]:
    """Draws readings, true height and learned curve."""
    figure = Figure(figsize=(7, 4))
    axes = figure.subplots()
    time = np.linspace(0, 1, config.evaluate.points)
    axes.plot(*dataset.train, ".", color=GREY, markersize=2, label="readings")
    axes.plot(time, height(time), color=BLACK, label="true")
    learned = f"learned, rmse {scores['rmse']:.3f} m"
    mean_with_interval(axes, time, curves(config, state, time), color=RED, label=learned)
    axes.set(xlabel="time (days)", ylabel="height (m)")
    axes.legend()
    return {"curve": figure}
