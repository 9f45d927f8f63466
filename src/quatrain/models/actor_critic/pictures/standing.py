"""episodes of several policies -> figures that compare them: size and lane, colony by colony, by slope, the search."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quatrain.envs.colony.plates import EXPONENTIAL, LINEAR, Plates
from quatrain.envs.colony.rules import PARAMETERS
from quatrain.models.actor_critic.collect import Dataset, Starts
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.evaluate import Outcome
from quatrain.models.actor_critic.pictures.replays import (
    COLORS,
    NAMES,
    SYMBOLS,
    UNITS,
    Replays,
    centroids,
    mean_returns,
    number,
    signed,
    size_error,
    sizes,
)
from quatrain.plots import BLACK, EndLabel, caption, label_ends

COMPARED = ("learned", "feedback", "constant")
DRAWN = 32
"""Colonies whose course is drawn."""
LAWS = {LINEAR: "linear", EXPONENTIAL: "exponential"}


# Size and lane.


def draw_sizes(config: ActorCriticConfig, dataset: Dataset, replays: Replays) -> Figure:
    """Cells, and how far off the plate's middle, over the steps of an episode, under three policies."""
    starts, env = dataset.held_out.colonies, config.env
    figure = Figure(figsize=(12, 6.5), layout="constrained")
    for (upper, lower), name in zip(figure.subplots(2, 3, sharex=True, sharey="row").T, COMPARED, strict=True):
        outcome = replays.of(name)[0]
        _draw_courses(upper, sizes(starts, outcome), outcome, COLORS[name])
        _draw_courses(lower, centroids(starts, outcome)[..., 1] - env.height / 2, outcome, COLORS[name])
        title = f"{NAMES[name]}: {size_error(config, outcome):.1f} cells off the target"
        upper.set_title(title, loc="left", fontsize=10, color=COLORS[name])
        upper.axhline(env.target_nodes, color="0.3", linestyle="--", linewidth=1)
        upper.set_ylim(0, 1.1 * env.max_nodes)
        lower.axhline(0, color="0.3", linestyle="--", linewidth=1)
        lower.set(xlabel="step of the episode")
    first_upper, first_lower = figure.axes[0], figure.axes[len(COMPARED)]
    first_upper.set_ylabel(f"cells (target {env.target_nodes}, overflow above {env.max_nodes})")
    first_lower.set_ylabel("height above the plate's middle, px")
    caption(
        figure,
        f"The same {min(DRAWN, len(starts.n))} held-out colonies under each policy"
        f"{', of the first seed' if config.seeds > 1 else ''}; dots: where an episode ends. "
        "Cells off the target: root mean square over all held-out colonies from the fourth step on.",
    )
    return figure


def _draw_courses(axes: Axes, courses: Float[np.ndarray, "time colony"], outcome: Outcome, color: str) -> None:
    """A line for each of the first colonies, and a dot at its end."""
    few = min(DRAWN, courses.shape[1])
    axes.plot(courses[:, :few], color=color, linewidth=0.8, alpha=0.6)
    ends = outcome.lengths[:few]
    axes.plot(ends, courses[ends, np.arange(few)], "o", color=color, markersize=2.5)
    axes.grid(alpha=0.25)


# Colony by colony.


def draw_standing(config: ActorCriticConfig, dataset: Dataset, replays: Replays) -> Figure:
    """The policy's return with each held-out colony against what two others earn with it; by cells at the start."""
    own, n = mean_returns(replays.learned), dataset.held_out.colonies.n
    figure = Figure(figsize=(11, 5), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, name in zip(panels, ("constant", "feedback"), strict=True):
        other = mean_returns(replays.of(name))
        dots = axes.scatter(other, own, c=n, cmap="cividis", s=12, alpha=0.8, linewidths=0)
        both = [min(own.min(), other.min()), max(own.max(), other.max())]
        axes.plot(both, both, color="0.3", linewidth=1, linestyle="--")
        better, by = (own > other).mean(), signed(float((own - other).mean()))
        axes.set_title(f"Better than the {NAMES[name]} with {better:.0%}, {by} on average", loc="left", fontsize=10)
        axes.set(xlabel=f"return of the {NAMES[name]} with the same colony")
        axes.grid(alpha=0.25)
    panels[0].set_ylabel("return of the learned policy with a colony")
    figure.colorbar(dots, ax=panels, label="cells at the start", pad=0.01)
    over = f", means over {config.seeds} seeds" if config.seeds > 1 else ""
    caption(figure, f"A dot is a held-out colony{over}. Dashed: equal; above it, learning pays.")
    return figure


# By slope.


class Played(NamedTuple):
    """Colonies on plates, and their episodes."""

    plates: Plates
    starts: Starts
    replays: Replays


def draw_slopes(config: ActorCriticConfig, dataset: Dataset, inside: Replays, outside: Replays) -> Figure:
    """Return by the slope of the plate, in the range of training plates and outside it, under three policies."""
    held_out, train = dataset.held_out, dataset.train.plates
    groups = [Played(held_out.plates, held_out.colonies, inside)]
    groups += [Played(held_out.outside, held_out.colonies_outside, outside)] if config.collect.n_outside else []
    kinds = [kind for kind in LAWS if any(kind in group.plates.kind[group.starts.substrate] for group in groups)]
    figure = Figure(figsize=(max(6 * len(kinds), 8), 5), layout="constrained")
    for axes, kind in zip(figure.subplots(1, len(kinds), squeeze=False, sharey=True)[0], kinds, strict=True):
        means = []
        for group in groups:
            of_kind = {name: by_plate(group, mean_returns(group.replays.of(name)), kind) for name in COMPARED}
            for name in reversed(COMPARED):
                axes.plot(*of_kind[name], "o", color=COLORS[name], markersize=4.5, alpha=0.75, markeredgewidth=0)
            means.append(number(float(of_kind["learned"].returns.mean())) if len(of_kind["learned"].m) else "none")
        _shade(axes, train.m[train.kind == kind])
        title = " in the range of training plates, ".join(means) + (" outside it" if len(means) > 1 else "")
        axes.set_title(f"{LAWS[kind].capitalize()} plates: learned {title}", loc="left", fontsize=10)
        axes.set(xlabel="slope of the plate, m", xscale="log")
        axes.grid(alpha=0.25)
    figure.axes[0].set_ylabel("return, mean over the colonies on a plate")
    over = f", mean over {config.seeds} seeds" if config.seeds > 1 else ""
    caption(
        figure,
        f"A dot is a plate. Red: learned{over}; blue: controller; black: best constant action. "
        "Grey: slopes of training plates.",
    )
    return figure


class Slopes(NamedTuple):
    """Of plates: slope, and the mean return of the colonies on each."""

    m: Float[np.ndarray, " plate"]
    returns: Float[np.ndarray, " plate"]


def by_plate(group: Played, returns: Float[np.ndarray, " colony"], kind: int) -> Slopes:
    """Of the plates of a kind on which there is a colony."""
    plate = group.starts.substrate
    count = np.bincount(plate, minlength=len(group.plates.m))
    total = np.bincount(plate, returns, minlength=len(group.plates.m))
    chosen = (group.plates.kind == kind) & (count > 0)
    return Slopes(group.plates.m[chosen], total[chosen] / count[chosen])


def _shade(axes: Axes, slopes: Float[np.ndarray, " plate"]) -> None:
    if len(slopes):
        axes.axvspan(slopes.min(), slopes.max(), color="0.5", alpha=0.12, linewidth=0)


# The search.


def draw_constant_search(config: ActorCriticConfig, dataset: Dataset, scores: Mapping[str, float]) -> Figure:
    """Mean return of every constant action that was tried, by its deletion ratio (or what is free in its place)."""
    search, floors, free = dataset.train.search, dataset.held_out.floors, config.env.action.active_params
    name = free[0]
    shade = "gamma" if "gamma" in free[1:] else free[-1]
    x, tint = (PARAMETERS.index(one) for one in (name, shade))
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    dots = axes.scatter(search.actions[:, x], search.returns, c=search.actions[:, tint], cmap="cividis", s=14)
    axes.scatter(
        search.finalists[:, x], search.final_returns, s=60, facecolors="none", edgecolors=BLACK, linewidths=1.2
    )
    levels = {"constant": scores["constant_return"], "feedback": scores["feedback_return"]}
    ends = []
    for policy, level in (levels | {"learned": scores["return_mean"]}).items():
        axes.axhline(level, color=COLORS[policy], linestyle="--", linewidth=1.2)
        ends.append(EndLabel(level, f"{NAMES[policy]} {number(level)}", COLORS[policy]))
    best = ", ".join(f"{SYMBOLS[one]} {floors.constant_action[PARAMETERS.index(one)]:.3g}" for one in free)
    axes.set_title(f"Best of {len(search.returns)} constant actions: {best}", loc="left", fontsize=10)
    axes.set(xlabel=f"{SYMBOLS[name]}, {UNITS[name]}", ylabel="mean return of a constant action")
    axes.grid(alpha=0.25)
    figure.colorbar(dots, ax=axes, label=f"{SYMBOLS[shade]}, {UNITS[shade]}", pad=0.2)
    label_ends(axes, ends)
    caption(
        figure,
        "Dots: on training plates, each point with few colonies, so the best dots were lucky; rings: the finalists, "
        "compared with more of them.\nDashed: with held-out colonies.",
    )
    return figure
