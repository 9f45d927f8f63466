"""history, scores -> figures of learning: return while training, and held out beside others; how
far updates move the policy, and how good its values are.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quatrain.models.actor_critic.config import Config
from quatrain.plots import (
    GREY,
    ORANGE,
    RED,
    Curve,
    EndLabel,
    Level,
    caption,
    curve,
    describe_seeds,
    draw_levels_beside,
    draw_seeds,
    format_thousands,
    label_ends,
    mark_decades,
)
from quatrain.progress import History

# Metric of updates -> what its panel asks, and its unit.
UPDATES = {
    "entropy": ("How random actions are", "entropy, nats"),
    "approx_kl": ("How far an iteration moves the policy", "KL, nats"),
    "clip_fraction": ("Ratios that were clipped", "share"),
    "explained_variance": ("How good values are", "explained variance"),
    "loss_value": ("Error of values", "value loss"),
    "grad_norm": ("Gradients before they are cut", "norm"),
}
FROM_ZERO = ("approx_kl", "clip_fraction")
LOGARITHMIC = ("loss_value", "grad_norm")


class Look(NamedTuple):
    """Holds how a policy is named and drawn."""

    name: str
    color: str


def transitions(history: History, recorded: Curve) -> Float[np.ndarray, " points"]:
    """Returns the transitions at a curve's points, whose steps are iterations."""
    return np.interp(recorded.steps, *history["transitions"])


def episode_curve(config: Config, history: History, name: str) -> Curve:
    """Returns a metric of ended episodes; NaN before the first episode has ended."""
    recorded = curve(history, name, config.seeds)
    ended = curve(history, "episodes", config.seeds).values.cumsum(1) > 0
    return recorded._replace(values=np.where(ended, recorded.values, np.nan))


def first_and_last(values: Float[np.ndarray, "seeds points"]) -> tuple[float, float]:
    """Returns the first and last finite mean over seeds; NaN without any."""
    mean = values.mean(0)
    finite = mean[np.isfinite(mean)]
    return (float(finite[0]), float(finite[-1])) if len(finite) else (np.nan, np.nan)


def draw_learning_curve(
    config: Config,
    history: History,
    scores: Mapping[str, float],
    title: str,
    looks: Mapping[str, Look],
) -> Figure:
    """Draws the return during training, and beside it, since those episodes are others, the
    held-out return among those of policies without learning.
    """
    figure = Figure(figsize=(10, 5), layout="constrained")
    axes, beside = figure.subplots(1, 2, sharey=True, width_ratios=(7, 1))
    recorded = episode_curve(config, history, "return")
    draw_seeds(axes, transitions(history, recorded), recorded.values, color=ORANGE, linewidth=2)
    ends = _draw_validation(axes, config, history)
    last = first_and_last(recorded.values)[1]
    if np.isfinite(last):
        ends.append(EndLabel(last, f"while exploring {format_number(last)}", ORANGE))
    axes.set(xlabel="transitions of all environments", ylabel="return of an episode, undiscounted")
    axes.set_title("While learning")
    axes.grid(alpha=0.25)
    format_thousands(axes)
    beside.set_title("Then, held out")
    low, high = _interval(scores) or (0.0, 0.0)
    levels = [Level(look.name, scores[_score(name)], look.color) for name, look in looks.items()]
    draw_levels_beside(beside, [levels[0]._replace(half=(high - low) / 2), *levels[1:]], 2)
    label_ends(axes, ends)
    score = format_number(scores["return_mean"])
    figure.suptitle(f"{title}: held-out return {score}", x=0.01, ha="left", fontsize=11)
    caption(
        figure,
        "Line: episodes that ended in an iteration, with actions drawn at random.",
        describe_seeds(config.seeds),
        "Dots: validation episodes, by which weights are chosen."
        if "validation_return" in history
        else "",
        "Compare the learned policy with others on the right alone: there all begin alike, and no "
        "action is drawn.",
        _describe_interval(scores),
    )
    return figure


def _score(name: str) -> str:
    return "return_mean" if name == "learned" else f"{name}_return"


def _draw_validation(axes: Axes, config: Config, history: History) -> list[EndLabel]:
    """Draws the return with validation episodes, by which weights are chosen."""
    if "validation_return" not in history:
        return []
    validated = curve(history, "validation_return", config.seeds)
    mean = validated.values.mean(0)
    axes.plot(transitions(history, validated), mean, "o", color=RED, markersize=4)
    return [EndLabel(float(mean[-1]), f"validated {format_number(float(mean[-1]))}", RED)]


def _interval(scores: Mapping[str, float]) -> tuple[float, float] | None:
    """Returns the interval of the held-out return: over episodes of one seed, over seeds of
    several; few give none.
    """
    over = "_held_out" if scores["seeds"] == 1 else ""
    ends = [f"return_mean{over}_{end}" for end in ("low", "high")]
    return (scores[ends[0]], scores[ends[1]]) if scores.keys() >= set(ends) else None


def _describe_interval(scores: Mapping[str, float]) -> str:
    if _interval(scores) is None:
        return ""
    over = "held-out episodes, not over seeds" if scores["seeds"] == 1 else "seeds"
    return f"Bar of the learned: its 95 % interval over {over}."


def draw_updates(config: Config, history: History) -> Figure:
    """Draws how far each iteration moves the policy, and how good its values are."""
    figure = Figure(figsize=(12, 6.2), layout="constrained")
    panels = figure.subplots(2, 3, sharex=True)
    limits = {"approx_kl": config.train.target_kl, "grad_norm": config.train.max_grad_norm}
    for axes, (name, (title, unit)) in zip(panels.flat, UPDATES.items(), strict=True):
        recorded = curve(history, name, config.seeds)
        draw_seeds(axes, transitions(history, recorded), recorded.values, color=RED, linewidth=1.2)
        axes.set(title=title, ylabel=unit)
        axes.grid(alpha=0.25)
        format_thousands(axes)
        ends = [EndLabel(limits[name], f"{limits[name]:g}", GREY)] if name in limits else []
        for end in ends:
            axes.axhline(end.y, color=GREY, linestyle="--", linewidth=1.2)
        _limit(axes, name)
        label_ends(axes, ends)
    for axes in panels[1]:
        axes.set_xlabel("transitions of all environments")
    stopped = curve(history, "kl_stop", config.seeds).values.mean()
    deviation = curve(history, "ratio_first_max_dev", config.seeds).values.max()
    caption(
        figure,
        "Means over an iteration's minibatches, of KL the last one. Dashed: where an iteration "
        f"stops (KL; {stopped:.0%} did), to what gradients are cut (norm).",
        describe_seeds(config.seeds),
        "Before an iteration learns, ratios of probabilities differ from 1 by at most "
        f"{deviation:.1g}.",
    )
    return figure


def _limit(axes: Axes, name: str) -> None:
    """Shows no value that a metric cannot have, and explained variance from -1 on."""
    low, high = axes.dataLim.intervaly
    if name in FROM_ZERO:
        axes.set_ylim(bottom=0)
    elif name == "explained_variance":
        axes.set_ylim(max(low, -1.0), 1.0)
    elif name in LOGARITHMIC and high > 10 * low > 0:
        mark_decades(axes)


def format_signed(value: float) -> str:
    """Formats a number with its sign, with two decimals or, from 100 on, none."""
    return f"{round(value, 2) + 0.0:+.2f}" if abs(value) < 100 else f"{value:+,.0f}"


def format_number(value: float) -> str:
    """Formats a number as `format_signed` does, without a plus sign."""
    return format_signed(value).removeprefix("+")
