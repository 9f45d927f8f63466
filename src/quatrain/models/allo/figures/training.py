"""history -> figures over training: cosines, eigenvalues, losses"""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from quatrain.models.allo.config import AlloConfig
from quatrain.models.allo.truth import Spectrum
from quatrain.plots import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    RED,
    SMALL_TITLE,
    Curve,
    EndLabel,
    caption,
    curve,
    describe_seeds,
    draw_seeds,
    format_thousands,
    label_ends,
    mark_decades,
)
from quatrain.progress import History

# Ends of the colour scale of distances; a smaller one is drawn as the least.
LEAST_DISTANCE = 1e-5
GREATEST_DISTANCE = 1.0
# Bright is far from the truth.
DISTANCE_COLORS = "viridis"
# Most components whose number stands beside their row.
NUMBERED = 24
# Recorded term -> its name in words, and its colour.
TERMS = {
    "graph": ("graph: neighbours alike", BLUE),
    "dual": ("dual: λ times the violation", ORANGE),
    "barrier_term": ("barrier: violation squared", GREEN),
    "loss": ("loss: their sum", RED),
}
VIOLATIONS = {
    "total_error": ("Σ|E|, all pairs", RED),
    "norm_error": ("Σ|Eᵢᵢ|, lengths", BLUE),
    "manifold_distance": ("ΣE²", GREEN),
}


def _set_steps(axes: Axes, title: str) -> None:
    axes.set_xlabel("gradient steps")
    axes.set_title(title, **SMALL_TITLE)
    format_thousands(axes)


def draw_cosine(config: AlloConfig, history: History, scores: Mapping[str, float]) -> Figure:
    """Draws the mean and the lowest cosine, and the distance of each component from its truth."""
    figure = Figure(figsize=(12, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    ends = []
    for name, label, color in (("mean", "mean", RED), ("min", "lowest", ORANGE)):
        recorded = curve(history, f"cosine_{name}", config.seeds)
        line = draw_seeds(left, *recorded, color=color, linewidth=2, clip_on=False)
        ends.append(EndLabel(line[-1], f"{label} {scores[f'cosine_{name}']:.4f}", color))
    left.set(ylabel="cosine with the true vectors", ylim=(min(0, left.dataLim.y0), 1))
    left.grid(alpha=0.25)
    _set_steps(left, "Agreement with the truth: 1 is the truth, 0 random numbers")
    label_ends(left, ends)
    cosines = _by_component(config, history, "cosine", range(config.network.d))
    mesh = _draw_distances(right, cosines._replace(values=1 - cosines.values))
    _set_steps(right, "Each component by itself")
    figure.colorbar(mesh, ax=right, label="distance from the truth, 1 − cosine", extend="min")
    caption(
        figure,
        "Component 0 has the smallest eigenvalue. Components of nearly equal eigenvalues are "
        f"compared as one space, of at most {scores['group_largest']:.0f} vectors.",
        describe_seeds(config.seeds),
    )
    return figure


def _by_component(
    config: AlloConfig, history: History, metric: str, components: Sequence[int]
) -> Curve:
    """Returns a metric of each component, means over seeds, in place of learners."""
    curves = [curve(history, f"{metric}/{i}", config.seeds) for i in components]
    return Curve(curves[0].steps, np.stack([each.values.mean(0) for each in curves]))


def _draw_distances(axes: Axes, distances: Curve) -> QuadMesh:
    """Draws a row of colours for each component: a hue for each could not be told apart."""
    d = len(distances.values)
    mesh = axes.pcolormesh(
        np.append(0, distances.steps),
        np.arange(d + 1) - 0.5,
        np.clip(distances.values, LEAST_DISTANCE, GREATEST_DISTANCE),
        cmap=DISTANCE_COLORS,
        norm=LogNorm(LEAST_DISTANCE, GREATEST_DISTANCE),
    )
    rows = range(0, d, -(-d // NUMBERED))
    axes.set(ylabel="component", yticks=rows, ylim=(d - 0.5, -0.5))
    return mesh


def draw_eigenvalues(
    config: AlloConfig, truth: Spectrum, history: History, scores: Mapping[str, float]
) -> Figure:
    """Draws how far two estimates of each eigenvalue are from the truth: duals and quotients."""
    figure = Figure(figsize=(12, 4.8), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    true = truth.eigenvalues[: config.network.d]
    titles = {
        "eigenvalue_dual": f"From the dual: {scores['eigenvalue_error_dual']:.1g} off in the end",
        "eigenvalue": "Rayleigh quotient of the vector: "
        f"{scores['eigenvalue_error_rayleigh']:.1g} off in the end",
    }
    for axes, (metric, title) in zip(panels, titles.items(), strict=True):
        estimates = _by_component(config, history, metric, range(len(true)))
        errors = np.abs(estimates.values - true[:, None])
        mesh = _draw_distances(axes, estimates._replace(values=errors))
        _set_steps(axes, title)
    _name_eigenvalues(panels[0], true)
    panels[1].set_ylabel("")
    figure.colorbar(mesh, ax=panels, label="distance from the true eigenvalue", extend="min")
    caption(
        figure,
        "Two estimates of each eigenvalue λ. Use the Rayleigh quotient: the dual lacks what the "
        "barrier carries.",
        "Means over seeds." if config.seeds > 1 else "",
    )
    return figure


def _name_eigenvalues(axes: Axes, true: Float[np.ndarray, " d"]) -> None:
    rows = range(0, len(true), -(-len(true) // NUMBERED))
    axes.set_yticks(rows, [f"{i}: {max(true[i], 0):.3f}" for i in rows])
    axes.set_ylabel("component: its true eigenvalue")


def draw_losses(config: AlloConfig, history: History) -> Figure:
    """Draws the terms of the Lagrangian, the violation of the constraints, and the gradient."""
    figure = Figure(figsize=(14, 4.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    _draw_named(left, config, history, TERMS)
    left.set_yscale("symlog", linthresh=1)
    left.set_ylabel("value (linear up to ±1)")
    _set_steps(left, "Terms of the loss (augmented Lagrangian)")
    _draw_named(middle, config, history, VIOLATIONS)
    mark_decades(middle)
    middle.set_ylabel("violation, 0 if orthonormal")
    _set_steps(middle, "Violation of the constraints")
    _draw_named(right, config, history, {"grad_norm": ("", BLACK)})
    right.set(ylabel="norm of the gradient", ylim=(0, None))
    _set_steps(right, "Gradient")
    for axes, named in ((left, TERMS), (middle, VIOLATIONS)):
        label_ends(axes, _ends(config, history, named))
    caption(
        figure,
        "E = tril(FᵀRF − I) of a batch: 0 if the components F are orthonormal under the visits R.",
        describe_seeds(config.seeds),
    )
    return figure


Named = Mapping[str, tuple[str, str]]


def _draw_named(axes: Axes, config: AlloConfig, history: History, named: Named) -> None:
    for name, (_, color) in named.items():
        draw_seeds(axes, *curve(history, name, config.seeds), color=color, linewidth=1.5)
    axes.grid(alpha=0.25)


def _ends(config: AlloConfig, history: History, named: Named) -> list[EndLabel]:
    values = {name: curve(history, name, config.seeds).values[:, -1].mean() for name in named}
    return [EndLabel(values[name], text, color) for name, (text, color) in named.items()]
