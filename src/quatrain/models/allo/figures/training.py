"""history -> figures over training: cosines, eigenvalues, losses"""

from collections.abc import Mapping

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from quatrain.models.allo.config import AlloConfig
from quatrain.models.allo.learning.spectra.spectrum import Spectrum
from quatrain.plots import (
    RED,
    SMALL_TITLE,
    caption,
    curve,
    describe_seeds,
    draw_seeds,
    format_thousands,
)
from quatrain.progress import History


def _two_panels(*titles: str) -> tuple[Figure, np.ndarray]:
    figure = Figure(figsize=(12, 4.5), layout="constrained")
    panels = figure.subplots(1, 2)
    for axes, title in zip(panels, titles, strict=True):
        axes.grid(alpha=0.25)
        axes.set_xlabel("gradient steps")
        axes.set_title(title, **SMALL_TITLE)
        format_thousands(axes)
    return figure, panels


def draw_cosine(config: AlloConfig, history: History, scores: Mapping[str, float]) -> Figure:
    """Draws the cosine of each component with its true space, and its distance from 1."""
    mean, lowest = scores["cosine_mean"], scores["cosine_min"]
    figure, (left, right) = _two_panels(
        f"Cosine with the true vectors: mean {mean:.4f}, lowest {lowest:.4f} at the end",
        "Its distance from 1",
    )
    d = config.network.d
    for i in range(d + 1):
        metric, label, color = (
            (f"cosine/{i}", str(i), matplotlib.colormaps["viridis"](i / d))
            if i < d
            else ("cosine_mean", "mean", RED)
        )
        steps, values = curve(history, metric, config.seeds)
        draw_seeds(left, steps, values, label=label, color=color, linewidth=1.3)
        draw_seeds(right, steps, 1 - values + 1e-7, label=label, color=color, linewidth=1.3)
    left.set(ylabel="cosine", ylim=(min(0, left.dataLim.y0), 1.02))
    right.set(ylabel="1 − cosine", yscale="log", ylim=(1e-6, 1.2))
    left.legend(title="component", ncols=2, fontsize=8, loc="lower right")
    caption(
        figure,
        "1: the truth; 0: random numbers. Components of nearly equal eigenvalues are compared as "
        f"one space, of at most {scores['group_largest']:.0f} vectors.",
        describe_seeds(config.seeds),
    )
    return figure


def draw_eigenvalues(
    config: AlloConfig,
    truth: Spectrum,
    history: History,
    scores: Mapping[str, float],
) -> Figure:
    """Draws how far two estimates of each eigenvalue are from the truth: duals and quotients."""
    figure, panels = _two_panels(
        f"λ from the dual: {scores['eigenvalue_error_dual']:.1g} off at the end, on average",
        f"Rayleigh quotient of the vector: {scores['eigenvalue_error_rayleigh']:.1g} off",
    )
    d = min(config.network.d, len(truth.eigenvalues))
    for axes, metric in zip(panels, ("eigenvalue_dual", "eigenvalue"), strict=True):
        for i, true in enumerate(truth.eigenvalues[:d]):
            color = matplotlib.colormaps["viridis"](i / d)
            steps, values = curve(history, f"{metric}/{i}", config.seeds)
            errors = np.abs(values - true) + 1e-9
            label = f"{i}: {max(true, 0):.4f}"
            draw_seeds(axes, steps, errors, label=label, color=color, linewidth=1.3)
        axes.set(ylabel="distance from the true λ", yscale="log", ylim=(1e-6, 2))
    panels[1].legend(title="component: true λ", ncols=2, fontsize=8)
    caption(
        figure,
        "Use the Rayleigh quotient: the dual lacks what the barrier carries.",
        describe_seeds(config.seeds),
    )
    return figure


def draw_losses(config: AlloConfig, history: History) -> Figure:
    """Draws the terms of the Lagrangian, and the violation of the constraints."""
    figure, panels = _two_panels("Terms of the Lagrangian", "Violation of the constraints")
    metrics = (
        ("graph", "dual", "barrier_term", "loss"),
        ("total_error", "norm_error", "manifold_distance", "grad_norm"),
    )
    for axes, names in zip(panels, metrics, strict=True):
        for name in names:
            draw_seeds(axes, *curve(history, name, config.seeds), label=name, linewidth=1.3)
        axes.set_yscale("symlog" if "loss" in names else "log")
        axes.legend()
    caption(
        figure,
        "E = tril(FᵀRF − I): total_error is the sum of |E|, norm_error that of its diagonal, "
        "manifold_distance the sum of E². grad_norm: norm of the gradient.",
        describe_seeds(config.seeds),
    )
    return figure
