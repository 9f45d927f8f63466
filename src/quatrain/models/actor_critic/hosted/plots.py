"""state, dataset, history -> figures of training, and of the returns of held-out episodes"""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quatrain.models.actor_critic.figures.training import (
    episode_curve,
    first_and_last,
    transitions,
)
from quatrain.models.actor_critic.figures.updates import draw_updates
from quatrain.models.actor_critic.hosted.collect import Dataset
from quatrain.models.actor_critic.hosted.config import HostedActorCriticConfig
from quatrain.models.actor_critic.hosted.evaluate import evaluate_policy, reference_returns
from quatrain.models.actor_critic.hosted.train import State
from quatrain.plots import (
    BLACK,
    BLUE,
    GREY,
    ORANGE,
    RED,
    EndLabel,
    caption,
    curve,
    describe_seeds,
    draw_seeds,
    format_thousands,
    label_ends,
)
from quatrain.progress import History

COLORS = {"learned": RED, "random": GREY, "constant": BLACK, "untrained": BLUE}
NAMES = {
    "learned": "learned",
    "random": "random actions",
    "constant": "best constant action",
    "untrained": "untrained network",
}


def plots(
    config: HostedActorCriticConfig,
    state: State,
    dataset: Dataset,
    history: History,
    scores: Mapping[str, float],
) -> dict[str, Figure]:
    """Draws the figures of learners in one environment."""
    return {
        "learning_curve": draw_learning_curve(config, history, scores),
        "returns": draw_returns(config, state, dataset),
        "updates": draw_updates(config, history),
    }


def draw_learning_curve(
    config: HostedActorCriticConfig, history: History, scores: Mapping[str, float]
) -> Figure:
    """Draws the return during training beside held-out returns of policies without learning."""
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    recorded = episode_curve(config, history, "return")
    draw_seeds(axes, transitions(history, recorded), recorded.values, color=ORANGE, linewidth=2)
    ends = [EndLabel(first_and_last(recorded.values)[1], "while training", ORANGE)]
    ends += _draw_validation(axes, config, history)
    for name in ("random", "constant", "untrained"):
        level = scores[f"{name}_return"]
        axes.axhline(level, color=COLORS[name], linestyle="--", linewidth=1.2)
        ends.append(EndLabel(level, f"{NAMES[name]} {level:.4g}", COLORS[name]))
    score = scores["return_mean"]
    axes.set_title(f"{config.env.name}: held-out return {score:.4g}", loc="left", fontsize=11)
    axes.set(xlabel="transitions of all environments", ylabel="return of an episode")
    axes.grid(alpha=0.25)
    format_thousands(axes)
    label_ends(axes, [end for end in ends if np.isfinite(end.y)])
    caption(
        figure,
        "Line: episodes that ended in an iteration, with actions drawn at random. "
        f"{describe_seeds(config.seeds)}\nDots: validation episodes without, by which weights are "
        "chosen. Dashed: policies that did not learn, in held-out episodes.",
    )
    return figure


def _draw_validation(
    axes: Axes, config: HostedActorCriticConfig, history: History
) -> list[EndLabel]:
    if "validation_return" not in history:
        return []
    validated = curve(history, "validation_return", config.seeds)
    mean = validated.values.mean(0)
    axes.plot(transitions(history, validated), mean, "o", color=RED, markersize=4)
    return [EndLabel(float(mean[-1]), f"validated {mean[-1]:.4g}", RED)]


def draw_returns(config: HostedActorCriticConfig, state: State, dataset: Dataset) -> Figure:
    """Draws which share of held-out episodes returns at most so much, for each policy."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    learned = [outcome.returns[:, 0] for outcome in evaluate_policy(config, state, dataset)]
    policies = {"learned": np.concatenate(learned), **reference_returns(config, dataset)}
    for name, returns in policies.items():
        label = f"{NAMES[name]}, mean {returns.mean():.4g}"
        axes.ecdf(returns, color=COLORS[name], linewidth=1.8, label=label)
    axes.set(xlabel="return of an episode, undiscounted", ylabel="share of episodes, at most")
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, loc="best", frameon=False)
    axes.set_title(f"{config.env.name}: held-out episodes", loc="left", fontsize=11)
    episodes = f"{config.collect.held_out_episodes} held-out episodes"
    caption(figure, f"{episodes}, the same for all policies; of the learned ones all together.")
    return figure
