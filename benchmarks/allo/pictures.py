"""a world -> a row about plots: saved in the loop every 1000 steps, or once, after training"""

import time
from collections.abc import Callable, Mapping

import jax
import numpy as np
from matplotlib.figure import Figure

from benchmarks.allo.worlds import World, truth_of
from benchmarks.harness import Measured
from benchmarks.reference.allo_plots import blocking_plots, proposed_plots, save
from benchmarks.table import NotTheSame, Row
from pipeline.storage.figures import png
from quatrain.models.allo.evaluate import true_table
from quatrain.models.allo.plots import on_map, plots
from quatrain.models.allo.train import run_chunk, tables
from quatrain.progress import History

PLOTS_OF_A_RUN = 20
"""Of 20,000 steps: one every 1000."""
FEW = 2
"""Rounds: a turn of the original's takes seconds."""


def plots_row(world: World) -> Row:
    """Seconds for each 1000 steps; ours plots once for all of them, outside the loop."""
    config, dataset = world.config, world.dataset
    history, truth = history_of(world), truth_of(world)

    def pictures(table: np.ndarray) -> np.ndarray:
        return np.stack([on_map(column, dataset) for column in table.T])

    true = pictures(true_table(truth, config.network.d))

    def learned() -> np.ndarray:
        return pictures(tables(config, world.state, dataset)[0])

    def ours() -> None:
        figures = plots(config, world.state, dataset, history, {"cosine_mean": 0.5})
        if "vectors" not in figures or not all(png(figure) for figure in figures.values()):
            raise NotTheSame("plots: the learned vectors are not among the project's")

    times = alternating(
        {
            "before": lambda: blocking_plots(learned(), true, history),
            "proposed": lambda: proposed_plots(learned(), history),
            "ours": ours,
        }
    )
    once = Measured(times["ours"].values / PLOTS_OF_A_RUN)
    name = f"  plots, of each {PLOTS_OF_A_RUN}th of a run"
    return Row(name, "s", once, times["before"], times["proposed"], claims=("allo-3",))


def alternating(works: Mapping[str, Callable[[], object]]) -> dict[str, Measured]:
    """Times works that take seconds, without untimed rounds; a small figure loads matplotlib."""
    save([Figure()], dpi=10)
    durations: dict[str, list[float]] = {name: [] for name in works}
    for index in range(FEW):
        for name in list(works)[:: -1 if index % 2 else 1]:
            begin = time.perf_counter()
            works[name]()
            durations[name].append(time.perf_counter() - begin)
    return {name: Measured(np.array(seconds)) for name, seconds in durations.items()}


def history_of(world: World) -> History:
    """Returns the metrics of a chunk of steps, in the form that plots read."""
    d = world.config.network.d
    every = world.config.train.record_every
    _, recorded = run_chunk(world.config, every, world.state, world.data)
    measured = {name: values[:, 0] for name, values in jax.device_get(recorded).items()}
    steps = np.arange(1, every + 1)
    rising = steps / (len(steps) + 1)
    names = [
        "cosine_mean",
        *(f"{name}/{i}" for name in ("cosine", "eigenvalue_dual", "duals_diag") for i in range(d)),
    ]
    return {
        name: (steps, values) for name, values in (measured | dict.fromkeys(names, rising)).items()
    }
