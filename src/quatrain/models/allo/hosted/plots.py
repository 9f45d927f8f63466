"""state, dataset, history -> figures: learned vectors over the observations, and curves"""

from collections.abc import Mapping

import matplotlib
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quatrain.models.allo.figures.scores import draw_baseline_comparison, draw_orthogonality
from quatrain.models.allo.figures.training import draw_cosine, draw_eigenvalues, draw_losses
from quatrain.models.allo.hosted.config import HostedAlloConfig
from quatrain.models.allo.hosted.dataset import HostedDataset
from quatrain.models.allo.learning.spectra import fit
from quatrain.models.allo.learning.spectra.spectrum import Spectrum
from quatrain.models.allo.learning.spectra.truth import true_spectrum, true_table
from quatrain.models.allo.learning.state import State, tables
from quatrain.models.allo.plots import CAPTIONS as BUILT_IN
from quatrain.plots import SMALL_TITLE, Picture, caption, house_style, in_order
from quatrain.progress import History

COLUMNS = 6
# Picture -> what it shows, in the order of the story.
CAPTIONS = {
    "cosine": "Learning: the learned coordinates turn into the true eigenvectors of the walks' "
    "graph Laplacian, the smoothest ones first.",
    "vectors": "The result: true eigenvectors above, learned ones below, over two numbers of the "
    "observation.",
    **{
        name: text for name, text in BUILT_IN.items() if name not in ("visits", "cosine", "vectors")
    },
}


@house_style
def plots(
    config: HostedAlloConfig,
    state: State,
    dataset: HostedDataset,
    history: History,
    scores: Mapping[str, float],
) -> dict[str, Picture]:
    """Draws the figures of a trained allo: vectors of the first learner, curves of all."""
    truth = true_spectrum(config, dataset).spectrum
    table = np.asarray(tables(config, state, dataset)[0], np.float64)
    pictures: dict[str, Picture] = {
        "cosine": draw_cosine(config, history, scores),
        "vectors": draw_vectors(config, table, truth, dataset),
        "baseline_comparison": draw_baseline_comparison(config, scores),
        "eigenvalues": draw_eigenvalues(config, truth, history, scores),
        "orthogonality": draw_orthogonality(table, truth),
        "losses": draw_losses(config, history),
    }
    return in_order(pictures, CAPTIONS)


def widest_axes(dataset: HostedDataset) -> tuple[int, int]:
    """Returns the two axes of observations with the most different values among the states."""
    counts = [len(np.unique(column)) for column in dataset.table.observations.T]
    first, *others = np.argsort(counts, kind="stable")[::-1].tolist()
    return (first, others[0]) if others else (first, first)


def draw_vectors(
    config: HostedAlloConfig,
    table: Float[np.ndarray, "states d"],
    truth: Spectrum,
    dataset: HostedDataset,
) -> Figure:
    """Draws the first true vectors (above) and the learned ones (below) over two axes of the
    observations.
    """
    columns = min(COLUMNS, table.shape[1])
    figure = Figure(figsize=(max(2.3 * columns, 8) + 0.6, 5.2), layout="constrained")
    panels = figure.subplots(2, columns, sharex=True, sharey=True, squeeze=False)
    axes_shown = widest_axes(dataset)
    points = dataset.table.observations[truth.visited][:, axes_shown].T
    true = true_table(truth, columns)[truth.visited]
    cosines = fit.strict_cosine(table, truth)
    for component in range(columns):
        learned = table[truth.visited, component]
        sign = np.sign(learned @ (truth.starts * true[:, component])) or 1.0
        _scatter(panels[0, component], points, true[:, component])
        _scatter(panels[1, component], points, sign * learned)
        panels[0, component].set_title(f"true {component}", **SMALL_TITLE)
        panels[1, component].set_title(
            f"learned {component}: cosine {cosines[component]:.3f}", **SMALL_TITLE
        )
    for axes in panels[1]:
        axes.set_xlabel(f"observation {axes_shown[0]}")
    for axes in panels[:, 0]:
        axes.set_ylabel(f"observation {axes_shown[1]}")
    caption(
        figure,
        f"{config.env.name}: {len(truth.visited)} states that random walks visit, at their mean "
        "observations. Red above 0, blue below; signs are arbitrary.",
    )
    return figure


def _scatter(
    axes: Axes, points: Float[np.ndarray, "2 states"], values: Float[np.ndarray, " states"]
) -> None:
    limit = float(np.abs(values).max()) or 1.0
    x, y = points
    axes.scatter(x, y, c=values, cmap=matplotlib.colormaps["RdBu_r"], vmin=-limit, vmax=limit, s=10)
