"""state, dataset, history -> figures: is each vector right, since when, and what limits it?"""

from collections.abc import Mapping

import numpy as np

from quatrain.models.allo.collect import Dataset
from quatrain.models.allo.config import AlloConfig
from quatrain.models.allo.figures.maps import draw_vectors, draw_visits
from quatrain.models.allo.figures.scores import draw_baseline_comparison, draw_orthogonality
from quatrain.models.allo.figures.training import draw_cosine, draw_eigenvalues, draw_losses
from quatrain.models.allo.train import State, tables
from quatrain.models.allo.truth import true_spectrum
from quatrain.plots import Picture, house_style, in_order
from quatrain.progress import History

# Picture -> what it shows, in the order of the story.
CAPTIONS = {
    "visits": "The task: a space of states, walked through at random. From such walks alone the "
    "model learns coordinates in which states that are few steps apart are alike.",
    "cosine": "Learning: the learned coordinates turn into the true eigenvectors of the walks' "
    "graph Laplacian, the smoothest ones first.",
    "vectors": "The result: true eigenvectors above, learned ones below.",
    "baseline_comparison": "Comparison: the score beside those of the truth, and of what has "
    "learned nothing.",
    "eigenvalues": "Detail: how exactly each eigenvalue is known, by two estimates.",
    "orthogonality": "Detail: whether each component is a vector of its own.",
    "losses": "Detail: the loss by term, how far its constraints are violated, and its gradient.",
}


@house_style
def plots(
    config: AlloConfig,
    state: State,
    dataset: Dataset,
    history: History,
    scores: Mapping[str, float],
) -> dict[str, Picture]:
    """Draws the figures of a trained allo: maps of the first learner, curves of all."""
    truth = true_spectrum(config, dataset).spectrum
    table = np.asarray(tables(config, state, dataset)[0], np.float64)
    pictures: dict[str, Picture] = {
        "visits": draw_visits(truth, dataset),
        "cosine": draw_cosine(config, history, scores),
        "vectors": draw_vectors(table, truth, dataset),
        "baseline_comparison": draw_baseline_comparison(config, scores),
        "eigenvalues": draw_eigenvalues(config, truth, history, scores),
        "orthogonality": draw_orthogonality(table, truth),
        "losses": draw_losses(config, history),
    }
    return in_order(pictures, CAPTIONS)
