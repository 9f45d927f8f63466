"""state, dataset, history -> figures of training, of the learned policy, and of its comparison with
reference policies.
"""

from collections.abc import Mapping

import numpy as np

from quatrain.models.actor_critic.collect import Dataset
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.figures import (
    baseline_comparison,
    episode_strip,
    film,
    policy_response,
    training,
    updates,
)
from quatrain.models.actor_critic.figures.replays import median_colony, replay_policies
from quatrain.models.actor_critic.train import State
from quatrain.plots import Picture, house_style, in_order
from quatrain.progress import History

# Picture -> what it shows, in the order of the story.
CAPTIONS = {
    "growth": "The task, and how the trained policy does it: a colony of cells that it has never "
    "seen grows over a plate towards stiff ground (dark). In each step cells are deleted, and the "
    "others throw a child (orange). The policy decides how many and how far.",
    "film": "The same colony at six moments.",
    "learning_curve": "Learning: return per episode while training, and afterwards with held-out "
    "colonies, beside policies that did not learn.",
    "episodes": "Learning, by what an episode pays and by how it ends.",
    "laws": "The result: what the policy does depending on what it sees, beside the hand-written "
    "controller, whose formulas it was never told.",
    "sizes": "The result: size and height of held-out colonies under three policies.",
    "paired": "Comparison, colony by colony: above the dashed line the learned policy earns more.",
    "slopes": "Comparison by plate, also with slopes that training never had.",
    "actions": "Detail: the five numbers of an action, over training and within an episode.",
    "constant_search": "Detail: how the best constant action was found, which must be beaten.",
    "updates": "Detail: what the updates of the networks do.",
}


@house_style
def plots(
    config: ActorCriticConfig,
    state: State,
    dataset: Dataset,
    history: History,
    scores: Mapping[str, float],
) -> dict[str, Picture]:
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
    colony = median_colony(replays.learned[0])
    frames = episode_strip.capture_frames(config, state, dataset, colony)
    intensity = held_out.plates.intensity[held_out.colonies.substrate[colony]]
    pictures: dict[str, Picture] = {
        "growth": film.animate(config, frames, intensity),
        "film": episode_strip.draw_episode_strip(config, replays, frames, intensity),
        "learning_curve": training.draw_learning_curve(config, history, scores),
        "episodes": training.draw_episodes(config, history),
        "laws": policy_response.draw_policy_response(config, dataset, replays),
        "sizes": baseline_comparison.draw_sizes(config, dataset, replays),
        "paired": baseline_comparison.draw_paired(config, dataset, replays),
    }
    if len(np.unique(np.concatenate([held_out.plates.m, held_out.outside.m]))) > 1:
        pictures["slopes"] = baseline_comparison.draw_slopes(config, dataset, replays, outside)
    pictures |= {
        "actions": policy_response.draw_actions(config, history, replays),
        "constant_search": baseline_comparison.draw_constant_search(config, dataset, scores),
        "updates": updates.draw_updates(config, history),
    }
    return in_order(pictures, CAPTIONS)
