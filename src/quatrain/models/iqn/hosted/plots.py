"""state, held-out episodes, history -> figures of learning, of returns and of one episode"""

from collections.abc import Mapping
from contextlib import closing
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from quatrain.envs.host.envs import HostEnvs
from quatrain.envs.host.episodes import play
from quatrain.models.iqn import network
from quatrain.models.iqn.cycle.acting import midpoints
from quatrain.models.iqn.hosted.collect import Dataset, check
from quatrain.models.iqn.hosted.config import HostedIqnConfig
from quatrain.models.iqn.hosted.evaluate import (
    Outcomes,
    greedy_policy,
    mean_returns,
    play_held_out,
)
from quatrain.models.iqn.hosted.rules import REFERENCE_POLICIES
from quatrain.models.iqn.hosted.state import State
from quatrain.models.iqn.hosted.train import evaluation_params
from quatrain.plots import (
    BLUE,
    GREY,
    ORANGE,
    RED,
    SMALL_TITLE,
    EndLabel,
    Picture,
    caption,
    curve,
    describe_seeds,
    draw_seeds,
    format_thousands,
    house_style,
    in_order,
    label_ends,
)
from quatrain.progress import History

# Seed of the random policy in figures.
SEED = 0
# Largest number of actions of which quantiles are drawn.
MAX_ACTIONS = 6
# Reference policy -> its name in words.
NAMES = {
    "random": "random",
    "constant": "best constant action",
    "untrained": "untrained network",
}

# Picture -> what it shows, in the order of the story.
CAPTIONS = {
    "learning_curve": "Learning: return per episode while training, beside policies that did not "
    "learn.",
    "returns": "Comparison: returns of held-out episodes under each policy.",
    "episode": "The result: what the trained agent expects of its actions in an episode.",
    "learning": "Detail: what the updates of the networks do.",
}


@house_style
def plots(
    config: HostedIqnConfig,
    state: State,
    dataset: Dataset,
    history: History,
    scores: Mapping[str, float],
) -> dict[str, Picture]:
    """Draws the figures of an iqn trained in a user's environment."""
    outcomes = play_held_out(config, state, dataset, SEED)
    pictures: dict[str, Picture] = {
        "learning_curve": draw_learning_curve(config, history, scores),
        "returns": draw_returns(config, outcomes, scores),
        "episode": draw_episode(config, state, dataset),
        "learning": draw_learning(config, history),
    }
    return in_order(pictures, CAPTIONS)


def draw_learning_curve(
    config: HostedIqnConfig, history: History, scores: Mapping[str, float]
) -> Figure:
    """Draws the return over agent-steps, while training and greedy, with the references."""
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    styles = {
        "episode_return": ("while training", ORANGE),
        "greedy_return": ("greedy", RED),
    }
    ends = []
    for name, (text, color) in styles.items():
        if name in history:
            points = curve(history, name, config.seeds)
            steps = np.interp(points.steps, *history["agent_steps"])
            line = draw_seeds(axes, steps, points.values, color=color, linewidth=1.8)
            ends.append(EndLabel(line[-1], text, color))
    for name in REFERENCE_POLICIES:
        level = scores[f"{name}_return"]
        axes.axhline(level, color=GREY, linestyle="--", linewidth=1)
        ends.append(EndLabel(level, f"{NAMES[name]} {level:.1f}", GREY))
    axes.axhline(scores["return_mean"], color=BLUE, linestyle="--", linewidth=1)
    ends.append(EndLabel(scores["return_mean"], "held-out episodes", BLUE))
    axes.set_title(
        f"{config.env.name}: return {scores['return_mean']:.1f} in held-out episodes", loc="left"
    )
    axes.set(
        xlabel="agent-steps of all agents and environments, prefill included",
        ylabel="return of an agent per episode, reward",
    )
    format_thousands(axes)
    axes.grid(alpha=0.25)
    label_ends(axes, ends)
    caption(figure, describe_seeds(config.seeds), "Dashed: in the held-out episodes.")
    return figure


def draw_returns(
    config: HostedIqnConfig, outcomes: Outcomes, scores: Mapping[str, float]
) -> Figure:
    """Draws the share of held-out episodes whose return is at most a value, for each policy."""
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.subplots()
    learned = np.concatenate([mean_returns(episodes) for episodes in outcomes.learned])
    lines = [("learned", learned, RED, "-")]
    for name, style in zip(REFERENCE_POLICIES, (":", "--", "-."), strict=True):
        lines.append((NAMES[name], mean_returns(outcomes.references[name]), GREY, style))
    for label, values, color, style in lines:
        axes.ecdf(values, label=f"{label}, mean {values.mean():.1f}", color=color, linestyle=style)
    axes.set(
        xlabel="return of an episode, reward (mean over agents)",
        ylabel="share of episodes with at most this return",
    )
    axes.grid(alpha=0.25)
    axes.legend(loc="best")
    axes.set_title(
        f"{config.env.name}: held-out return {scores['return_mean']:.4g}, "
        f"score {scores['score']:.2f}",
        **SMALL_TITLE,
    )
    caption(figure, f"The same {config.collect.held_out_worlds} episodes under each policy.")
    return figure


class Replay(NamedTuple):
    """Holds the values that an agent expected along an episode, and its actions."""

    quantiles: Float[np.ndarray, "turn quantile action"]
    actions: np.ndarray


def replay(config: HostedIqnConfig, state: State, dataset: Dataset) -> Replay:
    """Plays a held-out episode by the greedy policy of the first seed; returns that of the first
    agent.
    """
    check(config, dataset)
    params = evaluation_params(config, state)
    policy = greedy_policy(config, state, 0)
    stacks = []
    actions = []

    def watched(obs: np.ndarray) -> np.ndarray:
        result = policy(obs)
        stacks.append(policy.stacks[0, 0])
        actions.append(result[0, 0])
        return result

    with closing(HostEnvs(config.env, 1, int(dataset.held_out.seed[0]))) as envs:
        play(envs, watched)
    taus = midpoints(config.train.acting.quantiles)
    first = jax.tree.map(lambda leaf: leaf[0, 0], params)
    quantiles = network.apply(config.network, first, jnp.asarray(np.stack(stacks)), taus)
    return Replay(np.asarray(quantiles), np.array(actions))


def draw_episode(config: HostedIqnConfig, state: State, dataset: Dataset) -> Figure:
    """Draws the quantiles of the return that each action promises along a held-out episode."""
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    axes = figure.subplots()
    episode = replay(config, state, dataset)
    turns = np.arange(len(episode.actions))
    shown = min(episode.quantiles.shape[-1], MAX_ACTIONS)
    ends = []
    for action in range(shown):
        quantiles = episode.quantiles[:, :, action]
        mean = quantiles.mean(1)
        (line,) = axes.plot(turns, mean, linewidth=1.2)
        low, high = quantiles.min(1), quantiles.max(1)
        axes.fill_between(turns, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
        share = (episode.actions == action).mean()
        ends.append(EndLabel(mean[-1], f"action {action}: {share:.0%}", line.get_color()))
    axes.set(
        xlabel="turn of the episode",
        ylabel="expected discounted return, reward",
    )
    axes.set_title(
        f"{config.env.name}: what the first agent expects along a held-out episode of "
        f"{len(turns)} turns",
        **SMALL_TITLE,
    )
    axes.grid(alpha=0.25)
    label_ends(axes, ends)
    caption(
        figure,
        f"Lines: mean over {config.train.acting.quantiles} quantiles; bands: from the lowest to "
        "the highest. Shares: how often the greedy policy took an action.",
        f"The first {shown} actions." if shown < episode.quantiles.shape[-1] else "",
    )
    return figure


def draw_learning(config: HostedIqnConfig, history: History) -> Figure:
    """Draws loss, TD error, gradient norm and epsilon over updates, means over agents."""
    figure = Figure(figsize=(10, 6.5), layout="constrained")
    clipped = curve(history, "clipped", config.seeds).values.mean()
    labels = {
        "loss": ("Loss", "quantile Huber loss"),
        "td_error_abs": ("Mean |TD error|", "reward"),
        "grad_norm": (f"Gradient norm of an agent; {clipped:.0%} were clipped", "norm"),
        "epsilon": ("Share of random actions", "epsilon"),
    }
    panels = figure.subplots(2, 2, sharex=True).flat
    for axes, (name, (title, unit)) in zip(panels, labels.items(), strict=True):
        points = curve(history, name, config.seeds)
        draw_seeds(axes, points.steps, points.values, color=RED, linewidth=1.5)
        axes.set_title(title, **SMALL_TITLE)
        axes.set(xlabel="updates of each agent", ylabel=unit)
        axes.grid(alpha=0.25)
    caption(figure, describe_seeds(config.seeds))
    return figure
