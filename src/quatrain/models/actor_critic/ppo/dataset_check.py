"""config, dataset -> whether this config can have collected it."""

import numpy as np

from quatrain.envs.colony.plates import USER, Plates
from quatrain.envs.colony.reference_policies import POINTS, ROUNDS
from quatrain.envs.colony.rules import GRAPH_FEATURES, NODE_FEATURES, PARAMETERS, START_WIDTH, Rules
from quatrain.errors import DatasetMismatch
from quatrain.models.actor_critic.collect import (
    Dataset,
    InitialColonies,
    count_outside,
    single_plate,
)
from quatrain.models.actor_critic.config import ActorCriticConfig


def check(config: ActorCriticConfig, dataset: Dataset) -> None:
    """Checks sizes and ranges of values.

    Raises:
        DatasetMismatch: this config cannot have collected the dataset.
    """
    problems = [
        f"{name} have the shape {array.shape}, not {shape}"
        for name, (array, shape) in _shapes(config, dataset).items()
        if array.shape != shape
    ] or [f"it has {name}" for name, fits in _value_checks(config, dataset).items() if not fits]
    if problems:
        raise DatasetMismatch(
            "the dataset was not collected for actor_critic.env and .collect: "
            f"{problems[0]}; run `dvc repro`"
        )


def _shapes(
    config: ActorCriticConfig,
    dataset: Dataset,
) -> dict[str, tuple[np.ndarray, tuple[int, ...]]]:
    train, held_out = dataset
    env = config.env
    sizes = config.collect
    colonies = (sizes.held_out_colonies,)
    return {
        "training plates": (train.plates.intensity, (sizes.n_train, env.width)),
        "held-out plates": (held_out.plates.intensity, (sizes.n_held_out, env.width)),
        "plates outside": (held_out.outside.intensity, (sizes.n_outside, env.width)),
        "held-out colonies": (held_out.colonies.pos, (*colonies, env.n0_max, 2)),
        "validation colonies": (
            train.validation.pos,
            (sizes.validation_colonies, env.n0_max, 2),
        ),
        "colonies outside": (
            held_out.colonies_outside.pos,
            (count_outside(config), env.n0_max, 2),
        ),
        "returns of the constant action": (held_out.references.constant, colonies),
        "points of the search": (
            train.search.actions,
            (sizes.constant_search + ROUNDS * POINTS, len(PARAMETERS)),
        ),
        "means of node features": (train.norm.node_mean, (NODE_FEATURES[env.features],)),
        "means of graph features": (train.norm.graph_mean, (GRAPH_FEATURES[env.features],)),
    }


def _value_checks(config: ActorCriticConfig, dataset: Dataset) -> dict[str, bool]:
    train, held_out = dataset
    env = config.env
    low, high = np.array(env.rules.bounds, np.float32).T
    all_plates = (train.plates, held_out.plates, held_out.outside)
    colonies = (train.validation, held_out.colonies, held_out.colonies_outside)
    fixed = train.search.actions[:, [PARAMETERS.index(name) for name in env.action.fixed_params]]
    return {
        "plates of another law": all(_has_law(config, plates) for plates in all_plates),
        "colonies on plates that are not there": all(
            _within(initial.substrate, 0, len(plates.kind) - 1)
            for plates, initial in zip(all_plates, colonies, strict=True)
        ),
        "colonies of another size": all(
            _within(initial.n, env.n0_min, env.n0_max) for initial in colonies
        ),
        "colonies of another place": all(_at_start(env.rules, initial) for initial in colonies),
        "actions outside their bounds": _within(train.search.actions, low, high),
        "numbers held that are free": np.allclose(fixed, [*env.action.fixed_params.values()]),
    }


def _within(
    values: np.ndarray,
    low: float | int | np.ndarray,
    high: float | int | np.ndarray,
) -> bool:
    return bool(((values >= low) & (values <= high)).all())


def _has_law(config: ActorCriticConfig, plates: Plates) -> bool:
    single = single_plate(config)
    if single is not None:
        return bool((plates.intensity == single.intensity).all())
    return bool((plates.kind != USER).all() and (plates.intensity > 0).all())


def _at_start(rules: Rules, initial: InitialColonies) -> bool:
    """Returns whether all cells lie in the range of initial positions, to the pixel."""
    lowest = (rules.y_center[0] - rules.y_spread) * rules.height - 1
    highest = (rules.y_center[1] + rules.y_spread) * rules.height + 1
    x, y = initial.pos[np.arange(rules.n0_max) < initial.n[:, None]].T
    return _within(x, 0, START_WIDTH * rules.width) and _within(y, lowest, highest)
