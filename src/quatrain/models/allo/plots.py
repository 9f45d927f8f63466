"""state, dataset, history -> figures: is each vector right, since when, and what limits it?"""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from quatrain.models.allo.collect import Dataset
from quatrain.models.allo.config import AlloConfig
from quatrain.models.allo.figures.maps import draw_vectors, draw_visits
from quatrain.models.allo.figures.scores import draw_baseline_comparison, draw_orthogonality
from quatrain.models.allo.figures.training import draw_cosine, draw_eigenvalues, draw_losses
from quatrain.models.allo.learning.spectra.truth import true_spectrum
from quatrain.models.allo.learning.state import State, tables
from quatrain.plots import house_style
from quatrain.progress import History


@house_style
def plots(
    config: AlloConfig,
    state: State,
    dataset: Dataset,
    history: History,
    scores: Mapping[str, float],
) -> dict[str, Figure]:
    """Draws the figures of a trained allo: maps of the first learner, curves of all."""
    truth = true_spectrum(config, dataset).spectrum
    table = np.asarray(tables(config, state, dataset)[0], np.float64)
    return {
        "visits": draw_visits(truth, dataset),
        "cosine": draw_cosine(config, history, scores),
        "vectors": draw_vectors(table, truth, dataset),
        "baseline_comparison": draw_baseline_comparison(config, scores),
        "eigenvalues": draw_eigenvalues(config, truth, history, scores),
        "orthogonality": draw_orthogonality(table, truth),
        "losses": draw_losses(config, history),
    }
