"""config, seed -> what training and evaluation read, and the returns of policies without learning

PPO collects its own rollouts while it trains; the dataset holds what does not depend on the
weights.
"""

from typing import Any

from quatrain.models.actor_critic.config import Config


def dataset_type(config: Config) -> type[Any]:
    dataset: type[Any] = config.world.Dataset
    return dataset


def collect(config: Config, seed: int) -> Any:
    """Collects a dataset, from independent random numbers for each purpose.

    Raises:
        DataError: a user's environment cannot be made, or has actions or observations that cannot
            be used.
    """
    return config.world.collect(config, seed)


def check(config: Config, dataset: Any) -> None:
    """Checks sizes and ranges of values; makes a user's environment.

    Raises:
        DatasetMismatch: this config cannot have collected the dataset.
        DataError: the environment cannot be made.
    """
    config.world.check(config, dataset)
