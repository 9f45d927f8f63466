"""state, dataset, history of colonies -> their figures"""

from collections.abc import Mapping

import numpy as np

from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.figures import film
from quatrain.models.actor_critic.figures.episodes import draw_episodes
from quatrain.models.actor_critic.figures.laws import draw_laws
from quatrain.models.actor_critic.figures.replays import LOOKS, median_colony, replay_policies
from quatrain.models.actor_critic.figures.slopes import draw_slopes
from quatrain.models.actor_critic.figures.training import draw_learning_curve, format_signed
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
    colony = median_colony(replays.learned[0])
    frames = film.capture_frames(config, state, dataset, colony)
    intensity = held_out.plates.intensity[held_out.colonies.substrate[colony]]
    title = compare_returns(scores)
    pictures: dict[str, Picture] = {
        "growth": film.animate(config, frames, intensity),
        "learning_curve": draw_learning_curve(config, history, scores, title, LOOKS),
        "episodes": draw_episodes(config, history),
        "laws": draw_laws(config, replays),
    }
    if len(np.unique(np.concatenate([held_out.plates.m, held_out.outside.m]))) > 1:
        outside = replay_policies(
            config, state, references, held_out.outside, held_out.colonies_outside
        )
        pictures["slopes"] = draw_slopes(config, dataset, replays, outside)
    return pictures


def compare_returns(scores: Mapping[str, float]) -> str:
    """Compares with the best constant action and the controller; by differences where a return is
    not positive.
    """
    constant, feedback = scores["constant_return"], scores["feedback_return"]
    if min(constant, feedback) > 0:
        return (
            f"{scores['margin_over_constant']:+.0%} on the best constant action, "
            f"{scores['fraction_of_feedback']:.1%} of the controller"
        )
    above_constant, above_feedback = (
        format_signed(scores["return_mean"] - other) for other in (constant, feedback)
    )
    return f"{above_constant} on the best constant action, {above_feedback} on the controller"
