"""Datasets, learners and whole trainings of small configs, without shape checks."""

from typing import Any

from quatrain.models.actor_critic import ppo, train
from quatrain.models.actor_critic.collect import collect
from quatrain.models.actor_critic.config import Config
from quatrain.models.actor_critic.evaluate import evaluate
from quatrain.progress import Progress
from tests.conftest import shapes_unchecked

_DATASETS: dict[str, Any] = {}


def dataset_of(config: Config) -> Any:
    """Returns the dataset, which is collected once for all configs of this env and collect."""
    key = config.env.model_dump_json() + config.collect.model_dump_json()
    if key not in _DATASETS:
        with shapes_unchecked():
            _DATASETS[key] = collect(config, 0)
    return _DATASETS[key]


def make_learner(config: Config) -> ppo.Learner:
    """Returns a learner before its first iteration."""
    dataset = dataset_of(config)
    return train.from_state(config, dataset, train.init_state(config, dataset, 0).seeds[0])


def trained(config: Config) -> Progress:
    """Returns the last yield of a whole training."""
    with shapes_unchecked():
        *_, last = train.train(config, dataset_of(config), 0)
    return last


def scores_of(config: Config, state: train.State) -> dict[str, float]:
    with shapes_unchecked():
        return evaluate(config, state, dataset_of(config), 0).scores
