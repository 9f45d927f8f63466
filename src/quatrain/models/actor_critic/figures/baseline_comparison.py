"""episodes of several policies -> figures that compare them by step, colony, and slope."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure

from quatrain.envs.colony.plates import EXPONENTIAL, LINEAR
from quatrain.envs.colony.rules import PARAMETERS
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.figures.replays import (
    COLORS,
    NAMES,
    SYMBOLS,
    WORDS,
    Replays,
    centroids,
    draw_levels,
    mean_returns,
    sizes,
)
from quatrain.models.actor_critic.figures.training import format_number, format_signed
from quatrain.models.actor_critic.scores.colony import Outcome, size_rmse
from quatrain.models.actor_critic.worlds.colony_data import Dataset, Search
from quatrain.plots import BLACK, SMALL_TITLE, caption, label_ends

COMPARED = ("learned", "feedback", "constant")
BELOW = 0.2  # space below the worst policy, as a share of the range of policies
DRAWN_COLONIES = 32
NEVER_SETTLED = "no episode is long enough to settle"
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
        height = centroids(initial, outcome)[..., 1] - env.height / 2
        _draw_courses(upper, np.minimum(sizes(initial, outcome), highest), outcome, COLORS[name])
        _draw_courses(lower, height, outcome, COLORS[name])
        upper.set_title(
            f"{NAMES[name]}: {_size_error(config, outcome)}",
            **SMALL_TITLE,
            color=COLORS[name],
        )
        upper.axhline(env.target_nodes, color="0.3", linestyle="--", linewidth=1)
        upper.axhline(env.max_nodes, color="0.3", linestyle=":", linewidth=1)
        upper.set_ylim(0, highest)
        lower.axhline(0, color="0.3", linestyle="--", linewidth=1)
        lower.set(xlabel="step of the episode")
    panels[0, 0].set_ylabel(f"cells (target {env.target_nodes}, at most {env.max_nodes})")
    panels[1, 0].set_ylabel("height above the plate's middle, px")
    of_seed = ", of the first seed" if config.seeds > 1 else ""
    caption(
        figure,
        f"The same {min(DRAWN_COLONIES, len(initial.n))} held-out colonies under each policy"
        f"{of_seed}; dots: where an episode ends. Dashed: the target size, and the plate's middle; "
        "dotted: the most cells. Cells off the "
        "target: root mean square over all held-out colonies from the fourth step on.",
    )
    return figure


def _size_error(config: ActorCriticConfig, outcome: Outcome) -> str:
    error = size_rmse(config, outcome)
    return f"{error:.1f} cells off the target" if np.isfinite(error) else NEVER_SETTLED


def _draw_courses(
    axes: Axes,
    courses: Float[np.ndarray, "time colony"],
    outcome: Outcome,
    color: str,
) -> None:
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
        axes.axline([other.mean()] * 2, slope=1, color="0.3", linewidth=1, linestyle="--")
        axes.set_title(
            f"{format_signed(float((learned - other).mean()))} on the {NAMES[name]}; "
            f"better with {(learned > other).mean():.0%} of {len(n)} colonies",
            **SMALL_TITLE,
        )
        axes.set(xlabel=f"return of the {NAMES[name]} with the same colony")
        axes.grid(alpha=0.25)
    panels[0].set_ylabel("return of the learned policy with a colony")
    figure.colorbar(dots, ax=panels, label="cells at the start", pad=0.01)
    over_seeds = f", means over {config.seeds} seeds" if config.seeds > 1 else ""
    caption(
        figure, f"A dot is a held-out colony{over_seeds}. Dashed: equal; above it, learning pays."
    )
    return figure


# By slope.


def draw_slopes(
    config: ActorCriticConfig,
    dataset: Dataset,
    inside: Replays,
    outside: Replays,
) -> Figure:
    """Draws return by slope and by offset of the plate, inside and outside the training range."""
    groups = [inside, outside] if config.collect.n_outside else [inside]
    drawn = [group.plates.kind[group.initial.substrate] for group in groups]
    kinds = [kind for kind in KIND_NAMES if kind in np.concatenate(drawn)]
    figure = Figure(figsize=(max(6 * len(kinds), 8), 7.5), layout="constrained")
    panels = figure.subplots(2, len(kinds), squeeze=False, sharey=True)
    for (upper, lower), kind in zip(panels.T, kinds, strict=True):
        means = [_draw_plates(upper, lower, group, kind, group is inside) for group in groups]
        slopes = dataset.train.plates.m[dataset.train.plates.kind == kind]
        if len(slopes):
            upper.axvspan(slopes.min(), slopes.max(), color="0.5", alpha=0.12, linewidth=0)
        upper.set_title(
            f"{KIND_NAMES[kind].capitalize()} plates: learned {', with other slopes '.join(means)}",
            **SMALL_TITLE,
        )
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
    replays: Replays,
    returns: Float[np.ndarray, " colony"],
    kind: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns slope, offset and mean return of the plates of a kind that have colonies."""
    plates = replays.plates
    plate = replays.initial.substrate
    count = np.bincount(plate, minlength=len(plates.m))
    shown = (plates.kind == kind) & (count > 0)
    total = np.bincount(plate, returns, minlength=len(plates.m))
    return plates.m[shown], plates.b[shown], total[shown] / count[shown]


def _draw_plates(upper: Axes, lower: Axes, replays: Replays, kind: int, filled: bool) -> str:
    """Draws a dot per plate and policy; returns the learned policy's formatted mean."""
    for name in reversed(COMPARED):
        m, b, means = by_plate(replays, mean_returns(replays.outcomes(name)), kind)
        for axes, x in ((upper, m), (lower, b)):
            axes.plot(
                x,
                means,
                "o",
                color=COLORS[name],
                markersize=4.5,
                alpha=0.75,
                fillstyle="full" if filled else "none",
            )
            axes.grid(alpha=0.25)
    # The learned policy is drawn last, in front of the others.
    return format_number(float(means.mean())) if len(means) else "none"


# Search for a constant action.


def draw_constant_search(
    config: ActorCriticConfig,
    dataset: Dataset,
    scores: Mapping[str, float],
) -> Figure:
    """Draws the mean return of each constant action, by the first active parameter."""
    search = dataset.train.search
    levels = {
        "constant": scores["constant_return"],
        "feedback": scores["feedback_return"],
        "learned": scores["return_mean"],
    }
    lowest = min(*levels.values(), scores["random_return"])
    bottom = lowest - BELOW * (max(*levels.values(), float(search.returns.max())) - lowest)
    figure = Figure(figsize=(10, 5.4), layout="constrained")
    axes = figure.subplots()
    dots = _draw_search(axes, search, bottom, config.env.action.active_params)
    ends = draw_levels(axes, levels)
    axes.set_ylim(bottom=bottom)
    axes.set_title(
        f"Best of {len(search.returns)} constant actions: {_best_action(config, dataset)}; "
        f"held out {format_number(levels['constant'])}",
        **SMALL_TITLE,
    )
    color_by = _color_by(config.env.action.active_params)
    figure.colorbar(
        dots, ax=axes, pad=0.02, label=f"colour: {SYMBOLS[color_by]}, {WORDS[color_by]}"
    )
    label_ends(axes, ends)
    caption(
        figure,
        "Dots: on training plates, with few colonies each; "
        f"{(search.returns < bottom).mean():.0%} earn less than the lower edge, where they are. "
        f"Rings: the {len(search.finalists)} best, compared with more colonies, "
        "for the best of many are also lucky. Dashed: with held-out colonies.",
    )
    return figure


def _best_action(config: ActorCriticConfig, dataset: Dataset) -> str:
    best = dict(zip(PARAMETERS, dataset.held_out.references.constant_action, strict=True))
    return ", ".join(
        f"{SYMBOLS[name]} {best[name]:.3g}" for name in config.env.action.active_params
    )


def _color_by(names: Sequence[str]) -> str:
    """Returns the active parameter that colours show; the first one is on the axis."""
    return "gamma" if "gamma" in names[1:] else names[-1]


def _draw_search(
    axes: Axes,
    search: Search,
    bottom: float,
    names: Sequence[str],
) -> PathCollection:
    name = names[0]
    column = PARAMETERS.index(name)
    dots = axes.scatter(
        search.actions[:, column],
        np.maximum(search.returns, bottom),
        c=search.actions[:, PARAMETERS.index(_color_by(names))],
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
    axes.set(
        xlabel=f"{SYMBOLS[name]}, {WORDS[name]}",
        ylabel="return of an episode, mean over colonies",
    )
    axes.grid(alpha=0.25)
    return dots
