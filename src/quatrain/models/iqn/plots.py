"""state, held-out envs, history -> figures of learning, of the comparison and of the world's own"""

from collections.abc import Mapping
from typing import Any

from quatrain.models.iqn.config import LearnerConfig
from quatrain.models.iqn.evaluate import play_held_out
from quatrain.models.iqn.figures.policies import draw_comparison
from quatrain.models.iqn.figures.training import draw_learning, draw_learning_curve
from quatrain.models.iqn.learn import State
from quatrain.plots import Picture, house_style, in_order
from quatrain.progress import History

# Seed of the policies that draw.
SEED = 0


@house_style
def plots(
    config: LearnerConfig, state: State, dataset: Any, history: History, scores: Mapping[str, float]
) -> dict[str, Picture]:
    """Draws the figures of a trained iqn; with several seeds means and 95 % intervals."""
    world = figures_of(config)
    outcomes = play_held_out(config, state, dataset, SEED)
    agents = len(outcomes.learned[0].returns)
    title = world.comparison_title(config, scores)
    pictures: dict[str, Picture] = {
        "learning_curve": draw_learning_curve(config, history, outcomes, scores),
        "baseline_comparison": draw_comparison(config, outcomes, scores, title, world.NOTE),
        "learning": draw_learning(config, agents, history),
    }
    pictures |= world.pictures(config, state, dataset, outcomes, scores)
    return in_order(pictures, world.CAPTIONS)


def figures_of(config: LearnerConfig) -> Any:
    """Returns the module of the figures that the config's world alone has."""
    if config.brings_env:
        from quatrain.models.iqn.figures import user_env

        return user_env
    from quatrain.models.iqn.figures import treasurehunt

    return treasurehunt
