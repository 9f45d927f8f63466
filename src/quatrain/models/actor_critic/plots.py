"""state, dataset, history -> figures of training, of the learned policy, and of its comparison with
reference policies.
"""

from collections.abc import Mapping
from typing import Any

from quatrain.models.actor_critic.config import Config
from quatrain.models.actor_critic.figures.updates import draw_updates
from quatrain.models.actor_critic.ppo.learner import State
from quatrain.plots import Picture, house_style, in_order
from quatrain.progress import History

# Picture -> what it shows, in the order of the story.
CAPTIONS = {
    "growth": "The task, and how the trained policy does it: a colony of cells that it has never "
    "seen grows over a plate towards stiff ground (dark). In each step cells are deleted, and the "
    "others throw a child (orange). The policy decides how many and how far.",
    "film": "The same colony at six moments.",
    "learning_curve": "Learning: return per episode while training, and afterwards in held-out "
    "episodes, beside policies that did not learn.",
    "returns": "The result: held-out episodes of all policies, by their return.",
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
