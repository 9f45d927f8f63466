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
from quatrain.models.actor_critic.hosted.evaluate import (
    REFERENCES,
    evaluate_policy,
    reference_returns,
)
from quatrain.models.actor_critic.hosted.train import State
from quatrain.plots import (
    BLACK,
    BLUE,
    GREY,
    ORANGE,
    RED,
    SMALL_TITLE,
    EndLabel,
    Level,
    Picture,
    caption,
    curve,
    describe_seeds,
    draw_levels_beside,
    draw_seeds,
    format_thousands,
    house_style,
    in_order,
    label_ends,
)
from quatrain.progress import History

COLORS = {"learned": RED, "random": GREY, "constant": BLACK, "untrained": BLUE}
NAMES = {"learned": "learned policy"} | REFERENCES
# Picture -> what it shows, in the order of the story.
CAPTIONS = {
    "learning_curve": "Learning: return per episode while training, and afterwards in held-out "
    "episodes, beside policies that did not learn.",
    "returns": "The result: held-out episodes of all policies, by their return.",
    "updates": "Detail: what the updates of the networks do.",
}


@house_style
def plots(
    config: HostedActorCriticConfig,
    state: State,
    dataset: Dataset,
    history: History,
    scores: Mapping[str, float],
) -> dict[str, Picture]:
    """Draws the figures of learners in one environment."""
    pictures: dict[str, Picture] = {
        "learning_curve": draw_learning_curve(config, history, scores),
        "returns": draw_returns(config, state, dataset),
        "updates": draw_updates(config, history),
    }
    return in_order(pictures, CAPTIONS)


def draw_learning_curve(
    config: HostedActorCriticConfig, history: History, scores: Mapping[str, float]
) -> Figure:
    """Draws the return during training, and beside it, since those episodes are others, the
    held-out return among those of policies without learning.
    """
    figure = Figure(figsize=(10, 5), layout="constrained")
    axes, beside = figure.subplots(1, 2, sharey=True, width_ratios=(7, 1))
    recorded = episode_curve(config, history, "return")
    draw_seeds(axes, transitions(history, recorded), recorded.values, color=ORANGE, linewidth=2)
    ends = [EndLabel(first_and_last(recorded.values)[1], "while exploring", ORANGE)]
    ends += _draw_validation(axes, config, history)
    axes.set_title("While learning", **SMALL_TITLE)
    axes.set(xlabel="transitions of all environments", ylabel="return of an episode, undiscounted")
    axes.grid(alpha=0.25)
    format_thousands(axes)
    beside.set_title("Then, held-out episodes", **SMALL_TITLE)
    names = [("learned", "return_mean"), *((name, f"{name}_return") for name in REFERENCES)]
    levels = [Level(NAMES[name], scores[score], COLORS[name]) for name, score in names]
    draw_levels_beside(beside, levels, 1)
    label_ends(axes, [end for end in ends if np.isfinite(end.y)])
    title = f"{config.env.name}: held-out return {scores['return_mean']:.4g}"
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    caption(
        figure,
        "Line: episodes that ended in an iteration, with actions drawn at random.",
        describe_seeds(config.seeds),
        "Dots: validation episodes without, by which weights are chosen."
        if "validation_return" in history
        else "",
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
