"""state, dataset, history -> figures: is each vector right, since when, and what limits it?"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm

from quatrain.models.allo.collect import Dataset
from quatrain.models.allo.config import AlloConfig
from quatrain.models.allo.film import film_vectors
from quatrain.models.allo.rules import HELD_OUT_LOWER, REFERENCE_NAMES
from quatrain.models.allo.train import State
from quatrain.models.allo.truth import Spectrum, aligned, strict_cosine, true_table
from quatrain.plots import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    RED,
    Curve,
    Figure,
    Level,
    Line,
    Panel,
    Picture,
    caption,
    curve,
    describe_seeds,
    format_thousands,
    house_style,
    in_order,
    learning_curve,
    update_panels,
)
from quatrain.progress import Evaluation, History

# Picture -> what it shows: the first on the model's card, then in the order of the story.
CAPTIONS = {
    "vectors": "What has it learned? True eigenvectors above, learned ones below.",
    "visits": "Where are the data from? A space of states, walked through at random. From such "
    "walks alone the model learns coordinates in which states few steps apart are alike.",
    "cosine": "Does it learn? The learned coordinates turn into the true eigenvectors of the "
    "walks' graph Laplacian; beside them what the truth scores, and what has learned nothing.",
    "forming": "How do the vectors form? An untrained network has arbitrary patterns; each turns "
    "into the true vector above it. Later pictures are more steps apart.",
    "eigenvalues": "Which components are right, and since when? The distance of each vector and "
    "eigenvalue from the truth while learning.",
    "kept": "Does it learn? How much of the learned functions a held-out walk keeps from a state "
    "to a later one, and whether seeds find the same, beside what has learned nothing.",
    "functions": "What has it learned? The learned functions at held-out observations.",
    "losses": "Are the updates sound? The loss by term, how far its constraints are violated, and "
    "its gradient.",
}
# Most vectors side by side.
COLUMNS = 6
# Held-out observations that a function is drawn at.
FUNCTION_POINTS = 3000
# Most components whose number stands beside their row.
NUMBERED = 24
# Recorded metric -> its name in words, and its colour.
KEPT = {"autocorrelation": ("kept by walks", RED), "consistency": ("alike in two seeds", ORANGE)}
COSINES = {"cosine_mean": ("mean", RED), "cosine_min": ("lowest", ORANGE)}
TERMS = {
    "graph": ("graph: neighbours alike", BLUE),
    "dual": ("dual: λ · violation", ORANGE),
    "barrier_term": ("barrier: violation²", GREEN),
    "loss": ("loss: their sum", RED),
}
VIOLATIONS = {
    "total_error": ("Σ|E|, all pairs", RED),
    "norm_error": ("Σ|Eᵢᵢ|, lengths", BLUE),
    "manifold_distance": ("ΣE²", GREEN),
}
STEPS = "gradient steps"


@house_style
def plots(
    config: AlloConfig, state: State, dataset: Dataset, history: History, evaluation: Evaluation
) -> dict[str, Picture]:
    """Draws the figures of a trained allo: maps of the first learner, curves of all."""
    scores = evaluation.scores
    truth = evaluation.outcomes.spectrum
    table = np.asarray(evaluation.outcomes.learned[0], np.float64)
    if truth is None:
        pictures: dict[str, Picture] = {
            "kept": draw_kept(config, history, scores),
            "functions": draw_functions(table, evaluation.outcomes.places, scores),
            "losses": draw_losses(config, history),
        }
        return in_order(pictures, CAPTIONS)
    pictures = {
        "visits": draw_visits(truth, dataset),
        "cosine": draw_cosine(config, history, scores),
        "vectors": draw_vectors(table, truth, dataset),
        "eigenvalues": draw_components(config, truth, history, scores),
        "losses": draw_losses(config, history),
    }
    if state.snapshots is not None:
        pictures["forming"] = film_vectors(config, state, dataset, truth, table)
    return in_order(pictures, CAPTIONS)


# Maps of states.


def draw_visits(truth: Spectrum, dataset: Dataset) -> Figure:
    """Draws how often each state starts a pair (1: uniform), and one-way doors as arrows."""
    figure = Figure(figsize=(6, 5), layout="constrained")
    axes = figure.subplots()
    share = np.zeros(len(truth.visited))
    share[truth.visited] = truth.starts * truth.visited.sum()
    picture = _draw_states(axes, share, dataset, cmap="viridis", vmin=0, vmax=max(2, share.max()))
    figure.colorbar(picture, ax=axes, label="visits, relative to uniform")
    x, y, dx, dy = _one_way_doors(dataset).T
    axes.quiver(x, y, dx, dy, color=RED, angles="xy", scale_units="xy", scale=1)
    arrows = "Red arrows: doors of one way." if len(x) else ""
    caption(figure, "Colour: how often a state starts a pair; 1 if all were alike.", arrows)
    return figure


def _one_way_doors(dataset: Dataset) -> Int[np.ndarray, "door 4"]:
    """Returns a cell and a move (x, y, dx, dy) that no move leads back from."""
    if dataset.next_state is None:
        return np.zeros((0, 4), int)
    coords, next_state = np.asarray(dataset.coords), np.asarray(dataset.next_state)
    states, actions = np.nonzero(next_state != np.arange(len(next_state))[:, None])
    targets = next_state[states, actions]
    one_way = ~(next_state[targets] == states[:, None]).any(1)
    moves = np.concatenate([coords[states], coords[targets] - coords[states]], 1)
    return moves[one_way]


def _draw_states(axes: Axes, values: np.ndarray, dataset: Dataset, **colors: Any) -> Any:
    """Draws the values of states at their coordinates: on a map of cells if those are whole (x, y),
    else as points over the two axes with the most different values.
    """
    coords = np.asarray(dataset.coords)
    if not np.issubdtype(coords.dtype, np.integer):
        counts = [len(np.unique(column)) for column in coords.T]
        x, y = np.argsort(counts, kind="stable")[::-1][[0, -1 if len(counts) < 2 else 1]].tolist()
        axes.set(xlabel=f"observation {x}", ylabel=f"observation {y}", facecolor="0.8")
        return axes.scatter(coords[:, x], coords[:, y], c=values, s=24, **colors)
    axes.set(xticks=[], yticks=[], facecolor="0.25")
    low, high = coords.min(0) - 1, coords.max(0) + 1
    picture = np.full((high - low + 1)[::-1], np.nan)  # NaN at walls, and around
    picture[tuple((coords - low).T[::-1])] = values
    extent = (low[0] - 0.5, high[0] + 0.5, high[1] + 0.5, low[1] - 0.5)
    return axes.imshow(picture, interpolation="nearest", extent=extent, **colors)


def draw_vectors(table: np.ndarray, truth: Spectrum, dataset: Dataset) -> Figure:
    """Draws true above learned vectors with the cosine of each component."""
    d = min(table.shape[1], truth.eigenvectors.shape[1])
    columns = min(d, COLUMNS)
    blocks = -(-d // columns)
    figure = Figure(figsize=(max(1.7 * columns, 7), 3.9 * blocks + 0.6), layout="constrained")
    grid = figure.subplots(2 * blocks, columns, squeeze=False, sharex=True, sharey=True)
    true, learned = true_table(truth, d), aligned(table, truth)
    cosines = strict_cosine(table, truth)
    for i in range(d):
        limit = np.abs(true[:, i]).max()
        titles = (
            f"true: λ{i} = {max(truth.eigenvalues[i], 0):.4f}",
            f"learned: cos {cosines[i]:.4f}",
        )
        for row, (vector, title) in enumerate(zip((true, learned), titles, strict=True)):
            axes = grid[2 * (i // columns) + row, i % columns]
            _draw_states(axes, vector[:, i], dataset, cmap="RdBu", vmin=-limit, vmax=limit)
            axes.set_title(title, fontsize=8, loc="center")
            axes.label_outer()
    for axes in grid.flat:
        axes.set_visible(axes.has_data())
    caption(
        figure,
        "Blue: positive, red: negative, white: 0; each pair on one scale. λ: eigenvalue. Signs and "
        "groups of equal eigenvalues are aligned.",
    )
    return figure


def draw_functions(
    table: Float[np.ndarray, "places d"],
    places: Float[np.ndarray, "places axes"],
    scores: Mapping[str, float],
) -> Figure:
    """Draws each learned function over the two observed axes, or the two principal ones of more."""
    d = table.shape[1]
    columns = min(d, COLUMNS)
    rows = -(-d // columns)
    figure = Figure(figsize=(max(2.2 * columns, 7), 2.2 * rows + 0.8), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    points, name = _principal(places[:FUNCTION_POINTS])
    for i, axes in zip(range(d), grid.flat, strict=False):
        values = table[:FUNCTION_POINTS, i]
        limit = np.quantile(np.abs(values), 0.98)  # rare observations have the largest
        axes.scatter(*points, c=values, s=4, cmap="RdBu", vmin=-limit, vmax=limit)
        axes.set_title(f"{i}: λ = {scores[f'held_out_eigenvalue/{i}']:.4f}", fontsize=8)
        axes.set(xlabel=f"{name} 0", ylabel=f"{name} 1", facecolor="0.8")
        axes.label_outer()
    for axes in grid.flat:
        axes.set_visible(axes.has_data())
    caption(
        figure,
        "Blue: positive, red: negative, white: 0; signs are arbitrary. λ: eigenvalue, as Rayleigh "
        "quotient of held-out pairs.",
    )
    return figure


def _principal(places: Float[np.ndarray, "places axes"]) -> tuple[np.ndarray, str]:
    """Returns two coordinates of each place and their name: the observation itself, or of more
    than two numbers the principal components, in units of deviations.
    """
    if places.shape[1] <= 2:
        return np.resize(places.T, (2, len(places))), "observation"
    centred = places - places.mean(0)
    deviation = centred.std(0)
    scaled = centred / np.where(deviation > 0, deviation, 1)
    directions = np.linalg.eigh(scaled.T @ scaled)[1][:, ::-1]
    return (scaled @ directions[:, :2]).T, "principal component"


# Over training.


def draw_kept(config: AlloConfig, history: History, scores: Mapping[str, float]) -> Figure:
    """Draws what held-out pairs tell while learning, beside what has learned nothing."""
    named = {name: text for name, text in KEPT.items() if name in scores}
    levels = [Level(text, scores[name], color) for name, (text, color) in named.items()]
    worthless = HELD_OUT_LOWER | {"untrained_consistency": "two untrained networks"}
    levels += [Level(worthless[name], scores[name], GREY) for name in worthless if name in scores]
    lines = _lines(config, history, named)
    label = "share of what does not change"
    figure = learning_curve(lines, levels, 4, STEPS, label, ("While learning", "In the end"))
    caption(
        figure,
        f"In {config.env.name}: mean of 1 − λ over the learned functions without the constant, and "
        "mean cosine of the angles between what two seeds learn.",
        describe_seeds(config.seeds),
    )
    return figure


def draw_cosine(config: AlloConfig, history: History, scores: Mapping[str, float]) -> Figure:
    """Draws the mean and the lowest cosine beside those of the truth and of no learning."""
    lines = _lines(config, history, COSINES)
    levels = [Level("learned", scores["cosine_mean"], RED)]
    for name, text in REFERENCE_NAMES.items():
        color = BLUE if name.startswith("ceiling") else GREY
        levels += [Level(text, scores[name], color)] if name in scores else []
    label = "cosine with the true vectors of the data"
    figure = learning_curve(lines, levels, 4, STEPS, label, ("While learning", "In the end"))
    low, _ = figure.axes[0].get_ylim()
    figure.axes[0].set_ylim(min(low, -0.02), 1.02)
    caption(
        figure,
        f"In {config.env.name}: 1 is the truth. Components of nearly equal eigenvalues are "
        f"compared as one space, of at most {scores['group_largest']:.0f} vectors.",
        describe_seeds(config.seeds),
    )
    return figure


def _lines(
    config: AlloConfig, history: History, named: Mapping[str, tuple[str, str]]
) -> list[Line]:
    return [
        Line(curve(history, name, config.seeds), color, text)
        for name, (text, color) in named.items()
    ]


def draw_components(
    config: AlloConfig, truth: Spectrum, history: History, scores: Mapping[str, float]
) -> Figure:
    """Draws how far each vector, and each Rayleigh quotient, is from the truth: a row of colours
    for each component, as a hue for each could not be told apart.
    """
    figure = Figure(figsize=(12, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    true = truth.eigenvalues[: config.network.d]
    cosines = _by_component(config, history, "cosine")
    quotients = _by_component(config, history, "eigenvalue")
    _draw_distances(left, cosines._replace(values=1 - cosines.values), "1 − cosine")
    errors = np.abs(quotients.values[: len(true)] - true[:, None])
    _draw_distances(right, quotients._replace(values=errors), "error of the eigenvalue")
    rows = range(0, len(true), -(-len(true) // NUMBERED))
    left.set_yticks(rows, [f"{i}: {max(true[i], 0):.3f}" for i in rows])
    left.set(ylabel="component: its true eigenvalue", title="Vectors")
    error = scores["eigenvalue_error_rayleigh"]
    right.set_title(
        f"Eigenvalues, as Rayleigh quotients of the vectors: {error:.1g} off in the end"
    )
    caption(
        figure,
        "Component 0 has the smallest eigenvalue. The dual variables estimate eigenvalues, too, "
        f"{scores['eigenvalue_error_dual']:.1g} off: they lack what the barrier carries.",
        "Means over seeds." if config.seeds > 1 else "",
    )
    return figure


def _by_component(config: AlloConfig, history: History, metric: str) -> Curve:
    """Returns a metric of each component, means over seeds, in place of learners."""
    names = [f"{metric}/{i}" for i in range(config.network.d)]
    curves = [curve(history, name, config.seeds) for name in names]
    return Curve(curves[0].steps, np.stack([each.values.mean(0) for each in curves]))


def _draw_distances(axes: Axes, distances: Curve, label: str) -> None:
    d = len(distances.values)
    norm = LogNorm(1e-5, 1, clip=True)
    edges = np.append(0, distances.steps), np.arange(d + 1) - 0.5
    mesh = axes.pcolormesh(*edges, distances.values, cmap="viridis_r", norm=norm)
    axes.set(xlabel=STEPS, ylim=(d - 0.5, -0.5))
    format_thousands(axes)
    axes.figure.colorbar(mesh, ax=axes, label=label, extend="min")


def draw_losses(config: AlloConfig, history: History) -> Figure:
    """Draws the terms of the Lagrangian, the violation of the constraints, and the gradient."""
    lines = partial(_lines, config, history)
    panels = [
        Panel("Terms of the loss", "value", lines(TERMS)),
        Panel("Violation of the constraints", "0: orthonormal", lines(VIOLATIONS), scale="log"),
        Panel("Gradient", "norm", lines({"grad_norm": ("", BLACK)}), limits=(0, None)),
    ]
    figure = update_panels(panels, STEPS)
    caption(
        figure,
        "E = tril(FᵀRF − I) of a batch: 0 if the components F are orthonormal under the visits R.",
        describe_seeds(config.seeds),
    )
    return figure
