"""episodes -> figures of the learned policy's actions over training, by step, and by state."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from quatrain.envs.colony.policies import GAIN
from quatrain.envs.colony.rules import PARAMETERS
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.figures.replays import (
    SYMBOLS,
    WORDS,
    Replays,
    Steps,
    next_size,
    steps_of,
    throw,
)
from quatrain.models.actor_critic.figures.training import format_number, transitions
from quatrain.models.actor_critic.scores.colony import Outcome
from quatrain.models.actor_critic.worlds.colony_data import Dataset
from quatrain.plots import (
    BLACK,
    BLUE,
    ORANGE,
    RED,
    SMALL_TITLE,
    TICKS,
    Curve,
    caption,
    curve,
    describe_seeds,
    draw_seeds,
)
from quatrain.progress import History

THROW = {"gamma", "alpha", "noise"}  # parameters that decide how far a child is thrown
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
MIN_RUNNING = 0.1  # smallest share of running episodes; later steps are not drawn
BINS = 24
MIN_STEPS = 10  # fewest steps of a bin that is drawn
DOTS = 1500
NEAR = 2  # distance from the target size, in cells, that counts as reaching it


class Response(NamedTuple):
    """Holds what to draw of a policy's response y to a state x, and the controller's response."""

    title: str
    x_label: str
    x: Callable[[Steps], np.ndarray]
    y_label: str
    y: Callable[[Steps], np.ndarray]
    controller: Callable[[np.ndarray], np.ndarray]
    scale: Literal["linear", "log"] = "linear"


# Over training and within an episode.


def draw_actions(config: ActorCriticConfig, history: History, replays: Replays) -> Figure:
    """Draws each active parameter over training, and its quantiles within an episode."""
    names = config.env.action.active_params
    figure = Figure(figsize=(max(2.6 * len(names), 8), 6.5), layout="constrained")
    columns = figure.subplots(2, len(names), squeeze=False, sharex="row", sharey="col").T
    for (upper, lower), name in zip(columns, names, strict=True):
        _draw_over_training(upper, config, history, name)
        _draw_within_episode(lower, replays, PARAMETERS.index(name))
        for axes in (upper, lower):
            axes.set_ylabel(f"{SYMBOLS[name]}, {WORDS[name]}")
            axes.hlines(
                getattr(config.env.action.bounds, name),
                0,
                1,
                colors="0.7",
                linewidth=0.8,
                transform=axes.get_yaxis_transform(),
            )
    caption(
        figure,
        "A child lands h = γ / (1 + (α / stiffness)²) + ν px from its parent, in direction θ. "
        "Grey lines: bounds. Above, while training, with actions drawn at random: mean ± standard "
        "deviation over an iteration. Below, with held-out colonies, no action drawn: median, half "
        "and 90 % of all colonies in red; "
        "blue: median of the controller; black, dashed: best constant action.",
    )
    return figure


def _draw_over_training(
    axes: Axes,
    config: ActorCriticConfig,
    history: History,
    name: str,
) -> None:
    means = curve(history, f"action_mean/{name}", config.seeds)
    x = transitions(history, means)
    mean = means.values.mean(0)
    std = curve(history, f"action_std/{name}", config.seeds).values.mean(0)
    axes.plot(x, mean, color=ORANGE, linewidth=1.8)
    axes.fill_between(x, mean - std, mean + std, color=ORANGE, alpha=0.2, linewidth=0)
    axes.set_title(
        f"{format_number(float(mean[-1]))} ± {std[-1]:.2f} in the end",
        **SMALL_TITLE,
    )
    axes.set_xlabel("transitions")
    axes.yaxis.set_major_locator(MaxNLocator(TICKS))
    axes.xaxis.set_major_locator(MaxNLocator(3))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def _draw_within_episode(axes: Axes, replays: Replays, column: int) -> None:
    steps, (lowest, low, middle, high, highest) = within_episode(replays.learned, column)
    axes.fill_between(steps, lowest, highest, color=RED, alpha=0.15, linewidth=0)
    axes.fill_between(steps, low, high, color=RED, alpha=0.25, linewidth=0)
    axes.plot(steps, middle, color=RED, linewidth=1.5)
    steps, quantiles = within_episode([replays.feedback], column)
    axes.plot(steps, quantiles[len(QUANTILES) // 2], color=BLUE, linewidth=1.5)
    axes.axhline(
        float(replays.constant.action[0, 0, column]),
        color=BLACK,
        linestyle="--",
        linewidth=1.2,
    )
    axes.set(xlabel="step of the episode")


def within_episode(outcomes: Sequence[Outcome], column: int) -> Curve:
    """Returns QUANTILES of one parameter at each step, over colonies of all seeds, while
    MIN_RUNNING of them run.
    """
    steps = max(len(outcome.action) for outcome in outcomes)
    values = np.full((steps, len(outcomes), outcomes[0].action.shape[1]), np.nan)
    for seed, outcome in enumerate(outcomes):
        values[: len(outcome.action), seed] = outcome.action[..., column]
    shown = np.isfinite(values).mean((1, 2)) >= MIN_RUNNING
    return Curve(
        1 + np.flatnonzero(shown),
        np.nanquantile(values[shown], QUANTILES, axis=(1, 2)),
    )


# By state.


def draw_policy_response(config: ActorCriticConfig, dataset: Dataset, replays: Replays) -> Figure:
    """Draws deletion ratio by size, direction by height, γ and throw by stiffness, beside the
    controller's.
    """
    held_out = dataset.held_out
    *learned, feedback = (
        steps_of(held_out.plates, held_out.colonies, outcome)
        for outcome in (*replays.learned, replays.feedback)
    )
    responses = policy_responses(config, learned, feedback)
    rows = -(-len(responses) // 2)
    columns = min(len(responses), 2)
    figure = Figure(figsize=(max(5.5 * columns, 8), 4 * rows + 0.4), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes, response in zip(panels, responses, strict=False):
        _draw_response(axes, response, learned)
    for axes in panels[len(responses) :]:
        axes.set_axis_off()
    bands = describe_seeds(config.seeds) or "Band: without the lowest and the highest tenth."
    caption(
        figure,
        "Red: learned; dots: some of all steps with held-out colonies, no action drawn; line: "
        f"their median. {bands} Blue, dashed: the hand-written controller.",
    )
    return figure


def policy_responses(
    config: ActorCriticConfig,
    learned: Sequence[Steps],
    feedback: Steps,
) -> list[Response]:
    """Returns the responses that depend on an active parameter."""
    active = set(config.env.action.active_params)
    responses = []
    if "delete_ratio" in active:
        responses.append(_size_response(config, learned))
    if "theta" in active:
        responses.append(_height_response(config, learned))
    if "gamma" in active:
        title = (
            f"γ is {_median(learned, _gamma):.1f} px at the median, "
            f"the controller's {float(feedback.column('gamma')[0]):.1f}"
        )
        responses.append(
            _stiffness_response(title, "γ, throw where it is stiff, px", _gamma, feedback)
        )
    if THROW & active:
        title = (
            f"A child lands {_median(learned, throw):.1f} px away, "
            f"the controller's {_median([feedback], throw):.1f}"
        )
        responses.append(
            _stiffness_response(title, "throw in the colony's middle, px", throw, feedback)
        )
    return responses


def _size_response(config: ActorCriticConfig, learned: Sequence[Steps]) -> Response:
    """Compares with r = 1 − Nc/(2n), for which the next size n' = 2(n − r n) is the target."""
    target = config.env.target_nodes
    errors = np.concatenate([np.abs(next_size(steps) - target) for steps in learned])
    return Response(
        title=(
            f"{(errors <= NEAR).mean():.0%} of all steps lead to within {NEAR} cells of the target"
        ),
        x_label="cells n (the controller: 1 − Nc/(2n))",
        x=lambda steps: steps.n,
        y_label="r, share of cells deleted",
        y=lambda steps: steps.column("delete_ratio"),
        controller=lambda n: np.clip(1 - target / (2 * n), *config.env.action.bounds.delete_ratio),
    )


def _height_response(config: ActorCriticConfig, learned: Sequence[Steps]) -> Response:
    slope = np.mean([_slope(steps.y, steps.column("theta")) for steps in learned])
    return Response(
        title=f"θ changes by {slope:+.4f} rad per pixel, the controller's by {-GAIN:+.4f}",
        x_label="height of the colony's middle above the plate's, px",
        x=lambda steps: steps.y - config.env.height / 2,
        y_label="θ, direction of throw, rad",
        y=lambda steps: steps.column("theta"),
        controller=lambda height: np.clip(-GAIN * height, *config.env.action.bounds.theta),
    )


def _stiffness_response(
    title: str,
    y_label: str,
    y: Callable[[Steps], np.ndarray],
    feedback: Steps,
) -> Response:
    """Interpolates the controller's steps by stiffness: its γ, α and ν are constant."""
    order = feedback.stiffness.argsort()
    return Response(
        title=title,
        x_label="stiffness in the colony's middle",
        x=lambda steps: steps.stiffness,
        y_label=y_label,
        y=y,
        controller=lambda x: np.interp(x, feedback.stiffness[order], y(feedback)[order]),
        scale="log",
    )


def _gamma(steps: Steps) -> np.ndarray:
    return steps.column("gamma")


def _median(of_seeds: Sequence[Steps], quantity: Callable[[Steps], np.ndarray]) -> float:
    return float(np.median(np.concatenate([quantity(steps) for steps in of_seeds])))


def _slope(x: np.ndarray, y: np.ndarray) -> float:
    """Returns the least-squares slope; 0 where x is constant."""
    deviation = x - x.mean()
    return float(deviation @ y / max(deviation @ deviation, 1e-9))


def _draw_response(axes: Axes, response: Response, learned: Sequence[Steps]) -> None:
    of_seeds = [(response.x(steps), response.y(steps)) for steps in learned]
    x, y = (np.concatenate(column) for column in zip(*of_seeds, strict=True))
    dots = np.linspace(0, len(x) - 1, min(DOTS, len(x))).astype(int)
    axes.scatter(x[dots], y[dots], s=5, color=RED, alpha=0.2, linewidths=0)
    axes.set_xscale(response.scale)
    spacing = np.geomspace if response.scale == "log" else np.linspace
    edges = spacing(x.min(), x.max(), BINS + 1)
    centres = (edges[1:] + edges[:-1]) / 2
    _draw_quantiles(axes, centres, np.stack([binned(*seed, edges) for seed in of_seeds], 1))
    axes.plot(centres, response.controller(centres), color=BLUE, linestyle="--", linewidth=1.5)
    axes.set(xlabel=response.x_label, ylabel=response.y_label)
    axes.set_title(response.title, **SMALL_TITLE)
    axes.grid(alpha=0.25)


def _draw_quantiles(
    axes: Axes,
    x: Float[np.ndarray, " bin"],
    quantiles: Float[np.ndarray, "3 seed bin"],
) -> None:
    """Draws medians; around that of a single seed the band between the other quantiles."""
    shown = np.isfinite(quantiles[1]).all(0)
    low, median, high = quantiles[..., shown]
    draw_seeds(axes, x[shown], median, color=RED, linewidth=1.8)
    if len(median) == 1:
        axes.fill_between(x[shown], low[0], high[0], color=RED, alpha=0.15, linewidth=0)


def binned(
    x: Float[np.ndarray, " step"],
    y: Float[np.ndarray, " step"],
    edges: Float[np.ndarray, " edge"],
) -> Float[np.ndarray, "3 bin"]:
    """Returns the 10 %, 50 % and 90 % quantiles of y in each bin of x; NaN in bins with fewer than
    MIN_STEPS.
    """
    bins = len(edges) - 1
    place = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, bins - 1)
    quantiles = np.full((3, bins), np.nan)
    for full in np.flatnonzero(np.bincount(place) >= MIN_STEPS):
        quantiles[:, full] = np.quantile(y[place == full], (0.1, 0.5, 0.9))
    return quantiles
