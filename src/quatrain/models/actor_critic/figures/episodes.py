"""history of colonies -> a figure of what episodes pay and how they end"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.figures.training import (
    episode_curve,
    first_and_last,
    format_number,
    format_signed,
    transitions,
)
from quatrain.plots import (
    Curve,
    EndLabel,
    caption,
    describe_seeds,
    draw_seeds,
    format_thousands,
    label_ends,
)
from quatrain.progress import History

# Colours that are distinguishable with any colour vision.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999933", "#882255")
OTHERS = "0.6"
# Reasons for the end of an episode, from best to worst.
REASON_COLORS = {
    "success": "#009E73",
    "timeout": "#56B4E9",
    "left_drift": "#CC79A7",
    "extinct": "0.3",
    "overflow": "#D55E00",
    "out_of_bounds": "#E69F00",
}


class Layer(NamedTuple):
    label: str
    values: Float[np.ndarray, " points"]
    color: str


def draw_episodes(config: ActorCriticConfig, history: History) -> Figure:
    """Draws the components of an episode's return, and the shares of reasons for its end, over
    transitions.
    """
    figure = Figure(figsize=(9, 8), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    total = episode_curve(config, history, "return")
    success = episode_curve(config, history, "reason/success")
    x = transitions(history, total)
    _draw_stack(upper, x, reward_layers(config, history))
    draw_seeds(upper, x, total.values, color="black", linewidth=1.5)
    upper.set_title(f"What an episode pays: {_first_to_last(total, format_number)}")
    upper.set_ylabel("return of an episode, by component")
    _draw_stack(lower, x, reason_layers(config, history))
    at_goal = _first_to_last(success, "{:.0%}".format)
    lower.set_title(f"How episodes end: at the goal {at_goal}")
    lower.set(xlabel="transitions of all colonies", ylabel="share of episodes", ylim=(0, 1))
    format_thousands(lower)
    caption(
        figure,
        "Components times weights: what costs hangs below 0. Black: their sum.",
        describe_seeds(config.seeds),
    )
    return figure


def _first_to_last(recorded: Curve, format_value: Callable[[float], str]) -> str:
    first, last = first_and_last(recorded.values)
    if not np.isfinite(last):
        return "no episode has ended"
    return f"{format_value(first)} at first, {format_value(last)} at last"


def reward_layers(config: ActorCriticConfig, history: History) -> list[Layer]:
    """Returns weighted sums over an episode: the largest components, and all others together; means
    over seeds.
    """
    paid = {
        name: weight * episode_curve(config, history, f"reward/{name}").values.mean(0)
        for name, weight in config.env.reward.weighted
    }
    largest = sorted(paid, key=lambda name: -np.abs(np.nan_to_num(paid[name])).max())
    shown = sorted(largest[: len(PALETTE)], key=list(paid).index)
    layers = [(name, paid[name], color) for name, color in zip(shown, PALETTE, strict=False)]
    others = [values for name, values in paid.items() if name not in shown]
    if others:
        layers.append((f"{len(others)} others", np.sum(others, axis=0), OTHERS))
    return [
        Layer(f"{name} {format_signed(float(values[-1]))}", values, color)
        for name, values, color in layers
    ]


def reason_layers(config: ActorCriticConfig, history: History) -> list[Layer]:
    layers = []
    for name, color in REASON_COLORS.items():
        share = episode_curve(config, history, f"reason/{name}").values.mean(0)
        if np.nansum(share):
            layers.append(Layer(f"{name.replace('_', ' ')} {share[-1]:.0%}", share, color))
    return layers


def _draw_stack(axes: Axes, x: np.ndarray, layers: Sequence[Layer]) -> None:
    """Stacks positive values upwards from 0 and negative ones downwards; labels each layer at its
    end.
    """
    ends = []
    positive = np.zeros(len(x))
    negative = np.zeros(len(x))
    for layer in layers:
        last = layer.values[-1]
        base = negative if last < 0 else positive
        ends.append(EndLabel(float(base[-1] + last / 2), layer.label, layer.color))
        above = positive + layer.values.clip(min=0)
        below = negative + layer.values.clip(max=0)
        for inner, outer in ((positive, above), (negative, below)):
            axes.fill_between(x, inner, outer, color=layer.color, alpha=0.75, linewidth=0)
        positive = above
        negative = below
    axes.axhline(0, color="0.3", linewidth=0.8)
    axes.grid(alpha=0.25)
    axes.margins(x=0)
    label_ends(axes, [end for end in ends if np.isfinite(end.y)])
