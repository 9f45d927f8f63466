"""episodes of several policies -> figures that compare them by step, colony, and slope."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure

from quatrain.envs.colony.plates import EXPONENTIAL, LINEAR, Plates
from quatrain.envs.colony.rules import PARAMETERS
from quatrain.models.actor_critic.collect import Dataset, InitialColonies, Search
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.evaluate import Outcome, size_rmse
from quatrain.models.actor_critic.figures.replays import (
    COLORS,
    NAMES,
    SYMBOLS,
    UNITS,
    Replays,
    centroids,
    format_number,
    format_signed,
    mean_returns,
    sizes,
)
from quatrain.plots import BLACK, EndLabel, caption, label_ends

COMPARED = ("learned", "feedback", "constant")
BELOW = 0.2
"""Space below the worst policy, as a share of the range of policies."""
DRAWN_COLONIES = 32
KIND_NAMES = {LINEAR: "linear", EXPONENTIAL: "exponential"}


# Size and height.


def draw_sizes(config: ActorCriticConfig, dataset: Dataset, replays: Replays) -> Figure:
    """Draws number of cells and height over the steps of an episode, under three policies."""
    initial = dataset.held_out.colonies
    env = config.env
    highest = 1.1 * env.max_nodes
    figure = Figure(figsize=(12, 6.5), layout="constrained")
    panels = figure.subplots(2, 3, sharex=True, sharey="row")
    for (upper, lower), name in zip(panels.T, COMPARED, strict=True):
        outcome = replays.outcomes(name)[0]
        cells = np.minimum(sizes(initial, outcome), highest)
        height = centroids(initial, outcome)[..., 1] - env.height / 2
        _draw_courses(upper, cells, outcome, COLORS[name])
        _draw_courses(lower, height, outcome, COLORS[name])
        error = size_rmse(config, outcome)
        off = "no episode is long enough to settle"
        if np.isfinite(error):
            off = f"{error:.1f} cells off the target"
        upper.set_title(f"{NAMES[name]}: {off}", loc="left", fontsize=10, color=COLORS[name])
        upper.axhline(env.target_nodes, color="0.3", linestyle="--", linewidth=1)
        upper.axhline(env.max_nodes, color="0.3", linestyle=":", linewidth=1)
        upper.set_ylim(0, 1.03 * highest)
        lower.axhline(0, color="0.3", linestyle="--", linewidth=1)
        lower.set(xlabel="step of the episode")
    panels[0, 0].set_ylabel(f"cells (target {env.target_nodes}, at most {env.max_nodes})")
    panels[1, 0].set_ylabel("height above the plate's middle, px")
    colonies = f"The same {min(DRAWN_COLONIES, len(initial.n))} held-out colonies"
    of_seed = ", of the first seed" if config.seeds > 1 else ""
    caption(
        figure,
        f"{colonies} under each policy{of_seed}; dots: where an episode ends. Cells off the "
        "target: root mean square over all held-out colonies from the fourth step on.",
    )
    return figure


def _draw_courses(
    axes: Axes,
    courses: Float[np.ndarray, "time colony"],
    outcome: Outcome,
    color: str,
) -> None:
    """Draws a line for each of the first colonies, and a dot at its end."""
    drawn = courses[:, :DRAWN_COLONIES]
    axes.plot(drawn, color=color, linewidth=0.8, alpha=0.6)
    ends = outcome.lengths[:DRAWN_COLONIES]
    axes.plot(ends, drawn[ends, np.arange(len(ends))], "o", color=color, markersize=2.5)
    axes.grid(alpha=0.25)


# By colony.


def draw_paired(config: ActorCriticConfig, dataset: Dataset, replays: Replays) -> Figure:
    """Draws the learned policy's return with each colony against two reference policies."""
    learned = mean_returns(replays.learned)
    n = dataset.held_out.colonies.n
    figure = Figure(figsize=(11, 5), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, name in zip(panels, ("constant", "feedback"), strict=True):
        other = mean_returns(replays.outcomes(name))
        dots = axes.scatter(other, learned, c=n, cmap="cividis", s=12, alpha=0.8, linewidths=0)
        mean = other.mean()
        axes.axline((mean, mean), slope=1, color="0.3", linewidth=1, linestyle="--")
        difference = format_signed(float((learned - other).mean()))
        better = f"better with {(learned > other).mean():.0%} of {len(n)} colonies"
        axes.set_title(f"{difference} on the {NAMES[name]}; {better}", loc="left", fontsize=10)
        axes.set(xlabel=f"return of the {NAMES[name]} with the same colony")
        axes.grid(alpha=0.25)
    panels[0].set_ylabel("return of the learned policy with a colony")
    figure.colorbar(dots, ax=panels, label="cells at the start", pad=0.01)
    over_seeds = f", means over {config.seeds} seeds" if config.seeds > 1 else ""
    caption(
        figure,
        f"A dot is a held-out colony{over_seeds}. Dashed: equal; above it, learning pays.",
    )
    return figure


# By slope.


class PlateReplays(NamedTuple):
    """Holds colonies on plates, and their episodes."""

    plates: Plates
    initial: InitialColonies
    replays: Replays


class PlateMeans(NamedTuple):
    """Holds slope, offset, and the mean return of the colonies on each plate."""

    m: Float[np.ndarray, " plate"]
    b: Float[np.ndarray, " plate"]
    returns: Float[np.ndarray, " plate"]


def draw_slopes(
    config: ActorCriticConfig,
    dataset: Dataset,
    inside: Replays,
    outside: Replays,
) -> Figure:
    """Draws return by slope and by offset of the plate, inside and outside the training range."""
    held_out = dataset.held_out
    groups = [PlateReplays(held_out.plates, held_out.colonies, inside)]
    if config.collect.n_outside:
        groups.append(PlateReplays(held_out.outside, held_out.colonies_outside, outside))
    drawn = {kind for group in groups for kind in group.plates.kind[group.initial.substrate]}
    kinds = [kind for kind in KIND_NAMES if kind in drawn]
    figure = Figure(figsize=(max(6 * len(kinds), 8), 7.5), layout="constrained")
    panels = figure.subplots(2, len(kinds), squeeze=False, sharey=True)
    for (upper, lower), kind in zip(panels.T, kinds, strict=True):
        means = [_draw_plates(upper, lower, group, kind, group is groups[0]) for group in groups]
        slopes = dataset.train.plates.m[dataset.train.plates.kind == kind]
        if len(slopes):
            upper.axvspan(slopes.min(), slopes.max(), color="0.5", alpha=0.12, linewidth=0)
        name = KIND_NAMES[kind].capitalize()
        title = f"{name} plates: learned {', with other slopes '.join(means)}"
        upper.set_title(title, loc="left", fontsize=10)
        upper.set(xlabel="slope of the plate, m", xscale="log")
        lower.set(xlabel="stiffness at its left side, b")
    for axes in panels[:, 0]:
        axes.set_ylabel("return, mean over a plate's colonies")
    over_seeds = f", mean over {config.seeds} seeds" if config.seeds > 1 else ""
    caption(
        figure,
        f"A dot is a plate. Red: learned{over_seeds}; blue: controller; black: best constant "
        "action. Grey: slopes of training plates; rings: plates outside that range.",
    )
    return figure


def by_plate(
    group: PlateReplays,
    returns: Float[np.ndarray, " colony"],
    kind: int,
) -> PlateMeans:
    """Returns the means of the plates of a kind that have colonies."""
    plates = group.plates
    plate = group.initial.substrate
    count = np.bincount(plate, minlength=len(plates.m))
    total = np.bincount(plate, returns, minlength=len(plates.m))
    shown = (plates.kind == kind) & (count > 0)
    return PlateMeans(plates.m[shown], plates.b[shown], total[shown] / count[shown])


def _draw_plates(upper: Axes, lower: Axes, group: PlateReplays, kind: int, filled: bool) -> str:
    """Draws a dot per plate and policy; returns the learned policy's formatted mean."""
    fill: Literal["full", "none"] = "full" if filled else "none"
    means = {
        name: by_plate(group, mean_returns(group.replays.outcomes(name)), kind) for name in COMPARED
    }
    for name in reversed(COMPARED):
        for axes, x in ((upper, means[name].m), (lower, means[name].b)):
            axes.plot(
                x,
                means[name].returns,
                "o",
                color=COLORS[name],
                markersize=4.5,
                alpha=0.75,
                fillstyle=fill,
            )
            axes.grid(alpha=0.25)
    returns = means["learned"].returns
    return format_number(float(returns.mean())) if len(returns) else "none"


# Search for a constant action.


def draw_constant_search(
    config: ActorCriticConfig,
    dataset: Dataset,
    scores: Mapping[str, float],
) -> Figure:
    """Draws the mean return of each constant action, by the first active parameter."""
    search = dataset.train.search
    names = config.env.action.active_params
    levels = {
        "constant": scores["constant_return"],
        "feedback": scores["feedback_return"],
        "learned": scores["return_mean"],
    }
    highest = max(*levels.values(), float(search.returns.max()))
    lowest = min(*levels.values(), scores["random_return"])
    bottom = lowest - BELOW * (highest - lowest)
    figure = Figure(figsize=(10, 5.4), layout="constrained")
    axes = figure.subplots()
    color_by = "gamma" if "gamma" in names[1:] else names[-1]
    dots = _draw_search(axes, search, bottom, names[0], color_by)
    for name, level in levels.items():
        axes.axhline(level, color=COLORS[name], linestyle="--", linewidth=1.2)
    axes.set_ylim(bottom=bottom)
    best = dataset.held_out.references.constant_action
    action = ", ".join(f"{SYMBOLS[name]} {best[PARAMETERS.index(name)]:.3g}" for name in names)
    held_out = f"held out {format_number(levels['constant'])}"
    title = f"Best of {len(search.returns)} constant actions: {action}; {held_out}"
    axes.set_title(title, loc="left", fontsize=10)
    figure.colorbar(dots, ax=axes, pad=0.02)
    labels = [
        EndLabel(level, f"{NAMES[name]} {format_number(level)}", COLORS[name])
        for name, level in levels.items()
    ]
    label_ends(axes, labels)
    below = (search.returns < bottom).mean()
    caption(
        figure,
        f"Dots: on training plates, with few colonies each; {below:.0%} earn less than the "
        f"lower edge, where they are.\nRings: the {len(search.finalists)} best, compared with "
        "more colonies, for the best of many are also lucky. Dashed: with held-out colonies.",
    )
    return figure


def _draw_search(
    axes: Axes,
    search: Search,
    bottom: float,
    name: str,
    color_by: str,
) -> PathCollection:
    """Draws actions by one parameter, coloured by another, and rings around the finalists."""
    column = PARAMETERS.index(name)
    dots = axes.scatter(
        search.actions[:, column],
        np.maximum(search.returns, bottom),
        c=search.actions[:, PARAMETERS.index(color_by)],
        cmap="cividis",
        s=14,
        clip_on=False,
    )
    axes.scatter(
        search.finalists[:, column],
        search.final_returns,
        s=60,
        facecolors="none",
        edgecolors=BLACK,
        linewidths=1.2,
    )
    colors = f"(colour: {SYMBOLS[color_by]}, {UNITS[color_by]})"
    axes.set(xlabel=f"{SYMBOLS[name]}, {UNITS[name]} {colors}", ylabel="mean return")
    axes.grid(alpha=0.25)
    return dots
