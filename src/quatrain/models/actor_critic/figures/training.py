"""history, scores -> a figure of learning: return while training, and held out beside others"""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quatrain.models.actor_critic.config import Config
from quatrain.plots import (
    ORANGE,
    RED,
    SMALL_TITLE,
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
)
from quatrain.progress import History


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
    references: Sequence[Level],
) -> Figure:
    """Draws the return during training, and beside it, since those episodes are others, the
    held-out return among those of policies without learning.
    """
    figure = Figure(figsize=(10, 5), layout="constrained")
    axes, beside = figure.subplots(1, 2, sharey=True, width_ratios=(7, 1))
    recorded = episode_curve(config, history, "return")
    x = transitions(history, recorded)
    draw_seeds(axes, x, recorded.values, color=ORANGE, linewidth=2)
    ends = _draw_validation(axes, config, history)
    last = first_and_last(recorded.values)[1]
    if np.isfinite(last):
        ends.append(EndLabel(last, f"while exploring {format_number(last)}", ORANGE))
    axes.set_title("While learning", **SMALL_TITLE)
    axes.set(xlabel="transitions of all environments", ylabel="return of an episode, undiscounted")
    axes.grid(alpha=0.25)
    format_thousands(axes)
    beside.set_title("Then, held out", **SMALL_TITLE)
    low, high = _interval(scores) or (0.0, 0.0)
    learned = Level("learned", scores["return_mean"], RED, (high - low) / 2)
    draw_levels_beside(beside, [learned, *references], 2)
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


def format_signed(value: float) -> str:
    """Formats a number with its sign, with two decimals or, from 100 on, none."""
    return f"{round(value, 2) + 0.0:+.2f}" if abs(value) < 100 else f"{value:+,.0f}"


def format_number(value: float) -> str:
    """Formats a number as `format_signed` does, without a plus sign."""
    return format_signed(value).removeprefix("+")
