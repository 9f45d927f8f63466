"""episodes of several policies -> a figure that compares them by the slope of the plate"""

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quatrain.envs.colony.plates import EXPONENTIAL, LINEAR
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.figures.replays import LOOKS, Replays
from quatrain.models.actor_critic.figures.training import format_number
from quatrain.models.actor_critic.worlds.colony_data import Dataset
from quatrain.plots import caption

# Drawn in this order: the learned policy in front of the others.
COMPARED = ("constant", "feedback", "learned")
KIND_NAMES = {LINEAR: "linear", EXPONENTIAL: "exponential"}


def draw_slopes(
    config: ActorCriticConfig, dataset: Dataset, inside: Replays, outside: Replays
) -> Figure:
    """Draws return by slope of the plate, inside and outside the training range."""
    groups = [inside, outside] if config.collect.n_outside else [inside]
    drawn = [group.plates.kind[group.initial.substrate] for group in groups]
    kinds = [kind for kind in KIND_NAMES if kind in np.concatenate(drawn)]
    figure = Figure(figsize=(max(6 * len(kinds), 8), 4.8), layout="constrained")
    panels = figure.subplots(1, len(kinds), squeeze=False, sharey=True)[0]
    for axes, kind in zip(panels, kinds, strict=True):
        means = [_draw_plates(axes, group, kind, group is inside) for group in groups]
        slopes = dataset.train.plates.m[dataset.train.plates.kind == kind]
        if len(slopes):
            axes.axvspan(slopes.min(), slopes.max(), color="0.5", alpha=0.12, linewidth=0)
        means_text = ", with other slopes ".join(means)
        axes.set_title(f"{KIND_NAMES[kind].capitalize()} plates: learned {means_text}")
        axes.set(xlabel="slope of the plate, m", xscale="log")
        axes.grid(alpha=0.25)
    panels[0].set_ylabel("return, mean over a plate's colonies")
    over_seeds = f", mean over {config.seeds} seeds" if config.seeds > 1 else ""
    caption(
        figure,
        f"A dot is a plate. Red: learned{over_seeds}; blue: controller; black: best constant "
        "action. Grey: slopes of training plates; rings: plates outside that range.",
    )
    return figure


def by_plate(
    replays: Replays, returns: Float[np.ndarray, " colony"], kind: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns slope and mean return of the plates of a kind that have colonies."""
    slopes = replays.plates.m
    plate = replays.initial.substrate
    count = np.bincount(plate, minlength=len(slopes))
    shown = (replays.plates.kind == kind) & (count > 0)
    total = np.bincount(plate, returns, minlength=len(slopes))
    return slopes[shown], total[shown] / count[shown]


def _draw_plates(axes: Axes, replays: Replays, kind: int, filled: bool) -> str:
    """Draws a dot per plate and policy; returns the learned policy's formatted mean."""
    for name in COMPARED:
        slopes, means = by_plate(replays, replays.returns(name), kind)
        (dots,) = axes.plot(slopes, means, "o", color=LOOKS[name].color, markersize=4.5, alpha=0.75)
        dots.set_fillstyle("full" if filled else "none")
    return format_number(float(means.mean())) if len(means) else "none"
