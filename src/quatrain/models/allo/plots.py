"""state, dataset, history -> figures: is each vector right, since when, and what limits it?"""

from collections.abc import Mapping

import matplotlib
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quatrain.envs.grid.layouts import MOVES
from quatrain.models.allo.collect import Dataset
from quatrain.models.allo.config import AlloConfig
from quatrain.models.allo.spectra import fit
from quatrain.models.allo.spectra.spectrum import Spectrum
from quatrain.models.allo.spectra.truth import true_spectrum, true_table
from quatrain.models.allo.state import State, tables
from quatrain.plots import curve, draw_seeds
from quatrain.progress import History

# Scores of `baseline_comparison`, from bottom to top.
COMPARED = (
    "floor_constant",
    "floor_random",
    "floor_untrained",
    "cosine_min",
    "random_paper",
    "cosine_index",
    "cosine_paper",
    "ceiling_paper",
    "held_out_cosine",
    "cosine_mean",
    "ceiling_truth",
)
PREFIX_COLORS = {"floor": "0.6", "random": "0.6", "ceiling": "0.3", "held": "0.3"}


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
        "vectors": draw_vectors(table, truth, dataset),
        "cosine": draw_cosine(config, history),
        "eigenvalues": draw_eigenvalues(config, truth, history),
        "losses": draw_losses(config, history),
        "orthogonality": draw_orthogonality(table, truth),
        "visits": draw_visits(truth, dataset),
        "baseline_comparison": draw_baseline_comparison(config, scores),
    }


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
    columns = min(d, 11)
    blocks = -(-d // columns)
    figure = Figure(figsize=(1.5 * columns, 3.5 * blocks))
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
        upper.set_title(f"λ{i} = {max(truth.eigenvalues[i], 0):.4g}", fontsize=8)
        lower.set_xlabel(f"cos {cosines[i]:.4f}", fontsize=8)
    for block in range(blocks):
        grid[2 * block, 0].set_ylabel("true")
        grid[2 * block + 1, 0].set_ylabel("learned")
    figure.suptitle(
        "Eigenvectors of the buffer's Laplacian, and what was learned (signs and groups aligned)"
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


def _two_panels() -> tuple[Figure, np.ndarray]:
    figure = Figure(figsize=(12, 4.5))
    panels = figure.subplots(1, 2)
    for axes in panels:
        axes.grid(alpha=0.3)
    return figure, panels


def draw_cosine(config: AlloConfig, history: History) -> Figure:
    """Draws the cosine of each component with its true space, and its distance from 1."""
    figure, (left, right) = _two_panels()
    d = config.network.d
    colors = [
        *map(
            matplotlib.colormaps["viridis"],
            np.arange(d) / d,
        ),
        "crimson",
    ]
    for label, color in zip([*map(str, range(d)), "mean"], colors, strict=True):
        steps, values = curve(
            history, "cosine_mean" if label == "mean" else f"cosine/{label}", config.seeds
        )
        draw_seeds(left, steps, values, label=label, color=color, linewidth=1.3)
        draw_seeds(right, steps, 1 - values + 1e-7, label=label, color=color, linewidth=1.3)
    left.set(xlabel="gradient steps", ylabel="cosine with the truth", ylim=(0, 1.02))
    right.set(
        xlabel="gradient steps",
        ylabel="1 − cosine",
        yscale="log",
        ylim=(1e-6, 1.2),
    )
    left.legend(title="component", ncols=2, fontsize=8, loc="lower right")
    return figure


def draw_eigenvalues(config: AlloConfig, truth: Spectrum, history: History) -> Figure:
    """Draws how far two estimates of each eigenvalue are from the truth: duals and quotients."""
    figure, panels = _two_panels()
    d = min(config.network.d, len(truth.eigenvalues))
    metrics = {"eigenvalue_dual": "λ from the dual", "eigenvalue": "Rayleigh quotient"}
    for axes, (metric, name) in zip(panels, metrics.items(), strict=True):
        for i, true in enumerate(truth.eigenvalues[:d]):
            color = matplotlib.colormaps["viridis"](i / d)
            steps, values = curve(history, f"{metric}/{i}", config.seeds)
            errors = np.abs(values - true) + 1e-9
            label = f"{i}: {true:.4f}"
            draw_seeds(axes, steps, errors, label=label, color=color, linewidth=1.3)
        axes.set(xlabel="gradient steps", ylabel=f"|{name} − true λ|", yscale="log")
        axes.set_ylim(1e-6, 2)
    panels[0].legend(title="component: true λ", ncols=2, fontsize=8)
    return figure


def draw_losses(config: AlloConfig, history: History) -> Figure:
    """Draws the terms of the Lagrangian, and the violation of the constraints."""
    figure, panels = _two_panels()
    metrics = (
        ("graph", "dual", "barrier_term", "loss"),
        ("total_error", "norm_error", "manifold_distance", "grad_norm"),
    )
    for axes, names in zip(panels, metrics, strict=True):
        for name in names:
            draw_seeds(axes, *curve(history, name, config.seeds), label=name, linewidth=1.3)
        axes.set(xlabel="gradient steps", yscale="symlog" if "loss" in names else "log")
        axes.legend()
    return figure


def draw_orthogonality(table: np.ndarray, truth: Spectrum) -> Figure:
    """Draws |FᵀRF − I|: bright off the diagonal are two components that overlap."""
    figure = Figure(figsize=(5.5, 4.5))
    axes = figure.subplots()
    error = fit.orthogonality(table, truth)
    picture = axes.imshow(
        np.log10(error + 1e-6),
        cmap="magma",
        vmin=-4,
        vmax=0,
    )
    figure.colorbar(picture, ax=axes, label="log10 |FᵀRF − I|")
    axes.set(title=f"largest {error.max():.3g}", xlabel="component", ylabel="component")
    return figure


def draw_visits(truth: Spectrum, dataset: Dataset) -> Figure:
    """Draws how often each state starts a pair (1: uniform), and one-way doors as arrows."""
    figure = Figure(figsize=(6, 5))
    axes = figure.subplots()
    share = np.zeros(len(truth.visited))
    share[truth.visited] = truth.starts * truth.visited.sum()
    axes.set_facecolor("0.25")
    picture = axes.imshow(on_map(share, dataset), cmap="viridis", interpolation="nearest")
    figure.colorbar(picture, ax=axes, label="visits relative to uniform")
    _draw_doors(axes, dataset)
    axes.set(xticks=[], yticks=[], title="Visit distribution of the buffer")
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
        color="crimson",
        angles="xy",
        scale_units="xy",
        scale=1,
    )


def draw_baseline_comparison(config: AlloConfig, scores: Mapping[str, float]) -> Figure:
    names = [name for name in COMPARED if name in scores]
    values = [scores[name] for name in names]
    figure = Figure(figsize=(8, 0.42 * len(names) + 1))
    axes = figure.subplots()
    axes.barh(
        names, values, color=[PREFIX_COLORS.get(name.split("_")[0], "crimson") for name in names]
    )
    for position, value in enumerate(values):
        axes.text(value, position, f" {value:.4f}", va="center", fontsize=9)
    axes.set(
        xlim=(0, 1.12),
        title=f"{config.env.map.name}: lower references (grey), learned (red), upper (dark)",
    )
    return figure
