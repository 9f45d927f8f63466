"""episodes -> figures of what was learned: the numbers of an action over training, within an episode, and by state."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quatrain.envs.colony.policies import GAIN
from quatrain.envs.colony.rules import PARAMETERS
from quatrain.models.actor_critic.collect import Dataset
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.evaluate import Outcome
from quatrain.models.actor_critic.figures.replays import (
    SYMBOLS,
    UNITS,
    Replays,
    Steps,
    next_size,
    number,
    over_seeds,
    steps_of,
    throw,
)
from quatrain.models.actor_critic.figures.training import count_transitions, transitions
from quatrain.plots import BLACK, BLUE, ORANGE, RED, Curve, caption, curve, mean_with_interval
from quatrain.progress import History

THROW = {"gamma", "alpha", "noise"}
"""What decides how far a child is thrown."""
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
LIVING = 0.1
"""Share of the colonies up to whose end an episode is drawn."""
BINS, FEWEST = 24, 10
"""Of equal width; one with fewer steps is left out."""
DOTS = 1500
NEAR = 2
"""Cells off the target that still count as holding it."""


class Law(NamedTuple):
    """What a policy does against what it sees, with names for the axes; and what the controller would do."""

    title: str
    state: str
    seen: Callable[[Steps], np.ndarray]
    answer: str
    done: Callable[[Steps], np.ndarray]
    controller: Callable[[np.ndarray], np.ndarray]
    scale: Literal["linear", "log"] = "linear"


# Over training and within an episode.


def draw_actions(config: ActorCriticConfig, history: History, replays: Replays) -> Figure:
    """Each number that the policy chooses: how it was drawn while training, and its quantiles within an episode."""
    names = config.env.action.active_params
    figure = Figure(figsize=(max(3.3 * len(names), 8), 6.5), layout="constrained")
    columns = figure.subplots(2, len(names), squeeze=False, sharex="row", sharey="col").T
    for (upper, lower), name in zip(columns, names, strict=True):
        mean, spread = (
            curve(history, f"action_{what}/{name}", config.seeds) for what in ("mean", "std")
        )
        x, middle, wide = transitions(history, mean), mean.values.mean(0), spread.values.mean(0)
        upper.plot(x, middle, color=ORANGE, linewidth=1.8)
        upper.fill_between(x, middle - wide, middle + wide, color=ORANGE, alpha=0.2, linewidth=0)
        title = (
            f"{SYMBOLS[name]}, {UNITS[name]}: {number(float(middle[-1]))} ± {wide[-1]:.2f} at last"
        )
        upper.set_title(title, loc="left", fontsize=10)
        upper.set_xlabel("transitions")
        count_transitions(upper)
        bounds = getattr(config.env.action.bounds, name)
        for axes in (upper, lower):
            axes.hlines(
                bounds, 0, 1, colors="0.7", linewidth=0.8, transform=axes.get_yaxis_transform()
            )
        _draw_within_episode(lower, replays, PARAMETERS.index(name))
    columns[0, 0].set_ylabel("drawn while training")
    columns[0, 1].set_ylabel("held-out colonies, not drawn")
    caption(
        figure,
        "Grey: bounds. Above: mean ± standard deviation over the steps of an iteration. "
        "Below: median, half and 90 % of all colonies;\nblue: median of the controller; dashed: best constant action.",
    )
    return figure


def _draw_within_episode(axes: Axes, replays: Replays, column: int) -> None:
    steps, (lowest, low, middle, high, highest) = within_episode(replays.learned, column)
    axes.fill_between(steps, lowest, highest, color=RED, alpha=0.15, linewidth=0)
    axes.fill_between(steps, low, high, color=RED, alpha=0.25, linewidth=0)
    axes.plot(steps, middle, color=RED, linewidth=1.5)
    steps, quantiles = within_episode([replays.feedback], column)
    axes.plot(steps, quantiles[len(QUANTILES) // 2], color=BLUE, linewidth=1.5)
    axes.axhline(
        float(replays.constant.action[0, 0, column]), color=BLACK, linestyle="--", linewidth=1.2
    )
    axes.set(xlabel="step of the episode")


def within_episode(outcomes: Sequence[Outcome], column: int) -> Curve:
    """Quantiles of a number of the actions at each step, over colonies of all seeds, until few of them live."""
    steps = max(len(outcome.action) for outcome in outcomes)
    values = np.full((steps, len(outcomes), outcomes[0].action.shape[1]), np.nan)
    for place, outcome in enumerate(outcomes):
        values[: len(outcome.action), place] = outcome.action[..., column]
    living = np.isfinite(values).mean((1, 2)) >= LIVING
    return Curve(1 + np.flatnonzero(living), np.nanquantile(values[living], QUANTILES, axis=(1, 2)))


# By state.


def draw_laws(config: ActorCriticConfig, dataset: Dataset, replays: Replays) -> Figure:
    """Deletion ratio against size, direction against height, γ and throw against stiffness; beside the controller's."""
    held_out = dataset.held_out
    *learned, feedback = (
        steps_of(held_out.plates, held_out.colonies, outcome)
        for outcome in (*replays.learned, replays.feedback)
    )
    laws = laws_of(config, learned, feedback)
    rows, columns = -(-len(laws) // 2), min(len(laws), 2)
    figure = Figure(figsize=(max(5.5 * columns, 8), 4 * rows + 0.4), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).flat
    for axes, law in zip(panels, laws, strict=False):
        _draw_law(axes, law, learned)
    for axes in list(panels)[len(laws) :]:
        axes.set_axis_off()
    bands = over_seeds(config) or "Band: without the lowest and the highest tenth."
    caption(
        figure,
        "Dots: some of all steps with held-out colonies, no action drawn. Line: their median.\n"
        f"{bands} Blue, dashed: the controller.",
    )
    return figure


def laws_of(config: ActorCriticConfig, learned: Sequence[Steps], feedback: Steps) -> list[Law]:
    """Those in which something is free to be learned."""
    free, found = set(config.env.action.active_params), []
    if "delete_ratio" in free:
        found.append(_size_law(config, learned))
    if "theta" in free:
        found.append(_lane_law(config, learned))
    if "gamma" in free:
        gamma = float(feedback.column("gamma")[0])
        middle = _median(learned, lambda steps: steps.column("gamma"))
        title = f"γ is {middle:.1f} px at the median, the controller's {gamma:.1f}"
        found.append(_stiffness_law(title, "γ, px", lambda steps: steps.column("gamma"), feedback))
    if THROW & free:
        title = f"A child lands {_median(learned, throw):.1f} px away, the controller's {_median([feedback], throw):.1f}"
        found.append(_stiffness_law(title, "throw in the colony's middle, px", throw, feedback))
    return found


def _size_law(config: ActorCriticConfig, learned: Sequence[Steps]) -> Law:
    """r = 1 − Nc/(2n) makes n' = 2(n − r n) the target."""
    target, bounds = config.env.target_nodes, config.env.action.bounds.delete_ratio
    near = np.concatenate([np.abs(next_size(steps) - target) <= NEAR for steps in learned]).mean()
    return Law(
        title=f"{near:.0%} of all steps lead to within {NEAR} cells of the target",
        state="cells n (dashed: 1 − Nc/(2n))",
        seen=lambda steps: steps.n,
        answer="r, share deleted",
        done=lambda steps: steps.column("delete_ratio"),
        controller=lambda n: np.clip(1 - target / (2 * n), *bounds),
    )


def _lane_law(config: ActorCriticConfig, learned: Sequence[Steps]) -> Law:
    middle, bounds = config.env.height / 2, config.env.action.bounds.theta
    slopes = [_slope(steps.y, steps.column("theta")) for steps in learned]
    return Law(
        title=f"θ changes by {np.mean(slopes):+.4f} rad per pixel, the controller's by {-GAIN:+.4f}",
        state="height of the colony's middle above the plate's, px",
        seen=lambda steps: steps.y - middle,
        answer="θ, rad",
        done=lambda steps: steps.column("theta"),
        controller=lambda height: np.clip(-GAIN * height, *bounds),
    )


def _stiffness_law(
    title: str, answer: str, done: Callable[[Steps], np.ndarray], feedback: Steps
) -> Law:
    """The controller's γ, α and ν are always the same: its steps, in the order of stiffness, are a curve."""
    order = feedback.stiffness.argsort()
    return Law(
        title=title,
        state="stiffness in the colony's middle",
        seen=lambda steps: steps.stiffness,
        answer=answer,
        done=done,
        controller=lambda stiffness: np.interp(
            stiffness, feedback.stiffness[order], done(feedback)[order]
        ),
        scale="log",
    )


def _median(played: Sequence[Steps], of: Callable[[Steps], np.ndarray]) -> float:
    return float(np.median(np.concatenate([of(steps) for steps in played])))


def _slope(x: np.ndarray, y: np.ndarray) -> float:
    """Of least squares; 0 where x never changes."""
    spread = x - x.mean()
    return float(spread @ y / max(spread @ spread, 1e-9))


def _draw_law(axes: Axes, law: Law, learned: Sequence[Steps]) -> None:
    x, y = (np.concatenate([of(steps) for steps in learned]) for of in (law.seen, law.done))
    some = np.linspace(0, len(x) - 1, min(DOTS, len(x))).astype(int)
    axes.scatter(x[some], y[some], s=5, color=RED, alpha=0.2, linewidths=0)
    axes.set_xscale(law.scale)
    edges = (np.geomspace if law.scale == "log" else np.linspace)(x.min(), x.max(), BINS + 1)
    middle = (edges[1:] + edges[:-1]) / 2
    found = np.stack([binned(law.seen(steps), law.done(steps), edges) for steps in learned], 1)
    low, median, high = found
    full = np.isfinite(median).all(0)
    mean_with_interval(axes, middle[full], median[:, full], color=RED, linewidth=1.8)
    if len(learned) == 1:
        axes.fill_between(
            middle[full], low[0, full], high[0, full], color=RED, alpha=0.15, linewidth=0
        )
    axes.plot(middle, law.controller(middle), color=BLUE, linestyle="--", linewidth=1.5)
    axes.set(xlabel=law.state, ylabel=law.answer)
    axes.set_title(law.title, loc="left", fontsize=10)
    axes.grid(alpha=0.25)


def binned(
    x: Float[np.ndarray, " step"], y: Float[np.ndarray, " step"], edges: Float[np.ndarray, " edge"]
) -> Float[np.ndarray, "3 bin"]:
    """Lowest tenth, median and highest tenth of y in each bin of x; NaN of a bin with few steps."""
    place = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, len(edges) - 2)
    found = np.full((3, len(edges) - 1), np.nan)
    for one in np.flatnonzero(np.bincount(place) >= FEWEST):
        found[:, one] = np.quantile(y[place == one], (0.1, 0.5, 0.9))
    return found
