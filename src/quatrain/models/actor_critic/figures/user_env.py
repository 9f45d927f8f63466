"""state, dataset, history in an environment that a user or a library brings -> its figures"""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from quatrain.envs.host.rules import REFERENCES
from quatrain.models.actor_critic.config import ActorCriticUserEnvConfig
from quatrain.models.actor_critic.figures.training import Look, draw_learning_curve
from quatrain.models.actor_critic.ppo.learner import State
from quatrain.models.actor_critic.scores.user_env import evaluate_policy, reference_returns
from quatrain.models.actor_critic.worlds.user_env import Dataset
from quatrain.plots import BLACK, BLUE, GREY, RED, Picture, caption
from quatrain.progress import History

COLORS = {"random": GREY, "constant": BLACK, "untrained": BLUE}
LOOKS = {"learned": Look("learned", RED)} | {
    name: Look(words, COLORS[name]) for name, words in REFERENCES.items()
}


def pictures(
    config: ActorCriticUserEnvConfig,
    state: State,
    dataset: Dataset,
    history: History,
    scores: Mapping[str, float],
) -> dict[str, Picture]:
    return {
        "learning_curve": draw_learning_curve(config, history, scores, config.env.name, LOOKS),
        "returns": draw_returns(config, state, dataset),
    }


def draw_returns(config: ActorCriticUserEnvConfig, state: State, dataset: Dataset) -> Figure:
    """Draws which share of held-out episodes returns at most so much, for each policy."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    learned = [outcome.returns[:, 0] for outcome in evaluate_policy(config, state, dataset)]
    policies = {"learned": np.concatenate(learned), **reference_returns(config, dataset)}
    for name, returns in policies.items():
        label = f"{LOOKS[name].name}, mean {returns.mean():.4g}"
        axes.ecdf(returns, color=LOOKS[name].color, linewidth=1.8, label=label)
    axes.set(xlabel="return of an episode, undiscounted", ylabel="share of episodes, at most")
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, loc="best", frameon=False)
    axes.set_title(f"{config.env.name}: held-out episodes", fontsize=11)
    episodes = f"{config.collect.held_out_episodes} held-out episodes"
    caption(figure, f"{episodes}, the same for all policies; of the learned ones all together.")
    return figure
