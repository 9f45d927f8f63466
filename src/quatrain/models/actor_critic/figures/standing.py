"""episodes of several policies -> figures that compare them: size and lane, colony by colony, by slope, the search."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure

from quatrain.envs.colony.plates import EXPONENTIAL, LINEAR, Plates
from quatrain.envs.colony.rules import PARAMETERS
from quatrain.models.actor_critic.collect import Dataset, Search, Starts
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.evaluate import Outcome
from quatrain.models.actor_critic.figures.replays import (
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
BELOW = 0.2
"""Of the range of policies, that is drawn below the worst of them."""
DRAWN = 32
"""Colonies whose course is drawn."""
LAWS = {LINEAR: "linear", EXPONENTIAL: "exponential"}


# Size and lane.


def draw_sizes(config: ActorCriticConfig, dataset: Dataset, replays: Replays) -> Figure:
    """Cells, and how far off the plate's middle, over the steps of an episode, under three policies."""
    starts, env = dataset.held_out.colonies, config.env
    figure = Figure(figsize=(12, 6.5), layout="constrained")
    for (upper, lower), name in zip(
        figure.subplots(2, 3, sharex=True, sharey="row").T, COMPARED, strict=True
    ):
        outcome = replays.of(name)[0]
        highest = 1.1 * env.max_nodes
        _draw_courses(upper, np.minimum(sizes(starts, outcome), highest), outcome, COLORS[name])
        _draw_courses(
            lower, centroids(starts, outcome)[..., 1] - env.height / 2, outcome, COLORS[name]
        )
        error = size_error(config, outcome)
        off = (
            f"{error:.1f} cells off the target"
            if np.isfinite(error)
            else "no episode is long enough to settle"
        )
        title = f"{NAMES[name]}: {off}"
        upper.set_title(title, loc="left", fontsize=10, color=COLORS[name])
        upper.axhline(env.target_nodes, color="0.3", linestyle="--", linewidth=1)
        upper.axhline(env.max_nodes, color="0.3", linestyle=":", linewidth=1)
        upper.set_ylim(0, 1.03 * highest)
        lower.axhline(0, color="0.3", linestyle="--", linewidth=1)
        lower.set(xlabel="step of the episode")
    first_upper, first_lower = figure.axes[0], figure.axes[len(COMPARED)]
    first_upper.set_ylabel(f"cells (target {env.target_nodes}, at most {env.max_nodes})")
    first_lower.set_ylabel("height above the plate's middle, px")
    caption(
        figure,
        f"The same {min(DRAWN, len(starts.n))} held-out colonies under each policy"
        f"{', of the first seed' if config.seeds > 1 else ''}; dots: where an episode ends. "
        "Cells off the target: root mean square over all held-out colonies from the fourth step on.",
    )
    return figure


def _draw_courses(
    axes: Axes, courses: Float[np.ndarray, "time colony"], outcome: Outcome, color: str
) -> None:
    """A line for each of the first colonies, and a dot at its end."""
    few = min(DRAWN, courses.shape[1])
    axes.plot(courses[:, :few], color=color, linewidth=0.8, alpha=0.6)
    ends = outcome.lengths[:few]
    axes.plot(ends, courses[ends, np.arange(few)], "o", color=color, markersize=2.5)
    axes.grid(alpha=0.25)


# Colony by colony.


def draw_paired(config: ActorCriticConfig, dataset: Dataset, replays: Replays) -> Figure:
    """The policy's return with each held-out colony against what two others earn with it; by cells at the start."""
    own, n = mean_returns(replays.learned), dataset.held_out.colonies.n
    figure = Figure(figsize=(11, 5), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, name in zip(panels, ("constant", "feedback"), strict=True):
        other = mean_returns(replays.of(name))
        dots = axes.scatter(other, own, c=n, cmap="cividis", s=12, alpha=0.8, linewidths=0)
        axes.axline((other.mean(), other.mean()), slope=1, color="0.3", linewidth=1, linestyle="--")
        better, by = (own > other).mean(), signed(float((own - other).mean()))
        title = f"{by} on the {NAMES[name]}; better with {better:.0%} of {len(n)} colonies"
        axes.set_title(title, loc="left", fontsize=10)
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


class Means(NamedTuple):
    """Of plates: slope, offset, and the mean return of the colonies on each."""

    m: Float[np.ndarray, " plate"]
    b: Float[np.ndarray, " plate"]
    returns: Float[np.ndarray, " plate"]


def draw_slopes(
    config: ActorCriticConfig, dataset: Dataset, inside: Replays, outside: Replays
) -> Figure:
    """Return by the slope and by the offset of the plate, in the range of training slopes and outside it."""
    held_out, train = dataset.held_out, dataset.train.plates
    groups = [Played(held_out.plates, held_out.colonies, inside)]
    groups += (
        [Played(held_out.outside, held_out.colonies_outside, outside)]
        if config.collect.n_outside
        else []
    )
    kinds = [
        kind
        for kind in LAWS
        if any(kind in group.plates.kind[group.starts.substrate] for group in groups)
    ]
    figure = Figure(figsize=(max(6 * len(kinds), 8), 7.5), layout="constrained")
    panels = figure.subplots(2, len(kinds), squeeze=False, sharey=True)
    for (upper, lower), kind in zip(panels.T, kinds, strict=True):
        means = [
            _draw_plates(upper, lower, group, kind, filled=place == 0)
            for place, group in enumerate(groups)
        ]
        slopes = train.m[train.kind == kind]
        if len(slopes):
            upper.axvspan(slopes.min(), slopes.max(), color="0.5", alpha=0.12, linewidth=0)
        title = f"{LAWS[kind].capitalize()} plates: learned {', with other slopes '.join(means)}"
        upper.set_title(title, loc="left", fontsize=10)
        upper.set(xlabel="slope of the plate, m", xscale="log")
        lower.set(xlabel="stiffness at its left side, b")
    for axes in panels[:, 0]:
        axes.set_ylabel("return, mean over a plate's colonies")
    over = f", mean over {config.seeds} seeds" if config.seeds > 1 else ""
    caption(
        figure,
        f"A dot is a plate. Red: learned{over}; blue: controller; black: best constant action. "
        "Grey: slopes of training plates; rings: plates outside that range.",
    )
    return figure


def by_plate(group: Played, returns: Float[np.ndarray, " colony"], kind: int) -> Means:
    """Of the plates of a kind on which there is a colony."""
    plates, plate = group.plates, group.starts.substrate
    count, total = (
        np.bincount(plate, weights, minlength=len(plates.m)) for weights in (None, returns)
    )
    chosen = (plates.kind == kind) & (count > 0)
    return Means(plates.m[chosen], plates.b[chosen], total[chosen] / count[chosen])


def _draw_plates(upper: Axes, lower: Axes, group: Played, kind: int, filled: bool) -> str:
    """A dot for each plate, under each policy; the mean of the learned one over plates, in words."""
    fill: Literal["full", "none"] = "full" if filled else "none"
    found = {name: by_plate(group, mean_returns(group.replays.of(name)), kind) for name in COMPARED}
    for name in reversed(COMPARED):
        m, b, returns = found[name]
        for axes, x in ((upper, m), (lower, b)):
            axes.plot(
                x, returns, "o", color=COLORS[name], markersize=4.5, alpha=0.75, fillstyle=fill
            )
            axes.grid(alpha=0.25)
    returns = found["learned"].returns
    return number(float(returns.mean())) if len(returns) else "none"


# The search.


def draw_constant_search(
    config: ActorCriticConfig, dataset: Dataset, scores: Mapping[str, float]
) -> Figure:
    """Mean return of each constant action that was tried, by the first of its numbers that is free."""
    search, free = dataset.train.search, config.env.action.active_params
    metrics = {
        "constant": "constant_return",
        "feedback": "feedback_return",
        "learned": "return_mean",
    }
    levels = {name: scores[metric] for name, metric in metrics.items()}
    highest, lowest = (
        max(*levels.values(), float(search.returns.max())),
        min(*levels.values(), scores["random_return"]),
    )
    bottom = lowest - BELOW * (highest - lowest)
    figure = Figure(figsize=(10, 5.4), layout="constrained")
    axes = figure.subplots()
    dots = _draw_search(axes, search, bottom, free[0], "gamma" if "gamma" in free[1:] else free[-1])
    for name, level in levels.items():
        axes.axhline(level, color=COLORS[name], linestyle="--", linewidth=1.2)
    axes.set_ylim(bottom=bottom)
    best = dataset.held_out.floors.constant_action
    chosen = ", ".join(f"{SYMBOLS[name]} {best[PARAMETERS.index(name)]:.3g}" for name in free)
    title = f"Best of {len(search.returns)} constant actions: {chosen}; held out {number(levels['constant'])}"
    axes.set_title(title, loc="left", fontsize=10)
    figure.colorbar(dots, ax=axes, pad=0.02)
    label_ends(
        axes,
        [
            EndLabel(level, f"{NAMES[name]} {number(level)}", COLORS[name])
            for name, level in levels.items()
        ],
    )
    caption(
        figure,
        f"Dots: on training plates, with few colonies each; {(search.returns < bottom).mean():.0%} earn less than the "
        f"lower edge, where they are.\nRings: the {len(search.finalists)} best, compared with more colonies, for the "
        "best of many are also lucky. Dashed: with held-out colonies.",
    )
    return figure


def _draw_search(
    axes: Axes, search: Search, bottom: float, name: str, shade: str
) -> PathCollection:
    """Dots by one number of the actions, coloured by another; none below the bottom."""
    x, color = (PARAMETERS.index(one) for one in (name, shade))
    actions, finalists = search.actions, search.finalists
    returns = np.maximum(search.returns, bottom)
    dots = axes.scatter(
        actions[:, x], returns, c=actions[:, color], cmap="cividis", s=14, clip_on=False
    )
    axes.scatter(
        finalists[:, x],
        search.final_returns,
        s=60,
        facecolors="none",
        edgecolors=BLACK,
        linewidths=1.2,
    )
    axes.set(
        xlabel=f"{SYMBOLS[name]}, {UNITS[name]} (colour: {SYMBOLS[shade]}, {UNITS[shade]})",
        ylabel="mean return",
    )
    axes.grid(alpha=0.25)
    return dots
