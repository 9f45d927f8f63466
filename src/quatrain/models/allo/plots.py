"""learner, dataset, history -> figures: is each vector right, when did it become right, and what limits it?"""

from collections.abc import Mapping

import matplotlib
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quatrain.envs.grid.layouts import MOVES
from quatrain.models.allo import spectrum
from quatrain.models.allo.collect import Dataset
from quatrain.models.allo.config import AlloConfig
from quatrain.models.allo.evaluate import true_table
from quatrain.models.allo.train import State, tables
from quatrain.plots import curve
from quatrain.progress import History


def plots(
    config: AlloConfig,
    state: State,
    dataset: Dataset,
    history: History,
    scores: Mapping[str, float],
) -> dict[str, Figure]:
    """Figures of one trained allo (with several learners: maps of the first, curves of all)."""
    operator = spectrum.operator(dataset.train, len(dataset.grid.coords), config.train.discounts)
    truth = spectrum.spectrum(operator, config.network.d, config.evaluate.degeneracy_tol)
    table = np.asarray(tables(config, state, dataset)[0], np.float64)
    return {
        "vectors": draw_vectors(table, truth, dataset),
        "cosine": draw_cosine(config, history),
        "eigenvalues": draw_eigenvalues(config, truth, history),
        "losses": draw_losses(config, history),
        "orthogonality": draw_orthogonality(table, truth),
        "visits": draw_visits(truth, dataset),
        "ladder": draw_ladder(config, scores),
    }


def aligned(
    table: Float[np.ndarray, "states d"], truth: spectrum.Spectrum
) -> Float[np.ndarray, "states d"]:
    """The learned vectors, normalised and turned to the truth: each by its sign, groups by a Procrustes rotation."""
    d = table.shape[1]
    found = np.zeros(table.shape)
    found[truth.visited] = spectrum.normalised(table, truth)
    overlaps = spectrum.overlaps(table, truth)[:d]
    for group in np.unique(truth.group[:d]):
        members = np.flatnonzero(truth.group[:d] == group)
        left, _, right = np.linalg.svd(overlaps[np.ix_(members, members)].T)
        found[:, members] = found[:, members] @ (left @ right)
    return found


def on_map(
    values: Float[np.ndarray, " states"], dataset: Dataset
) -> Float[np.ndarray, "height width"]:
    """Values of states at their cells; NaN where there is a wall."""
    picture = np.full(dataset.grid.walls.shape, np.nan)
    x, y = np.asarray(dataset.grid.coords).T
    picture[y, x] = values
    return picture


def _show(axes: Axes, values: np.ndarray, dataset: Dataset, limit: float) -> None:
    axes.set_facecolor("0.25")
    axes.imshow(
        on_map(values, dataset), cmap="RdBu", vmin=-limit, vmax=limit, interpolation="nearest"
    )
    axes.set(xticks=[], yticks=[])


def draw_vectors(table: np.ndarray, truth: spectrum.Spectrum, dataset: Dataset) -> Figure:
    """True above learned, component by component, with the cosine of each."""
    d = min(table.shape[1], truth.eigenvectors.shape[1])
    columns = min(d, 11)
    blocks = -(-d // columns)
    figure = Figure(figsize=(1.5 * columns, 3.5 * blocks))
    grid = figure.subplots(2 * blocks, columns, squeeze=False)
    true, found, cosines = (
        true_table(truth, d),
        aligned(table, truth),
        spectrum.cosine(table, truth),
    )
    for axes in grid.flat:
        axes.axis("off")
    for i in range(d):
        row, column = 2 * (i // columns), i % columns
        limit = np.abs(true[:, i]).max()
        for axes, values in ((grid[row, column], true), (grid[row + 1, column], found)):
            axes.axis("on")
            _show(axes, values[:, i], dataset, limit)
        grid[row, column].set_title(f"λ{i} = {max(truth.eigenvalues[i], 0):.4g}", fontsize=8)
        grid[row + 1, column].set_xlabel(f"cos {cosines[i]:.4f}", fontsize=8)
    for block in range(blocks):
        grid[2 * block, 0].set_ylabel("true")
        grid[2 * block + 1, 0].set_ylabel("learned")
    figure.suptitle(
        "Eigenvectors of the buffer's Laplacian, and what was learned (signs and groups aligned)"
    )
    return figure


def _band(
    axes: Axes, steps: np.ndarray, values: np.ndarray, label: str, color: object = None
) -> None:
    (line,) = axes.plot(steps, values.mean(0), label=label, color=color, linewidth=1.3)
    if len(values) > 1:
        axes.fill_between(
            steps, values.min(0), values.max(0), color=line.get_color(), alpha=0.2, linewidth=0
        )


def draw_cosine(config: AlloConfig, history: History) -> Figure:
    """Cosine of each component with its true space over training, and how far it is from 1; bands span the learners."""
    figure = Figure(figsize=(12, 4.5))
    left, right = figure.subplots(1, 2)
    d = config.network.d
    shown = [(f"cosine/{i}", f"{i}", matplotlib.colormaps["viridis"](i / d)) for i in range(d)]
    for name, label, color in [*shown, ("cosine_mean", "mean", "crimson")]:
        steps, values = curve(history, name, config.seeds)
        _band(left, steps, values, label, color)
        _band(right, steps, 1 - values + 1e-7, label, color)
    left.set(xlabel="gradient steps", ylabel="cosine with the truth", ylim=(0, 1.02))
    right.set(xlabel="gradient steps", ylabel="1 − cosine", yscale="log", ylim=(1e-6, 1.2))
    left.legend(title="component", ncols=2, fontsize=8, loc="lower right")
    for axes in (left, right):
        axes.grid(alpha=0.3)
    return figure


def draw_eigenvalues(config: AlloConfig, truth: spectrum.Spectrum, history: History) -> Figure:
    """Eigenvalues read off the duals, and how far they are from the truth."""
    figure = Figure(figsize=(12, 4.5))
    left, right = figure.subplots(1, 2)
    d = min(config.network.d, len(truth.eigenvalues))
    for i in range(d):
        color = matplotlib.colormaps["viridis"](i / d)
        steps, values = curve(history, f"eigenvalue_dual/{i}", config.seeds)
        _band(left, steps, values, f"{i}", color)
        left.axhline(truth.eigenvalues[i], color=color, linestyle=":", linewidth=1)
        _band(right, steps, np.abs(values - truth.eigenvalues[i]) + 1e-9, f"{i}", color)
    left.set(xlabel="gradient steps", ylabel="λ from the duals (dotted: true)")
    right.set(
        xlabel="gradient steps",
        ylabel="|λ from the duals − true λ|",
        yscale="log",
        ylim=(1e-5, None),
    )
    right.legend(title="component", ncols=2, fontsize=8)
    for axes in (left, right):
        axes.grid(alpha=0.3)
    return figure


def draw_losses(config: AlloConfig, history: History) -> Figure:
    """The terms of the Lagrangian, and how far the constraints are from being met."""
    figure = Figure(figsize=(12, 4.5))
    panels = figure.subplots(1, 2)
    shown = (
        ("graph", "dual", "barrier_term", "loss"),
        ("total_error", "norm_error", "manifold_distance", "grad_norm"),
    )
    for axes, names in zip(panels, shown, strict=True):
        for name in names:
            _band(axes, *curve(history, name, config.seeds), name)
        axes.set(xlabel="gradient steps", yscale="symlog" if "loss" in names else "log")
        axes.grid(alpha=0.3)
        axes.legend()
    return figure


def draw_orthogonality(table: np.ndarray, truth: spectrum.Spectrum) -> Figure:
    """|FᵀRF − I|: bright off the diagonal means two components that are not apart."""
    figure = Figure(figsize=(5.5, 4.5))
    axes = figure.subplots()
    error = spectrum.orthogonality(table, truth)
    picture = axes.imshow(np.log10(error + 1e-6), cmap="magma", vmin=-4, vmax=0)
    figure.colorbar(picture, ax=axes, label="log10 |FᵀRF − I|")
    axes.set(title=f"largest {error.max():.3g}", xlabel="component", ylabel="component")
    return figure


def draw_visits(truth: spectrum.Spectrum, dataset: Dataset) -> Figure:
    """How often each state starts a pair (1 = as often as uniform), and one-way doors as arrows."""
    figure = Figure(figsize=(6, 5))
    axes = figure.subplots()
    share = np.zeros(len(truth.visited))
    share[truth.visited] = truth.starts * truth.visited.sum()
    axes.set_facecolor("0.25")
    picture = axes.imshow(on_map(share, dataset), cmap="viridis", interpolation="nearest")
    figure.colorbar(picture, ax=axes, label="visits relative to uniform")
    coords, following = np.asarray(dataset.grid.coords), np.asarray(dataset.grid.next_state)
    states, actions = np.nonzero(following != np.arange(len(following))[:, None])
    back = following[following[states, actions], (actions + 2) % 4]
    one_way = back != states
    x, y = coords[states[one_way]].T
    dx, dy = np.array(MOVES)[actions[one_way]].T
    axes.quiver(x, y, dx, dy, color="crimson", angles="xy", scale_units="xy", scale=1)
    axes.set(xticks=[], yticks=[], title="Visit distribution of the buffer")
    return figure


def draw_ladder(config: AlloConfig, scores: Mapping[str, float]) -> Figure:
    """Floors, ours and ceilings on one axis."""
    rungs = [
        name
        for name in (
            "floor_constant",
            "floor_random",
            "floor_untrained",
            "cosine_min",
            "cosine_index",
            "cosine_paper",
            "ceiling_paper",
            "held_out_cosine",
            "cosine_mean",
            "ceiling_truth",
        )
        if name in scores
    ]
    values = [scores[name] for name in rungs]
    colors = [
        "0.6" if n.startswith("floor") else "0.3" if n.startswith(("ceil", "held")) else "crimson"
        for n in rungs
    ]
    figure = Figure(figsize=(8, 0.42 * len(rungs) + 1))
    axes = figure.subplots()
    axes.barh(rungs, values, color=colors)
    for row, value in enumerate(values):
        axes.text(value, row, f" {value:.4f}", va="center", fontsize=9)
    axes.set(
        xlim=(0, 1.12), title=f"{config.env.map.name}: floors (grey), ours (red), ceilings (dark)"
    )
    return figure
