"""state, dataset, history of colonies -> their figures"""

from collections.abc import Mapping

import numpy as np

from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.figures import (
    baseline_comparison,
    colony_episodes,
    episode_strip,
    film,
    policy_response,
)
from quatrain.models.actor_critic.figures.replays import median_colony, replay_policies
from quatrain.models.actor_critic.figures.training import draw_learning_curve
from quatrain.models.actor_critic.ppo.learner import State
from quatrain.models.actor_critic.worlds.colony_data import Dataset
from quatrain.plots import Picture
from quatrain.progress import History


def pictures(
    config: ActorCriticConfig,
    state: State,
    dataset: Dataset,
    history: History,
    scores: Mapping[str, float],
) -> dict[str, Picture]:
    """Draws the figures; without `slopes` where all plates have the same slope."""
    held_out = dataset.held_out
    references = held_out.references
    replays = replay_policies(config, state, references, held_out.plates, held_out.colonies)
    outside = replay_policies(
        config,
        state,
        references,
        held_out.outside,
        held_out.colonies_outside,
    )
    colony = median_colony(replays.learned[0])
    frames = episode_strip.capture_frames(config, state, dataset, colony)
    intensity = held_out.plates.intensity[held_out.colonies.substrate[colony]]
    pictures: dict[str, Picture] = {
        "growth": film.animate(config, frames, intensity),
        "film": episode_strip.draw_episode_strip(config, replays, frames, intensity),
        "learning_curve": draw_learning_curve(
            config,
            history,
            scores,
            colony_episodes.compare_returns(scores),
            colony_episodes.reference_levels(scores),
        ),
        "episodes": colony_episodes.draw_episodes(config, history),
        "laws": policy_response.draw_policy_response(config, dataset, replays),
        "sizes": baseline_comparison.draw_sizes(config, dataset, replays),
        "paired": baseline_comparison.draw_paired(config, dataset, replays),
    }
    if len(np.unique(np.concatenate([held_out.plates.m, held_out.outside.m]))) > 1:
        pictures["slopes"] = baseline_comparison.draw_slopes(config, dataset, replays, outside)
    pictures |= {
        "actions": policy_response.draw_actions(config, history, replays),
        "constant_search": baseline_comparison.draw_constant_search(config, dataset, scores),
    }
    return pictures
