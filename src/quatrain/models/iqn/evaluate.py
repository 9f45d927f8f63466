"""learner, held-out worlds -> scores: where the policy stands between chance and an oracle, and who gets what."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int, Int8, Key

from quatrain.baselines import Gated
from quatrain.envs.treasurehunt import policies, turns
from quatrain.envs.treasurehunt.config import Env
from quatrain.envs.treasurehunt.rules import Rules
from quatrain.envs.treasurehunt.turns import Policy
from quatrain.envs.treasurehunt.world import make_world
from quatrain.models.iqn import network
from quatrain.models.iqn.collect import Dataset, HeldOut, lanes_of
from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.cycle.acting import greedy_policy
from quatrain.models.iqn.cycle.playing import named_events
from quatrain.models.iqn.train import State, judged_params
from quatrain.statistics import aggregate_seeds, bootstrap_interval, interquartile_mean

YARDSTICKS: Mapping[str, Callable[[Rules], Policy]] = {
    "random": policies.random_policy,
    "free_random": policies.free_random_policy,
    "constant": policies.constant_policy,
    "oracle_view": partial(policies.oracle_policy, view="view"),
    "oracle_full": partial(policies.oracle_policy, view="full"),
}
"""Policies that play the same worlds with the same spawn noise: floors, and ceilings for reactive policies."""
FLOORS = ("random_return", "free_random_return", "constant_return")
CEILINGS = ("oracle_view_return", "oracle_full_return")
GATED = (
    Gated("return_mean", "higher", 3.0, {}, FLOORS, CEILINGS),
    Gated("share", "higher", 0.03, {"default": 0.95}),
    Gated("score", "higher", 0.06, {}),
)


ORDERS = 32
"""Draws of a shuffled order, at most, over which an evaluation averages."""


class Outcome(NamedTuple):
    """One episode of every held-out world under one policy."""

    rewards: Float[np.ndarray, "turns agents worlds"]
    events: Int8[np.ndarray, "turns agents worlds"]
    items_left: Int[np.ndarray, " worlds"]


def evaluate(config: IqnConfig, state: State, dataset: Dataset, seed: int) -> dict[str, float]:
    """Metrics of iqn; with several seeds means, and for what is judged also sd and 95 % interval over seeds.

    Returns are undiscounted sums of an episode's rewards, means over worlds and agents. `share` is the return over
    that of the oracle with the agents' own view, `score` is 0 at chance and 1 at that oracle; NaN where that oracle
    earns nothing, or no more than chance.
    """
    key = jax.random.key(seed)
    yardsticks = {name: yardstick(config, name, dataset, key) for name in YARDSTICKS}
    outcomes = learned(config, state, dataset, key)
    judged = [gated.metric for gated in GATED]
    scores = aggregate_seeds(
        [_scores(config.env, outcome, yardsticks) for outcome in outcomes], judged
    )
    for name, outcome in yardsticks.items():
        scores |= {
            f"{name}_return": returns(outcome).mean(),
            f"{name}_return_se": standard_error(outcome),
        }
    scores["oracle_view_order_gap"] = order_gap(yardsticks["oracle_view"])
    scores |= _sureness(
        config, [returns(outcome).mean(0) for outcome in outcomes], yardsticks, seed
    )
    return {name: float(value) for name, value in scores.items()}


def _sureness(
    config: IqnConfig,
    of_seeds: Sequence[Float[np.ndarray, " worlds"]],
    yardsticks: Mapping[str, Outcome],
    seed: int,
) -> dict[str, float]:
    """Of several seeds the interquartile mean; of one the interval of `score` over worlds, drawn anew in pairs."""
    if len(of_seeds) > 1:
        return {"return_iqm": interquartile_mean(np.array([one.mean() for one in of_seeds]))}
    chance, oracle = (returns(yardsticks[name]).mean(0) for name in ("random", "oracle_view"))
    if oracle.mean() <= chance.mean():
        return {}
    rng, resamples = np.random.default_rng(seed), config.evaluate.bootstrap_samples
    low, high = bootstrap_interval([of_seeds[0], chance, oracle], _score_of_means, rng, resamples)
    return {"score_low": low, "score_high": high}


def _score_of_means(
    learned: np.ndarray, chance: np.ndarray, oracle: np.ndarray, axis: int
) -> np.ndarray:
    span = oracle.mean(axis) - chance.mean(axis)
    return (learned.mean(axis) - chance.mean(axis)) / np.where(span == 0, np.nan, span)


# Playing.


def learned(
    config: IqnConfig, state: State, dataset: Dataset, key: Key[Array, ""]
) -> list[Outcome]:
    """The greedy policy of each seed."""
    params = judged_params(config, state)
    of_seeds = [
        jax.tree.map(lambda leaf, seed=seed: leaf[seed], params) for seed in range(config.seeds)
    ]
    return [
        Outcome(*jax.device_get(_play_learned(config, one, dataset.held_out, key)))
        for one in of_seeds
    ]


def yardstick(config: IqnConfig, name: str, dataset: Dataset, key: Key[Array, ""]) -> Outcome:
    """One of `YARDSTICKS`."""
    return Outcome(*jax.device_get(_play_yardstick(config, name, dataset.held_out, key)))


@partial(jax.jit, static_argnums=0)
def _play_learned(
    config: IqnConfig, params: network.Params, held_out: HeldOut, key: Array
) -> tuple[Array, ...]:
    return _episodes(config, greedy_policy(config, params), held_out, key)


@partial(jax.jit, static_argnums=(0, 1))
def _play_yardstick(
    config: IqnConfig, name: str, held_out: HeldOut, key: Array
) -> tuple[Array, ...]:
    return _episodes(config, YARDSTICKS[name](config.env.rules), held_out, key)


def _episodes(
    config: IqnConfig, policy: Policy, held_out: HeldOut, key: Array
) -> tuple[Array, ...]:
    """Rewards, events, and the items that are left; with a turn to spare, for after the last one worlds are reset.

    Parallel worlds share the order of a turn; a shuffled one is drawn for several groups of worlds, so that what
    it does to the first and the last agent averages out.
    """
    worlds, turns_played = len(held_out.keys), config.env.max_turns
    groups = math.gcd(worlds, ORDERS) if config.env.agent_order == "shuffled" else 1
    world = make_world(config.env.rules._replace(max_turns=turns_played + 1))

    def play(part_and_key: tuple[HeldOut, Array]) -> tuple[Array, ...]:
        part, own_key = part_and_key
        played = turns.play(
            world, lanes_of(config, part), policy, own_key, jnp.int32(0), turns_played
        )
        return played.turns.rewards, played.turns.events, (played.lanes.state.items > 0).sum((1, 2))

    parts = jax.tree.map(lambda leaf: leaf.reshape(groups, -1, *leaf.shape[1:]), held_out)
    rewards, events, left = jax.lax.map(play, (parts, jax.random.split(key, groups)))
    shape = (*rewards.shape[1:3], worlds)
    return *(jnp.moveaxis(one, 0, 2).reshape(shape) for one in (rewards, events)), left.reshape(
        worlds
    )


# Numbers.


def returns(outcome: Outcome) -> Float[np.ndarray, "agents worlds"]:
    """Each agent's sum of rewards in each world."""
    return outcome.rewards.sum(0, dtype=np.float64)


def standard_error(outcome: Outcome) -> float:
    """Of the mean return: over worlds, as the agents of one world are correlated."""
    of_worlds = returns(outcome).mean(0)
    return float(of_worlds.std(ddof=1) / np.sqrt(len(of_worlds)))


def order_gap(outcome: Outcome) -> float:
    """Mean return of the first agent minus that of the last: what moving first is worth."""
    mean = returns(outcome).mean(1)
    return float(mean[0] - mean[-1])


def gini(incomes: Float[np.ndarray, "agents *worlds"]) -> Float[np.ndarray, "*worlds"]:
    """Σ_i (2i − A − 1) x_(i) / (A Σ x), x ascending: 0 where all have the same, or nothing."""
    agents, total = len(incomes), incomes.sum(0)
    weights = 2 * np.arange(1, agents + 1) - agents - 1
    weighted = np.tensordot(weights, np.sort(incomes, axis=0), axes=1)
    return np.where(total == 0, 0.0, weighted / np.where(total == 0, 1.0, agents * total))


def income(env: Env, outcome: Outcome) -> Float[np.ndarray, "agents worlds"]:
    """What each agent got from items of positive value."""
    kinds = [
        (kind, entity.value)
        for kind, entity in enumerate(env.entities, start=1)
        if entity.value > 0
    ]
    total = np.zeros(outcome.events.shape[1:])
    for kind, value in kinds:
        total += value * (outcome.events == kind).sum(0)
    return total


def _scores(env: Env, outcome: Outcome, yardsticks: Mapping[str, Outcome]) -> dict[str, Any]:
    """The metrics of one learner."""
    own, earned = returns(outcome), income(env, outcome)
    chance, oracle = (returns(yardsticks[name]).mean() for name in ("random", "oracle_view"))
    return {
        "return_mean": own.mean(),
        "return_se": standard_error(outcome),
        "share": own.mean() / oracle if oracle > 0 else np.nan,
        "score": (own.mean() - chance) / (oracle - chance) if oracle > chance else np.nan,
        **{f"return_agent_{agent}": value for agent, value in enumerate(own.mean(1))},
        **{
            name: (outcome.events == event).sum(0).mean()
            for name, event in named_events(env).items()
        },
        "items_left": outcome.items_left.mean(),
        "order_gap": order_gap(outcome),
        "gini_episode": gini(earned).mean(),
        "gini_systematic": float(gini(earned.mean(1))),
    }
