"""state, held-out envs, history -> figures of learning, of the comparison and of fairness"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from quatrain.models.iqn.collect import Dataset
from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.evaluate import evaluate_policy, evaluate_reference_policies
from quatrain.models.iqn.figures import episodes, fairness, film, training
from quatrain.models.iqn.figures.replays import Replays
from quatrain.models.iqn.train import State
from quatrain.plots import Picture, house_style, in_order
from quatrain.progress import History

# Picture -> what it shows, in the order of the story.
CAPTIONS = {
    "episode": "The task, and how the trained agents do it: an episode in a world that they have "
    "never seen. Diamonds are worth a reward (blue ones cost it); each numbered agent sees "
    "only the cells around it, and they act in turn. The bar below: turns passed.",
    "learning_curve": "Learning: reward per episode while training, and afterwards in held-out "
    "worlds, beside policies that did not learn.",
    "baseline_comparison": "Comparison: all policies in the same held-out worlds.",
    "within_episode": "Detail: when in an episode each policy finds its reward.",
    "fairness": "Detail: how evenly agents share what they find; who acts first has the choice.",
    "learning": "Detail: what the updates of the networks do.",
}
# Number folded into a held-out env's key in place of an episode's.
REPLAY = 2**32 - 1


@house_style
def plots(
    config: IqnConfig,
    state: State,
    dataset: Dataset,
    history: History,
    scores: Mapping[str, float],
) -> dict[str, Picture]:
    """Draws the figures of a trained iqn; with several seeds means and 95 % intervals."""
    env_key = jax.random.wrap_key_data(jnp.asarray(dataset.held_out.keys[0]))
    key = jax.random.fold_in(env_key, REPLAY)
    replays = Replays(
        evaluate_policy(config, state, dataset, key),
        evaluate_reference_policies(config, dataset, key),
    )
    pictures: dict[str, Picture] = {
        "episode": film.animate(config, state, dataset, key),
        "learning_curve": training.draw_learning_curve(config, history, replays, scores),
        "baseline_comparison": episodes.draw_baseline_comparison(replays, scores),
        "within_episode": episodes.draw_within_episode(replays),
        "fairness": fairness.draw_fairness(config, replays, scores),
        "learning": training.draw_learning(config, history),
    }
    return in_order(pictures, CAPTIONS)
