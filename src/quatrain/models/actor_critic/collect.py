"""config, seed -> plates and colonies to learn on and to be judged with, and what simple policies earn there.

PPO makes its own rollouts while it learns; this is what does not depend on weights.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Generator, Tensor

from quatrain.envs.colony import plates as laws
from quatrain.envs.colony.dynamics import Colonies, World, make_world
from quatrain.envs.colony.episodes import episodes, returns
from quatrain.envs.colony.features import GRAPH_INTENSITIES, NODE_INTENSITIES, Observation, observe
from quatrain.envs.colony.plates import Plates
from quatrain.envs.colony.policies import (
    ColonyPolicy,
    constant_policy,
    feedback_policy,
    noisy_policy,
    random_policy,
    with_fixed_parameters,
)
from quatrain.envs.colony.reference_policies import POINTS, ROUNDS, best_constant, best_gamma
from quatrain.envs.colony.rules import GRAPH_FEATURES, NODE_FEATURES, PARAMETERS, START_WIDTH, Rules
from quatrain.envs.colony.world import colonies_at, start
from quatrain.errors import DatasetMismatch
from quatrain.frameworks.torch.rng import generator_from_seed
from quatrain.models.actor_critic.config import ActorCriticConfig

BEHAVIOUR_COLONIES = 64
"""Of each of the two policies whose observations are measured."""
BLUR = 0.2
"""Noise of the controller among them, as a share of each range: random actions alone live for five steps."""
SMALLEST_STD = 1e-3


class Norm(NamedTuple):
    """Mean and deviation of what is seen, over the cells and steps of collected behaviour."""

    node_mean: Float32[np.ndarray, " node"]
    node_std: Float32[np.ndarray, " node"]
    graph_mean: Float32[np.ndarray, " graph"]
    graph_std: Float32[np.ndarray, " graph"]


class Search(NamedTuple):
    """Constant actions that were tried, and their mean returns; those compared in the end on colonies of their own."""

    actions: Float32[np.ndarray, "point 5"]
    returns: Float32[np.ndarray, " point"]
    finalists: Float32[np.ndarray, "finalist 5"]
    final_returns: Float32[np.ndarray, " finalist"]


class Starts(NamedTuple):
    """Colonies before their first step, as chains of cells from left to right. n: cells. substrate: rows of plates."""

    n: Int64[np.ndarray, " colony"]
    pos: Float32[np.ndarray, "colony cell 2"]
    substrate: Int64[np.ndarray, " colony"]


class Floors(NamedTuple):
    """What policies that learn nothing earn with each held-out colony; and the two that were chosen in training."""

    random: Float32[np.ndarray, " colony"]
    constant: Float32[np.ndarray, " colony"]
    feedback: Float32[np.ndarray, " colony"]
    constant_action: Float32[np.ndarray, "5"]
    feedback_gamma: Float32[np.ndarray, ""]


class Training(NamedTuple):
    """Plates, how their observations are scaled, and the search for a constant policy on them."""

    plates: Plates
    norm: Norm
    search: Search


class HeldOut(NamedTuple):
    """Plates of the same law and colonies on them, plates outside its range and colonies on those, and floors."""

    plates: Plates
    colonies: Starts
    outside: Plates
    colonies_outside: Starts
    floors: Floors


class Dataset(NamedTuple):
    """What to learn on, and what to be judged with."""

    train: Training
    held_out: HeldOut


def collect(config: ActorCriticConfig, seed: int) -> Dataset:
    """Plates, colonies, floors; each from random numbers of its own."""
    seeds = np.random.SeedSequence(seed).spawn(7)
    train, held_out, outside = (
        _plates(config, law, count, np.random.default_rng(own))
        for law, count, own in (
            (laws.TRAINING, config.collect.n_train, seeds[0]),
            (laws.TRAINING, config.collect.n_held_out, seeds[1]),
            (laws.OUTSIDE, config.collect.n_outside, seeds[2]),
        )
    )
    rules, count = config.env.rules, config.collect.held_out_colonies
    worlds = {
        name: make_world(rules, plates)
        for name, plates in (("train", train), ("held_out", held_out))
    }
    colonies = start(worlds["held_out"], count, generator_from_seed(seeds[3]))
    beyond = (
        make_world(rules, outside) if len(outside.kind) else worlds["held_out"]
    )  # where none begins, any will do
    norm = _norm(config, worlds["train"], generator_from_seed(seeds[5]))
    search, floors = _floors(
        config, worlds["train"], worlds["held_out"], colonies, generator_from_seed(seeds[6])
    )
    return Dataset(
        Training(train, norm, search),
        HeldOut(
            plates=held_out,
            colonies=_starts(rules, colonies),
            outside=outside,
            colonies_outside=_starts(
                rules, start(beyond, _count_outside(config), generator_from_seed(seeds[4]))
            ),
            floors=floors,
        ),
    )


def colonies_of(rules: Rules, starts: Starts) -> Colonies:
    """The held-out colonies, ready for their first step."""
    pos = torch.zeros(len(starts.n), rules.max_nodes, 2)
    pos[:, : starts.pos.shape[1]] = torch.tensor(starts.pos)
    return colonies_at(pos, torch.tensor(starts.n), torch.tensor(starts.substrate))


def compressed(rules: Rules, observation: Observation) -> Observation:
    """ln(1 + I) in place of stiffness, which reaches 1e13 on an exponential plate."""
    node, graph = observation.node.clone(), observation.graph.clone()
    of_node, of_graph = (
        list(columns[rules.features]) for columns in (NODE_INTENSITIES, GRAPH_INTENSITIES)
    )
    node[..., of_node], graph[..., of_graph] = (
        node[..., of_node].log1p(),
        graph[..., of_graph].log1p(),
    )
    return observation._replace(node=node, graph=graph)


def _plates(
    config: ActorCriticConfig, law: laws.PlateDistribution, count: int, rng: np.random.Generator
) -> Plates:
    given = _given_plate(config)
    return (
        laws.sample_plates(law, count, config.env.width, rng)
        if given is None or not count
        else given
    )


def _given_plate(config: ActorCriticConfig) -> Plates | None:
    """The only plate, unless plates are drawn."""
    if config.collect.plates_file is not None:
        return laws.user_plate(np.array(config.collect.plates_file.numbers, np.float32))
    return laws.fixed_plate(config.env.width) if config.collect.plates == "fixed" else None


def _count_outside(config: ActorCriticConfig) -> int:
    return config.collect.held_out_colonies // 2 if config.collect.n_outside else 0


def _starts(rules: Rules, colonies: Colonies) -> Starts:
    fields = (colonies.n, colonies.pos[:, : rules.n0_max], colonies.substrate)
    return Starts(*(field.numpy(force=True) for field in fields))


# What is seen.


def _norm(config: ActorCriticConfig, world: World, draws: Generator) -> Norm:
    """Over whole episodes of the controller with noise and of random actions."""
    gamma = torch.full((BEHAVIOUR_COLONIES,), sum(config.env.action.bounds.gamma) / 2)
    steady = noisy_policy(world.rules, feedback_policy(world.rules, gamma), BLUR, draws)
    policies = (steady, random_policy(world.rules, draws))
    seen = [
        _sums(world, _act(config, one), start(world, BEHAVIOUR_COLONIES, draws)) for one in policies
    ]
    found = []
    for sums in zip(*seen, strict=True):
        count, total, squares = (sum(parts) for parts in zip(*sums, strict=True))
        mean = total / count
        found += [
            mean,
            (squares / count - mean.square()).clamp(min=0).sqrt().clamp(min=SMALLEST_STD),
        ]
    return Norm(*(values.float().numpy(force=True) for values in found))


def _sums(world: World, act: ColonyPolicy, colonies: Colonies) -> list[list[Tensor]]:
    """Of cells and of colonies: their number, and the sums of their features and of the squares of those."""
    node, graph = (
        torch.zeros(2, sizes[world.rules.features]) for sizes in (NODE_FEATURES, GRAPH_FEATURES)
    )
    sums = [[torch.zeros((), dtype=torch.float64), *columns.double()] for columns in (node, graph)]
    for moment in episodes(world, colonies, act):
        before = moment.transition.before
        seen = compressed(world.rules, observe(world, before, before.parent.shape[1]))
        for own, values in zip(
            sums, (seen.node[seen.mask].double(), seen.graph.double()), strict=True
        ):
            for place, value in enumerate(
                (torch.tensor(len(values)), values.sum(0), values.square().sum(0))
            ):
                own[place] = own[place] + value
    return sums


# Floors.


def _act(config: ActorCriticConfig, act: ColonyPolicy) -> ColonyPolicy:
    return with_fixed_parameters(config.env.action.fixed_params, act)


def _floors(
    config: ActorCriticConfig, train: World, held_out: World, colonies: Colonies, draws: Generator
) -> tuple[Search, Floors]:
    """Chosen on training plates, scored with the held-out colonies: no selection bias."""
    fixed, count = config.env.action.fixed_params, len(colonies.n)
    search = best_constant(train, config.collect.constant_search, fixed, draws)
    gamma = best_gamma(train, fixed, draws)
    scored = [
        returns(held_out, colonies, _act(config, act))
        for act in (
            random_policy(held_out.rules, draws),
            constant_policy(search.best.expand(count, 5)),
            feedback_policy(held_out.rules, gamma.expand(count)),
        )
    ]
    found = (values.numpy(force=True) for values in search[:-1])
    return Search(*found), Floors(
        *(values.numpy(force=True) for values in (*scored, search.best, gamma))
    )


# Whose is it?


def check(config: ActorCriticConfig, dataset: Dataset) -> None:
    """Refuse a dataset that this config cannot have produced.

    Raises:
        DatasetMismatch: a size, or a value that no plate or colony of this config can have.
    """
    for name, (array, shape) in _shapes(config, dataset).items():
        if array.shape != shape:
            raise _refused(f"{name} have the shape {array.shape}, not {shape}")
    train, held_out, env = dataset.train, dataset.held_out, config.env
    tried, (low, high) = train.search.actions, np.array(env.rules.bounds, np.float32).T
    known = (train.plates, held_out.plates, held_out.outside)
    begun = ((held_out.plates, held_out.colonies), (held_out.outside, held_out.colonies_outside))
    for name, fits in (
        ("plates of another law", all(_of_law(config, plates) for plates in known)),
        (
            "colonies on plates that are not there",
            all(_within(one.substrate, 0, len(p.kind) - 1) for p, one in begun),
        ),
        (
            "colonies of another size",
            all(_within(one.n, env.n0_min, env.n0_max) for _, one in begun),
        ),
        ("colonies of another place", all(_begin(env.rules, one) for _, one in begun)),
        ("actions outside their bounds", _within(tried, low, high)),
        ("numbers held that are free", _holds(config, tried)),
    ):
        if not fits:
            raise _refused(f"it has {name}")


def _shapes(
    config: ActorCriticConfig, dataset: Dataset
) -> dict[str, tuple[np.ndarray, tuple[int, ...]]]:
    """What is there, and the shape that it should have."""
    (plates, norm, search), held_out = dataset.train, dataset.held_out
    env, chosen, colonies = config.env, config.collect, config.collect.held_out_colonies
    return {
        "training plates": (plates.intensity, (chosen.n_train, env.width)),
        "held-out plates": (held_out.plates.intensity, (chosen.n_held_out, env.width)),
        "plates outside": (held_out.outside.intensity, (chosen.n_outside, env.width)),
        "held-out colonies": (held_out.colonies.pos, (colonies, env.n0_max, 2)),
        "colonies outside": (
            held_out.colonies_outside.pos,
            (_count_outside(config), env.n0_max, 2),
        ),
        "returns of the constant action": (held_out.floors.constant, (colonies,)),
        "points of the search": (
            search.actions,
            (chosen.constant_search + ROUNDS * POINTS, len(PARAMETERS)),
        ),
        "means of node features": (norm.node_mean, (NODE_FEATURES[env.features],)),
        "means of graph features": (norm.graph_mean, (GRAPH_FEATURES[env.features],)),
    }


def _within(
    values: np.ndarray, low: float | int | np.ndarray, high: float | int | np.ndarray
) -> bool:
    return bool(((values >= low) & (values <= high)).all())


def _of_law(config: ActorCriticConfig, plates: Plates) -> bool:
    given = _given_plate(config)
    if given is not None:
        return bool((plates.intensity == given.intensity).all())
    return bool((plates.kind != laws.USER).all() and (plates.intensity > 0).all())


def _begin(rules: Rules, starts: Starts) -> bool:
    """At the left side, as far up and down as colonies begin; to the pixel."""
    (low, high), spread = rules.y_center, rules.y_spread
    x, y = starts.pos[np.arange(rules.n0_max) < starts.n[:, None]].T
    above, below = (low - spread) * rules.height - 1, (high + spread) * rules.height + 1
    return _within(x, 0, START_WIDTH * rules.width) and _within(y, above, below)


def _holds(config: ActorCriticConfig, actions: np.ndarray) -> bool:
    fixed = config.env.action.fixed_params.items()
    return all(
        bool(np.allclose(actions[:, PARAMETERS.index(name)], value)) for name, value in fixed
    )


def _refused(why: str) -> DatasetMismatch:
    return DatasetMismatch(
        f"the dataset was not collected for actor_critic.env and .collect: {why}; run `dvc repro`"
    )
