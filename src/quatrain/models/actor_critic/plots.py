"""state, dataset, history -> figures of training, of the learned policy, and of its comparison with
reference policies.
"""

from collections.abc import Mapping
from typing import Any

from quatrain.models.actor_critic.config import Config
from quatrain.models.actor_critic.figures.training import draw_updates
from quatrain.models.actor_critic.ppo.learner import State
from quatrain.plots import Picture, house_style, in_order
from quatrain.progress import History

# Picture -> what it shows, in the order of the story.
CAPTIONS = {
    "growth": "What is to be done, and how does the trained policy do it? A colony of cells that "
    "it has never seen grows over a plate towards stiff ground (dark). In each step cells are "
    "deleted, and the others throw a child (orange). The policy decides how many and how far.",
    "learning_curve": "Does it learn? Return per episode while training, and afterwards in "
    "held-out episodes, beside policies that did not learn.",
    "returns": "How much does luck decide? Held-out episodes of all policies, by their return.",
    "episodes": "What becomes better? What an episode pays, and how it ends.",
    "laws": "What has it learned? What the policy does depending on what it sees, beside the "
    "hand-written controller, whose formulas it was never told.",
    "slopes": "Does it hold elsewhere? All policies by the slope of the plate, also with slopes "
    "that training never had.",
    "updates": "Are the updates sound? How far they move the policy, and how good its values are.",
}


def drawing(config: Config) -> Any:
    """Returns the module of figures in the config's environment."""
    if config.brings_env:
        from quatrain.models.actor_critic.figures import user_env

        return user_env
    from quatrain.models.actor_critic.figures import colony

    return colony


@house_style
def plots(
    config: Config, state: State, dataset: Any, history: History, scores: Mapping[str, float]
) -> dict[str, Picture]:
    """Draws the figures of one trained actor_critic; of several seeds means with 95 % intervals
    over seeds.
    """
    pictures = drawing(config).pictures(config, state, dataset, history, scores)
    return in_order(pictures | {"updates": draw_updates(config, history)}, CAPTIONS)
