"""state, dataset, history -> figures of training, of the learned policy, and of its comparison with
reference policies.
"""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from quatrain.models.actor_critic.collect import Dataset
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.figures import (
    baseline_comparison,
    episode_strip,
    policy_response,
    training,
    updates,
)
from quatrain.models.actor_critic.figures.replays import replay_policies
from quatrain.models.actor_critic.train import State
from quatrain.plots import house_style
from quatrain.progress import History


@house_style
def plots(
    config: ActorCriticConfig,
    state: State,
    dataset: Dataset,
    history: History,
    scores: Mapping[str, float],
) -> dict[str, Figure]:
    """Draws the figures of one trained actor_critic; of several seeds means with 95 % intervals
    over seeds.

    Without `slopes` where all plates have the same slope.
    """
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
    figures = {
        "film": episode_strip.draw_episode_strip(config, state, dataset, replays),
        "learning_curve": training.draw_learning_curve(config, history, scores),
        "episodes": training.draw_episodes(config, history),
        "laws": policy_response.draw_policy_response(config, dataset, replays),
        "sizes": baseline_comparison.draw_sizes(config, dataset, replays),
        "paired": baseline_comparison.draw_paired(config, dataset, replays),
    }
    if len(np.unique(np.concatenate([held_out.plates.m, held_out.outside.m]))) > 1:
        figures["slopes"] = baseline_comparison.draw_slopes(config, dataset, replays, outside)
    return figures | {
        "actions": policy_response.draw_actions(config, history, replays),
        "constant_search": baseline_comparison.draw_constant_search(config, dataset, scores),
        "updates": updates.draw_updates(config, history),
    }
