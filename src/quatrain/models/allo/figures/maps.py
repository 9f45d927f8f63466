"""table, truth, dataset -> maps of states: vectors, and visits of the buffer"""

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quatrain.envs.grid.layouts import MOVES
from quatrain.models.allo.collect import Dataset
from quatrain.models.allo.learning.spectra import fit
from quatrain.models.allo.learning.spectra.spectrum import Spectrum
from quatrain.models.allo.learning.spectra.truth import true_table
from quatrain.plots import RED, caption

# Most vectors side by side.
COLUMNS = 6


def aligned(
    table: Float[np.ndarray, "states d"],
    truth: Spectrum,
) -> Float[np.ndarray, "states d"]:
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


def on_map(
    values: Float[np.ndarray, " states"],
    dataset: Dataset,
) -> Float[np.ndarray, "height width"]:
    """Returns the values of states at their cells, NaN at walls."""
    picture = np.full(dataset.grid.walls.shape, np.nan)
    x, y = np.asarray(dataset.grid.coords).T
    picture[y, x] = values
    return picture


def draw_vectors(table: np.ndarray, truth: Spectrum, dataset: Dataset) -> Figure:
    """Draws true above learned vectors with the cosine of each component."""
    d = min(table.shape[1], truth.eigenvectors.shape[1])
    columns = min(d, COLUMNS)
    blocks = -(-d // columns)
    figure = Figure(figsize=(1.7 * columns, 3.9 * blocks + 0.6), layout="constrained")
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
        upper.set_title(f"λ{i} = {max(truth.eigenvalues[i], 0):.4f}", fontsize=8, loc="center")
        lower.set_xlabel(f"cos {cosines[i]:.4f}", fontsize=8)
    for block in range(blocks):
        grid[2 * block, 0].set_ylabel("true")
        grid[2 * block + 1, 0].set_ylabel("learned")
    figure.suptitle("Eigenvectors of the map's graph Laplacian, and what was learned", fontsize=12)
    caption(
        figure,
        "Blue: positive, red: negative, white: 0; each pair on one scale. λ: eigenvalue. Signs and "
        "groups of equal eigenvalues are aligned.",
    )
    return figure


def _show_vector(
    axes: Axes,
    values: np.ndarray,
    dataset: Dataset,
    limit: float,
) -> None:
    axes.axis("on")
    axes.set_facecolor("0.25")
    axes.imshow(
        on_map(values, dataset),
        cmap="RdBu",
        vmin=-limit,
        vmax=limit,
        interpolation="nearest",
    )
    axes.set(xticks=[], yticks=[])


def draw_visits(truth: Spectrum, dataset: Dataset) -> Figure:
    """Draws how often each state starts a pair (1: uniform), and one-way doors as arrows."""
    figure = Figure(figsize=(6, 5), layout="constrained")
    axes = figure.subplots()
    share = np.zeros(len(truth.visited))
    share[truth.visited] = truth.starts * truth.visited.sum()
    axes.set_facecolor("0.25")
    picture = axes.imshow(on_map(share, dataset), cmap="viridis", interpolation="nearest")
    figure.colorbar(picture, ax=axes, label="visits, relative to uniform")
    _draw_doors(axes, dataset)
    axes.set(xticks=[], yticks=[], title="The map, and where its data are from")
    caption(figure, "Dark: walls. Colour: how often a state starts a pair; 1 if all were alike.")
    return figure


def _draw_doors(axes: Axes, dataset: Dataset) -> None:
    coords = np.asarray(dataset.grid.coords)
    next_state = np.asarray(dataset.grid.next_state)
    states, actions = np.nonzero(next_state != np.arange(len(next_state))[:, None])
    one_way = next_state[next_state[states, actions], (actions + 2) % 4] != states
    x, y = coords[states[one_way]].T
    dx, dy = np.array(MOVES)[actions[one_way]].T
    axes.quiver(
        x,
        y,
        dx,
        dy,
        color=RED,
        angles="xy",
        scale_units="xy",
        scale=1,
    )
