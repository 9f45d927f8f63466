"""table, truth, dataset -> maps of states: vectors, and visits of the buffer"""

from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quatrain.models.allo import truth as fit
from quatrain.models.allo.collect import Dataset
from quatrain.models.allo.truth import Spectrum, true_table
from quatrain.plots import RED, caption

# Most vectors side by side.
COLUMNS = 6


def aligned(table: Float[np.ndarray, "states d"], truth: Spectrum) -> Float[np.ndarray, "states d"]:
    """Returns the normalised learned vectors, rotated to the truth.

    Single vectors are aligned by sign, groups by a Procrustes rotation.
    """
    d = table.shape[1]
    vectors = np.zeros(table.shape)
    vectors[truth.visited] = fit.normalised(table, truth)
    overlaps = fit.overlaps(table, truth)[:d]
    groups = truth.group[:d]
    for group in np.unique(groups):
        members = np.flatnonzero(groups == group)
        left, _, right = np.linalg.svd(overlaps[np.ix_(members, members)].T)
        vectors[:, members] = vectors[:, members] @ (left @ right)
    return vectors


def draw_values(axes: Axes, values: np.ndarray, dataset: Dataset, **colors: Any) -> Any:
    """Draws the values of states at their coordinates: on a map of cells if those are whole (x, y),
    else as points over the two axes with the most different values.
    """
    axes.set_facecolor("0.25")
    coords = np.asarray(dataset.coords)
    if not np.issubdtype(coords.dtype, np.integer):
        counts = [len(np.unique(column)) for column in coords.T]
        x, y = np.argsort(counts, kind="stable")[::-1][[0, -1 if len(counts) < 2 else 1]].tolist()
        axes.set(xlabel=f"observation {x}", ylabel=f"observation {y}")
        return axes.scatter(coords[:, x], coords[:, y], c=values, s=10, **colors)
    axes.set(xticks=[], yticks=[])
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
    grid = figure.subplots(2 * blocks, columns, squeeze=False)
    for axes in grid.flat:
        axes.axis("off")
    true = true_table(truth, d)
    learned = aligned(table, truth)
    cosines = fit.strict_cosine(table, truth)
    for i in range(d):
        upper = grid[2 * (i // columns), i % columns]
        lower = grid[2 * (i // columns) + 1, i % columns]
        limit = np.abs(true[:, i]).max()
        _show_vector(upper, true[:, i], dataset, limit)
        _show_vector(lower, learned[:, i], dataset, limit)
        value = max(truth.eigenvalues[i], 0)
        upper.set_title(f"true: λ{i} = {value:.4f}", fontsize=8, loc="center")
        lower.set_title(f"learned: cos {cosines[i]:.4f}", fontsize=8, loc="center")
    figure.suptitle("Eigenvectors of the walks' graph Laplacian, and what was learned", fontsize=12)
    caption(
        figure,
        "Blue: positive, red: negative, white: 0; each pair on one scale. λ: eigenvalue. Signs and "
        "groups of equal eigenvalues are aligned.",
    )
    return figure


def _show_vector(axes: Axes, values: np.ndarray, dataset: Dataset, limit: float) -> None:
    axes.axis("on")
    draw_values(axes, values, dataset, cmap="RdBu", vmin=-limit, vmax=limit)


def draw_visits(truth: Spectrum, dataset: Dataset) -> Figure:
    """Draws how often each state starts a pair (1: uniform), and one-way doors as arrows."""
    figure = Figure(figsize=(6, 5), layout="constrained")
    axes = figure.subplots()
    share = np.zeros(len(truth.visited))
    share[truth.visited] = truth.starts * truth.visited.sum()
    picture = draw_values(axes, share, dataset, cmap="viridis")
    figure.colorbar(picture, ax=axes, label="visits, relative to uniform")
    _draw_doors(axes, dataset)
    axes.set_title("The states, and where the data are from")
    caption(figure, "Colour: how often a state starts a pair; 1 if all were alike. Dark: no state.")
    return figure


def _draw_doors(axes: Axes, dataset: Dataset) -> None:
    if dataset.next_state is None:
        return
    coords, next_state = np.asarray(dataset.coords), np.asarray(dataset.next_state)
    states, actions = np.nonzero(next_state != np.arange(len(next_state))[:, None])
    targets = next_state[states, actions]
    one_way = ~(next_state[targets] == states[:, None]).any(1)
    x, y = coords[states[one_way]].T
    dx, dy = (coords[targets] - coords[states])[one_way].T
    axes.quiver(x, y, dx, dy, color=RED, angles="xy", scale_units="xy", scale=1)
