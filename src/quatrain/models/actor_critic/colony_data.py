"""config, seed -> plates and colonies, and the returns of reference policies on them.

PPO collects its own rollouts while it trains; the dataset holds what does not depend on the
weights.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Generator

from quatrain.envs.colony.config import GRAPH_FEATURES, NODE_FEATURES, PARAMETERS, START_WIDTH, Env
from quatrain.envs.colony.dynamics import Colonies, World, make_world
from quatrain.envs.colony.plates import (
    OUTSIDE,
    TRAINING,
    USER,
    PlateDistribution,
    Plates,
    fixed_plate,
    sample_plates,
    two_ridges_plate,
    user_plate,
)
from quatrain.envs.colony.policies import (
    POINTS,
    ROUNDS,
    ColonyPolicy,
    Norm,
    Search,
    best_constant,
    best_gamma,
    constant_policy,
    feedback_policy,
    measure_norm,
    noisy_policy,
    random_policy,
    with_fixed_parameters,
)
from quatrain.envs.colony.world import colonies_at, returns, start
from quatrain.errors import DatasetMismatch
from quatrain.frameworks.torch import generator_from_seed, single_threaded
from quatrain.models.actor_critic.config import ActorCriticConfig

# Colonies of each of the two policies whose observations give the normalisation.
BEHAVIOUR_COLONIES = 64
# Noise of the controller, as a share of each range; purely random episodes last five steps.
BEHAVIOUR_NOISE = 0.2
FIXED_PLATES = {"fixed": fixed_plate, "two_ridges": two_ridges_plate}


class InitialColonies(NamedTuple):
    """Holds colonies before their first step, as chains of cells from left to right.

    n: number of cells. substrate: index of the plate.
    """

    n: Int64[np.ndarray, " colony"]
    pos: Float32[np.ndarray, "colony cell 2"]
    substrate: Int64[np.ndarray, " colony"]


class References(NamedTuple):
    """Holds the returns of policies without learning; of two of them also those outside."""

    random: Float32[np.ndarray, " colony"]
    constant: Float32[np.ndarray, " colony"]
    feedback: Float32[np.ndarray, " colony"]
    constant_outside: Float32[np.ndarray, " outside"]
    feedback_outside: Float32[np.ndarray, " outside"]
    constant_action: Float32[np.ndarray, "5"]
    feedback_gamma: Float32[np.ndarray, ""]


class Training(NamedTuple):
    plates: Plates
    norm: Norm
    search: Search
    validation: InitialColonies


class HeldOut(NamedTuple):
    plates: Plates
    colonies: InitialColonies
    outside: Plates
    colonies_outside: InitialColonies
    references: References


class Dataset(NamedTuple):
    train: Training
    held_out: HeldOut


def collect(config: ActorCriticConfig, seed: int) -> Dataset:
    """Draws plates and colonies, and scores reference policies, from independent random numbers."""
    seeds = np.random.SeedSequence(seed).spawn(8)
    rules = config.env
    sizes = config.collect
    train = _plates(config, TRAINING, sizes.n_train, seeds[0])
    held_out = _plates(config, TRAINING, sizes.n_held_out, seeds[1])
    outside = _plates(config, OUTSIDE, sizes.n_outside, seeds[2])
    train_world = make_world(rules, train)
    held_out_world = make_world(rules, held_out)
    outside_world = make_world(rules, outside) if len(outside.kind) else held_out_world
    generators = [generator_from_seed(purpose) for purpose in seeds[3:]]
    validation = start(train_world, sizes.validation_colonies, generators[4])
    colonies = start(held_out_world, sizes.held_out_colonies, generators[0])
    colonies_outside = start(outside_world, _count_outside(config), generators[1])
    norm = _norm(config, train_world, generators[2])
    played = (held_out_world, colonies), (outside_world, colonies_outside)
    search, references = _references(config, train_world, *played, generators[3])
    return Dataset(
        Training(train, norm, search, _initial_colonies(rules, validation)),
        HeldOut(
            plates=held_out,
            colonies=_initial_colonies(rules, colonies),
            outside=outside,
            colonies_outside=_initial_colonies(rules, colonies_outside),
            references=references,
        ),
    )


def make_colonies(rules: Env, initial: InitialColonies) -> Colonies:
    pos = torch.zeros(len(initial.n), rules.max_nodes, 2)
    pos[:, : initial.pos.shape[1]] = torch.tensor(initial.pos)
    return colonies_at(pos, torch.tensor(initial.n), torch.tensor(initial.substrate))


def _plates(
    config: ActorCriticConfig, law: PlateDistribution, count: int, seed: np.random.SeedSequence
) -> Plates:
    single = _single_plate(config)
    if single is not None and count:
        return single
    return sample_plates(law, count, config.env.width, np.random.default_rng(seed))


def _single_plate(config: ActorCriticConfig) -> Plates | None:
    if config.collect.plates_file is not None:
        return user_plate(np.array(config.collect.plates_file.numbers, np.float32))
    fixed = FIXED_PLATES.get(config.collect.plates)
    return fixed(config.env.width) if fixed else None


def _count_outside(config: ActorCriticConfig) -> int:
    return config.collect.held_out_colonies // 2 if config.collect.n_outside else 0


def _initial_colonies(rules: Env, colonies: Colonies) -> InitialColonies:
    return InitialColonies(
        n=colonies.n.numpy(force=True),
        pos=colonies.pos[:, : rules.n0_max].numpy(force=True),
        substrate=colonies.substrate.numpy(force=True),
    )


def _norm(config: ActorCriticConfig, world: World, draws: Generator) -> Norm:
    """Measures features over whole episodes of the controller with noise, and of random actions."""
    rules = world.rules
    gamma = torch.full((BEHAVIOUR_COLONIES,), sum(config.env.action.bounds.gamma) / 2)
    policies = (
        noisy_policy(rules, feedback_policy(rules, gamma), BEHAVIOUR_NOISE, draws),
        random_policy(rules, draws),
    )
    behaviour = [_with_fixed(config, policy) for policy in policies]
    return measure_norm(world, behaviour, BEHAVIOUR_COLONIES, draws)


# Reference policies.


def _with_fixed(config: ActorCriticConfig, policy: ColonyPolicy) -> ColonyPolicy:
    return with_fixed_parameters(config.env.action.fixed_params, policy)


@single_threaded(if_small=True)
def _references(
    config: ActorCriticConfig,
    train: World,
    held_out: tuple[World, Colonies],
    outside: tuple[World, Colonies],
    draws: Generator,
) -> tuple[Search, References]:
    rules, fixed = train.rules, config.env.action.fixed_params
    search = best_constant(train, config.collect.constant_search, fixed, draws)
    gamma = best_gamma(train, fixed, draws)
    count = len(held_out[1].n)  # there are fewer colonies outside
    policies = {
        "random": random_policy(rules, draws),
        "constant": constant_policy(torch.tensor(search.best).expand(count, 5)),
        "feedback": feedback_policy(rules, gamma.expand(count)),
    }

    def play(name: str, world: World, colonies: Colonies) -> np.ndarray:
        return returns(world, colonies, _with_fixed(config, policies[name])).numpy(force=True)

    return search, References(
        **{name: play(name, *held_out) for name in policies},
        constant_outside=play("constant", *outside),
        feedback_outside=play("feedback", *outside),
        constant_action=search.best,
        feedback_gamma=gamma.numpy(force=True),
    )


# Checks.


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
    config: ActorCriticConfig, dataset: Dataset
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
        "validation colonies": (train.validation.pos, (sizes.validation_colonies, env.n0_max, 2)),
        "colonies outside": (
            held_out.colonies_outside.pos,
            (_count_outside(config), env.n0_max, 2),
        ),
        "returns of the constant action": (held_out.references.constant, colonies),
        "returns of the controller outside": (
            held_out.references.feedback_outside,
            (_count_outside(config),),
        ),
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
    low, high = np.array(env.bounds, np.float32).T
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
        "colonies of another place": all(_at_start(env, initial) for initial in colonies),
        "actions outside their bounds": _within(train.search.actions, low, high),
        "numbers held that are free": np.allclose(fixed, [*env.action.fixed_params.values()]),
    }


def _within(
    values: np.ndarray, low: float | int | np.ndarray, high: float | int | np.ndarray
) -> bool:
    return bool(((values >= low) & (values <= high)).all())


def _has_law(config: ActorCriticConfig, plates: Plates) -> bool:
    single = _single_plate(config)
    if single is not None:
        return bool((plates.intensity == single.intensity).all())
    return bool((plates.kind != USER).all() and (plates.intensity > 0).all())


def _at_start(rules: Env, initial: InitialColonies) -> bool:
    """Returns whether all cells lie in the range of initial positions, to the pixel."""
    lowest = (rules.y_center[0] - rules.y_spread) * rules.height - 1
    highest = (rules.y_center[1] + rules.y_spread) * rules.height + 1
    x, y = initial.pos[np.arange(rules.n0_max) < initial.n[:, None]].T
    return _within(x, 0, START_WIDTH * rules.width) and _within(y, lowest, highest)
