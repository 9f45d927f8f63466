"""state, dataset -> a figure of the curve with its readings."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from quatrain.envs.harbour import height
from quatrain.models.tides.collect import Dataset
from quatrain.models.tides.config import TidesConfig
from quatrain.models.tides.evaluate import curves
from quatrain.models.tides.train import State
from quatrain.plots import BLACK, RED, draw_seeds
from quatrain.progress import History


def plots(
    config: TidesConfig,
    state: State,
    dataset: Dataset,
    history: History,
    scores: Mapping[str, float],
) -> dict[str, Figure]:
    """Draws the true height and the learned curve."""
    figure = Figure()
    axes = figure.subplots()
    time = np.linspace(0, 1, config.evaluate.points)
    axes.plot(time, height(time), color=BLACK)
    draw_seeds(axes, time, curves(config, state, time), color=RED)
    return {"curve": figure}
