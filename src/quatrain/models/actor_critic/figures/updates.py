"""history -> a figure of updates: how far they move the policy, how good its values are"""

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quatrain.models.actor_critic.config import Config
from quatrain.models.actor_critic.figures.training import transitions
from quatrain.plots import (
    GREY,
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

LOGARITHMIC = ("loss_value", "grad_norm")


class Panel(NamedTuple):
    """Holds what a panel says of a metric, and the limits of what the metric can be."""

    title: str
    unit: str
    limits: tuple[float | None, float | None] = (None, None)


def draw_updates(config: Config, history: History) -> Figure:
    """Draws how far each iteration moves the policy, and how good its values are."""
    figure = Figure(figsize=(13, 6.2), layout="constrained")
    panels = figure.subplots(2, 4, sharex=True)
    limits = {"approx_kl": config.train.target_kl, "grad_norm": config.train.max_grad_norm}
    described = describe_updates(config, history)
    for axes, (name, panel) in zip(panels.flat, described.items(), strict=True):
        _draw_metric(axes, curve(history, name, config.seeds), history, name)
        axes.set_title(panel.title, **SMALL_TITLE)
        axes.set(ylabel=panel.unit, ylim=panel.limits)
        if name in limits:
            axes.axhline(limits[name], color=GREY, linestyle="--", linewidth=1.2)
            label_ends(axes, [EndLabel(limits[name], f"{limits[name]:g}", GREY)])
        format_thousands(axes)
    for axes in panels[1]:
        axes.set_xlabel("transitions of all environments")
    deviation = curve(history, "ratio_first_max_dev", config.seeds).values.max()
    caption(
        figure,
        "Means over an iteration's minibatches, of KL the last one. Dashed: where an iteration "
        "stops (KL), to what gradients are cut (norm).",
        describe_seeds(config.seeds),
        "Before an iteration learns, ratios of probabilities differ from 1 by at most "
        f"{deviation:.1g}.",
    )
    return figure


def _draw_metric(axes: Axes, recorded: Curve, history: History, name: str) -> None:
    values = np.diff(recorded.values, prepend=0) if name == "updates" else recorded.values
    draw_seeds(axes, transitions(history, recorded), values, color=RED, linewidth=1.2)
    axes.grid(alpha=0.25)
    low, high = axes.dataLim.intervaly
    if name in LOGARITHMIC and high > 10 * low > 0:
        mark_decades(axes)


def describe_updates(config: Config, history: History) -> dict[str, Panel]:
    stopped = curve(history, "kl_stop", config.seeds).values.mean()
    most = config.train.epochs * -(-config.train.batch // config.train.minibatch_size)
    lowest = float(curve(history, "explained_variance", config.seeds).values.min())
    return {
        "entropy": Panel("How random actions are", "entropy, nats"),
        "approx_kl": Panel(f"Step of the policy; {stopped:.0%} stopped", "KL, nats", (0.0, None)),
        "clip_fraction": Panel("Ratios that were clipped", "share", (0.0, None)),
        "updates": Panel("Gradient steps", f"per iteration, of {most}", (0.0, 1.05 * most)),
        "explained_variance": Panel(
            "How good values are", "explained variance", (max(lowest, -1.0), 1.0)
        ),
        "loss_value": Panel("Error of values", "value loss"),
        "grad_norm": Panel("Gradients before they are cut", "norm"),
        "learning_rate": Panel("Step size", "learning rate", (0.0, None)),
    }
