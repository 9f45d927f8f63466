"""history -> figures over training: return between its yardsticks, what episodes pay and how they end, the updates."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.figures.replays import COLORS, NAMES, number, over_seeds, signed
from quatrain.plots import (
    GREY,
    ORANGE,
    RED,
    Curve,
    EndLabel,
    caption,
    curve,
    label_ends,
    mean_with_interval,
)
from quatrain.progress import History

PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999933", "#882255")
"""Told apart with any colour vision."""
OTHERS = "0.6"
REASON_COLORS = {
    "success": "#009E73",
    "timeout": "#56B4E9",
    "left_drift": "#CC79A7",
    "extinct": "0.3",
    "overflow": "#D55E00",
    "out_of_bounds": "#E69F00",
}
"""From the best end of an episode to the worst."""


class Layer(NamedTuple):
    """Of a stack, over time."""

    label: str
    values: Float[np.ndarray, " points"]
    color: str


def transitions(history: History, found: Curve) -> Float[np.ndarray, " points"]:
    """The transitions at a curve's points, which are counted in iterations."""
    return np.interp(found.steps, *history["transitions"])


def of_episodes(config: ActorCriticConfig, history: History, name: str) -> Curve:
    """A figure of the episodes that ended; NaN before the first one."""
    found = curve(history, name, config.seeds)
    ended = curve(history, "episodes", config.seeds).values.cumsum(1) > 0
    return found._replace(values=np.where(ended, found.values, np.nan))


def count_transitions(axes: Axes) -> None:
    """40k rather than 40000."""
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def _first_and_last(values: Float[np.ndarray, "seeds points"]) -> tuple[float, float]:
    """Means over seeds where a curve begins and ends; NaN where there is none."""
    mean = values.mean(0)
    found = mean[np.isfinite(mean)]
    return (float(found[0]), float(found[-1])) if len(found) else (np.nan, np.nan)


# Episodes.


def draw_learning_curve(
    config: ActorCriticConfig, history: History, scores: Mapping[str, float]
) -> Figure:
    """Return over transitions while training, the held-out score, and what policies earn that learned nothing."""
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    found = of_episodes(config, history, "return")
    x, score = transitions(history, found), scores["return_mean"]
    mean_with_interval(axes, x, found.values, color=ORANGE, linewidth=2)
    reach = [
        [max(score - scores["return_mean_low"], 0)],
        [max(scores["return_mean_high"] - score, 0)],
    ]
    axes.errorbar(
        x[-1:], [score], yerr=reach, color=RED, marker="o", capsize=4, clip_on=False, zorder=3
    )
    _, last = _first_and_last(found.values)
    ends = [EndLabel(score, f"held out {number(score)}", RED)]
    ends += [EndLabel(last, f"while training {number(last)}", ORANGE)] if np.isfinite(last) else []
    for name in ("random", "constant", "feedback"):
        level, color = scores[f"{name}_return"], COLORS[name]
        axes.axhline(level, color=color, linestyle="--", linewidth=1.2)
        ends.append(EndLabel(level, f"{NAMES[name]} {number(level)}", color))
    axes.set_title(f"Held-out return {number(score)}: {compared(scores)}", loc="left", fontsize=11)
    axes.set(xlabel="transitions of all colonies", ylabel="return of an episode, undiscounted")
    axes.grid(alpha=0.25)
    count_transitions(axes)
    label_ends(axes, ends)
    caption(
        figure,
        f"Line: episodes that ended in an iteration, with actions drawn. {over_seeds(config)}\n"
        "Dot: held-out colonies, no action drawn, with the 95 % interval. Dashed: without learning, the same colonies.",
    )
    return figure


def compared(scores: Mapping[str, float]) -> str:
    """With the best constant action and the controller; shares of what is not positive mean nothing."""
    learned, constant, feedback = (
        scores["return_mean"],
        scores["constant_return"],
        scores["feedback_return"],
    )
    if min(constant, feedback) > 0:
        share = scores["fraction_of_feedback"]
        return f"{scores['margin_over_constant']:+.0%} on the best constant action, {share:.1%} of the controller"
    return f"{signed(learned - constant)} on the best constant action, {signed(learned - feedback)} on the controller"


def draw_episodes(config: ActorCriticConfig, history: History) -> Figure:
    """What the components of the reward sum up to in an episode, and how episodes end, over transitions."""
    figure = Figure(figsize=(9, 8), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    paid, won = (of_episodes(config, history, name) for name in ("return", "reason/success"))
    x = transitions(history, paid)
    _draw_stack(upper, x, layers_of_reward(config, history))
    mean_with_interval(upper, x, paid.values, color="black", linewidth=1.5)
    upper.set_title(f"What an episode pays: {_course(paid, number)}", loc="left", fontsize=10)
    upper.set_ylabel("return of an episode, by component")
    _draw_stack(lower, x, layers_of_reasons(config, history))
    lower.set_title(
        f"How episodes end: at the goal {_course(won, '{:.0%}'.format)}", loc="left", fontsize=10
    )
    lower.set(xlabel="transitions of all colonies", ylabel="share of episodes", ylim=(0, 1))
    count_transitions(lower)
    caption(
        figure,
        "Components times weights: what costs hangs below 0. Black: their sum.",
        over_seeds(config),
    )
    return figure


def _course(found: Curve, told: Callable[[float], str]) -> str:
    first, last = _first_and_last(found.values)
    return (
        f"{told(first)} at first, {told(last)} at last"
        if np.isfinite(last)
        else "no episode has ended"
    )


def layers_of_reward(config: ActorCriticConfig, history: History) -> list[Layer]:
    """Weighted sums over an episode, of the largest components and of all others together; means over seeds."""
    names, weights = zip(*config.env.reward.weighted, strict=True)
    found = [of_episodes(config, history, f"reward/{name}").values.mean(0) for name in names]
    paid = [weight * values for weight, values in zip(weights, found, strict=True)]
    sizes = [-np.abs(np.nan_to_num(values)).max() for values in paid]
    shown = sorted(np.argsort(sizes, kind="stable")[: len(PALETTE)].tolist())
    named = [
        (names[place], paid[place], color) for place, color in zip(shown, PALETTE, strict=False)
    ]
    if len(shown) < len(names):
        others = np.sum([values for place, values in enumerate(paid) if place not in shown], axis=0)
        named.append((f"{len(names) - len(shown)} others", others, OTHERS))
    return [
        Layer(f"{name} {signed(float(values[-1]))}", values, color) for name, values, color in named
    ]


def layers_of_reasons(config: ActorCriticConfig, history: History) -> list[Layer]:
    """Shares of those reasons that ever ended an episode; means over seeds."""
    layers = []
    for name, color in REASON_COLORS.items():
        share = of_episodes(config, history, f"reason/{name}").values.mean(0)
        if np.nansum(share):
            layers.append(Layer(f"{name.replace('_', ' ')} {share[-1]:.0%}", share, color))
    return layers


def _draw_stack(axes: Axes, x: np.ndarray, layers: Sequence[Layer]) -> None:
    """What is above 0 on what is above 0, and below likewise; named where it ends."""
    ends, bases = [], [np.zeros(len(x)), np.zeros(len(x))]
    for layer in layers:
        last, parts = layer.values[-1], (layer.values.clip(min=0), layer.values.clip(max=0))
        ends.append(EndLabel(float(bases[int(last < 0)][-1] + last / 2), layer.label, layer.color))
        for sign, part in enumerate(parts):
            axes.fill_between(
                x, bases[sign], bases[sign] + part, color=layer.color, alpha=0.75, linewidth=0
            )
            bases[sign] = bases[sign] + part
    axes.axhline(0, color="0.3", linewidth=0.8)
    axes.grid(alpha=0.25)
    axes.margins(x=0)
    label_ends(axes, [end for end in ends if np.isfinite(end.y)])


# Updates.


def draw_updates(config: ActorCriticConfig, history: History) -> Figure:
    """How far each iteration moves the policy, and how good the values are that it goes by."""
    figure = Figure(figsize=(15, 6.5), layout="constrained")
    titles = titles_of_updates(config, history)
    limits = {"approx_kl": config.train.target_kl, "grad_norm": config.train.max_grad_norm}
    for axes, (name, title) in zip(
        figure.subplots(2, 4, sharex=True).flat, titles.items(), strict=True
    ):
        found = curve(history, name, config.seeds)
        values = np.diff(found.values, prepend=0) if name == "updates" else found.values
        mean_with_interval(axes, transitions(history, found), values, color=RED, linewidth=1.5)
        axes.set_title(title, loc="left", fontsize=9)
        axes.grid(alpha=0.25)
        low, high = axes.dataLim.intervaly
        if name in ("loss_value", "grad_norm") and high > 10 * low > 0:
            axes.set_yscale("log")
        if name == "explained_variance":
            axes.set_ylim(max(low - 0.1, -1), 1.05)
        if name in limits:
            axes.axhline(limits[name], color=GREY, linestyle="--", linewidth=1.2)
            label_ends(axes, [EndLabel(limits[name], f"{limits[name]:g}", GREY)])
        count_transitions(axes)
    deviation = curve(history, "ratio_first_max_dev", config.seeds).values.max()
    caption(
        figure,
        "Over transitions of all colonies; means over an iteration's minibatches, of KL the last one. Dashed: where an "
        f"iteration stops (KL), to what gradients are cut (norm). {over_seeds(config)}\n"
        f"Before an iteration learns, ratios of probabilities are 1; at most {deviation:.1g} off.",
    )
    return figure


def titles_of_updates(config: ActorCriticConfig, history: History) -> dict[str, str]:
    """Metric -> what its panel shows."""
    values = {
        name: curve(history, name, config.seeds).values
        for name in (
            "entropy",
            "kl_stop",
            "clip_fraction",
            "explained_variance",
            "updates",
            "learning_rate",
        )
    }
    first, last = _first_and_last(values["entropy"])
    steps = values["updates"][:, -1].mean() / values["updates"].shape[1]
    most = config.train.epochs * -(-config.train.batch // config.train.minibatch_size)
    _, explained = _first_and_last(values["explained_variance"])
    return {
        "entropy": f"Entropy of actions: {first:.2f} nats at first, {last:.2f} at last",
        "approx_kl": f"KL to the policy that played, in nats; stopped {values['kl_stop'].mean():.0%}",
        "clip_fraction": f"Share of clipped ratios: {values['clip_fraction'].mean():.1%} on average",
        "updates": f"Gradient steps per iteration: {steps:.1f} of {most}",
        "explained_variance": f"Explained variance of values: {explained:.2f} at last",
        "loss_value": "Value loss",
        "grad_norm": "Norm of gradients before they are cut",
        "learning_rate": f"Learning rate: {values['learning_rate'].mean(0)[-1]:.2g} at last",
    }
