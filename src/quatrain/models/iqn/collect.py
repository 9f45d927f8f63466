"""config, seed -> transitions of a random policy in the training envs, and held-out envs

A world of iqn (treasurehunt.py, user_env.py, jax_env.py) is a module, `config.world`, with

    Dataset, collect, check, sizes                             what is collected
    replay_inputs, scale_of, init_play_state                   what a training begins with
    COMPILED                                                   which loop plays it
    play_template                                              what a saved one is restored by
    INPUT, input_sizes, input_limits, empty_scale, read        what is asked of a served model
    example                                                    a question

and with what its loop in train.py plays: `make_world`, `event_rates`, `greedy_returns` inside
compiled programs (compiled.py); or `open_envs`, `Player`, `mean_returns` between them. One of a
user also has `Envs`, `MOST_ENVS`, `GreedyPolicy`, `by_seed`, which play held-out episodes.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32, Shaped

from quatrain.errors import DatasetMismatch
from quatrain.models.iqn.config import LearnerConfig
from quatrain.replay.frames.ring import AnyArray

Shapes = dict[str, tuple[int, ...]]
# Questions of an example request.
EXAMPLES = 2
# Stands for a return where there is none yet; arrays that are saved are finite.
NO_RETURN = float(np.finfo(np.float32).min)
# Of the parameter whose shape is a `Sizes.layout`.
LAYOUT = "layout"


class Sizes(NamedTuple):
    """Holds the sizes of a world; hashable.

    frame: numbers that an agent observes in a turn. layout: where these are more than a vector,
    rows, columns and channels of an image, which comes first, numbers of the vector behind it, and
    of the mask of actions behind both; 0 of what is not there.
    """

    agents: int
    frame: int
    actions: int
    layout: tuple[int, ...] = ()


class Scale(NamedTuple):
    """Holds how observations become inputs: (obs - mean) / deviation."""

    mean: Float32[AnyArray, "*seed obs"]
    deviation: Float32[AnyArray, "*seed obs"]


def scaled(scale: Scale, obs: Shaped[AnyArray, "*any obs"]) -> Shaped[AnyArray, "*any obs"]:
    """Returns inputs of observations, bytes as they are; the scale is that of one seed."""
    return obs if obs.dtype == np.uint8 else (obs - scale.mean) / scale.deviation


def dataset_type(config: LearnerConfig) -> Any:
    """Returns the type of the world's datasets, which have `train` and `held_out`.

    train: the prefill of each seed's replay (leading axis seed). Its last turn counts as final,
    because training begins with new episodes.
    """
    return config.world.Dataset


def collect(config: LearnerConfig, seed: int) -> Any:
    """Plays `collect.turns` turns of a uniform random policy per env, and draws held-out envs."""
    return config.world.collect(config, seed)


def check(config: LearnerConfig, dataset: Any) -> None:
    """Raises if this config cannot have produced the dataset.

    Raises:
        DatasetMismatch: a size, or a value that is impossible in this world.
        DataError: a user's environment cannot be made, or iqn cannot act in it.
    """
    config.world.check(config, dataset)


def check_arrays(
    config: LearnerConfig,
    dataset: Any,
    place: str,
    held_out: Shapes,
    impossible_value: Callable[[Any, Any], str | None],
) -> None:
    """Raises DatasetMismatch unless the arrays have the shapes of a world's sizes, the held-out
    ones these, and values that it shows; `place` is what messages call the world.
    """
    expected = train_shapes(config, config.world.sizes(config, dataset)) | held_out
    arrays = (*dataset.train, *dataset.held_out)
    problems = [
        f"{name} have the shape {array.shape}, not {shape}"
        for (name, shape), array in zip(expected.items(), arrays, strict=True)
        if array.shape != shape
    ]
    problem = problems[0] if problems else impossible_value(config, dataset)
    if problem:
        raise DatasetMismatch(
            f"the dataset was not collected in {place}: {problem}; run `dvc repro`"
        )


def train_shapes(config: LearnerConfig, sizes: Sizes) -> Shapes:
    """Returns the shapes of the columns of the prefill."""
    per_env = (config.seeds, config.collect.turns, config.env.worlds)
    per_agent = (*per_env[:2], sizes.agents, config.env.worlds)
    columns = {"frames": (*per_agent, sizes.frame), "actions": per_agent, "rewards": per_agent}
    return columns | dict.fromkeys(("terminated", "final", "turn"), per_env)
