"""learner, dataset, history -> figures: how fast was it learned, what was learned, and where does it stand?"""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from quatrain.models.actor_critic.collect import Dataset
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.figures import film, laws, standing, training
from quatrain.models.actor_critic.figures.replays import replayed
from quatrain.models.actor_critic.train import State
from quatrain.progress import History


def plots(
    config: ActorCriticConfig,
    state: State,
    dataset: Dataset,
    history: History,
    scores: Mapping[str, float],
) -> dict[str, Figure]:
    """Figures of one trained actor_critic; of several seeds means with 95 % intervals over seeds.

    Return against slope is left out where all plates have the same.
    """
    held_out = dataset.held_out
    replays = replayed(config, state, held_out.floors, held_out.plates, held_out.colonies)
    outside = replayed(config, state, held_out.floors, held_out.outside, held_out.colonies_outside)
    figures = {
        "learning_curve": training.draw_learning_curve(config, history, scores),
        "episodes": training.draw_episodes(config, history),
        "updates": training.draw_updates(config, history),
        "actions": laws.draw_actions(config, history, replays),
        "laws": laws.draw_laws(config, dataset, replays),
        "sizes": standing.draw_sizes(config, dataset, replays),
        "film": film.draw_film(config, state, dataset, replays),
        "paired": standing.draw_paired(config, dataset, replays),
        "constant_search": standing.draw_constant_search(config, dataset, scores),
    }
    if len(np.unique(np.concatenate([held_out.plates.m, held_out.outside.m]))) > 1:
        figures["slopes"] = standing.draw_slopes(config, dataset, replays, outside)
    return figures
