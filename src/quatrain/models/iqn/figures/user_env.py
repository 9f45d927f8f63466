"""a learner -> the figure of users' environments: what it expects along an episode"""

from collections.abc import Mapping
from contextlib import closing
from operator import itemgetter
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from quatrain.envs.host.envs import HostEnvs, play
from quatrain.models.iqn import network
from quatrain.models.iqn.config import IqnUserEnvConfig
from quatrain.models.iqn.evaluate import Outcomes
from quatrain.models.iqn.figures.policies import COMPARISON_CAPTION
from quatrain.models.iqn.figures.training import CURVE_CAPTION, LEARNING_CAPTION
from quatrain.models.iqn.learn import State, evaluation_params
from quatrain.models.iqn.network import midpoints
from quatrain.models.iqn.train import host_policy
from quatrain.models.iqn.user_env import Dataset
from quatrain.plots import SMALL_TITLE, EndLabel, Picture, caption, label_ends

# Largest number of actions of which quantiles are drawn.
MAX_ACTIONS = 6
# Picture -> what it shows, in the order of the story.
CAPTIONS = {
    "learning_curve": CURVE_CAPTION,
    "baseline_comparison": COMPARISON_CAPTION,
    "episode": "The result: what the trained agent expects of its actions in an episode.",
    "learning": LEARNING_CAPTION,
}
NOTE = ""


def pictures(
    config: IqnUserEnvConfig,
    state: State,
    dataset: Dataset,
    _outcomes: Outcomes,
    _scores: Mapping[str, float],
) -> dict[str, Picture]:
    """Draws what this world alone has."""
    return {"episode": draw_episode(config, state, dataset)}


def comparison_title(config: IqnUserEnvConfig, scores: Mapping[str, float]) -> str:
    name, mean = config.env.name, scores["return_mean"]
    return f"{name}: held-out return {mean:.4g}, score {scores['score']:.2f}"


class Replay(NamedTuple):
    """Holds the values that an agent expected along an episode, and its actions."""

    quantiles: Float[np.ndarray, "turn quantile action"]
    actions: np.ndarray


def replay(config: IqnUserEnvConfig, state: State, dataset: Dataset) -> Replay:
    """Plays a held-out episode by the greedy policy of the first seed; returns that of the first
    agent.
    """
    params = jax.tree.map(itemgetter(0), evaluation_params(config, state))
    policy = host_policy(config, state.scale, 0, params)
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
    first = jax.tree.map(itemgetter(0), params)
    quantiles = network.apply(config.network, first, jnp.asarray(np.stack(stacks)), taus)
    return Replay(np.asarray(quantiles), np.array(actions))


def draw_episode(config: IqnUserEnvConfig, state: State, dataset: Dataset) -> Figure:
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
    axes.set(xlabel="turn of the episode", ylabel="expected discounted return, reward")
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
