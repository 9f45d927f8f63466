"""state, held-out envs -> scores: returns relative to random and oracle, and fairness"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int, Int8, Key

from quatrain.envs.treasurehunt import policies, turns
from quatrain.envs.treasurehunt.config import Env
from quatrain.envs.treasurehunt.rules import Rules
from quatrain.envs.treasurehunt.turns import Policy
from quatrain.envs.treasurehunt.world import make_world
from quatrain.models.iqn import network
from quatrain.models.iqn.collect import Dataset, HeldOut, held_out_envs
from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.cycle.acting import greedy_policy
from quatrain.models.iqn.cycle.playing import named_events
from quatrain.models.iqn.rules import GATED
from quatrain.models.iqn.train import State, evaluation_params
from quatrain.statistics import aggregate_seeds, bootstrap_interval

# Policies that play the same envs with the same spawn noise as the learned one.
REFERENCE_POLICIES: Mapping[str, Callable[[Rules], Policy]] = {
    "random": policies.random_policy,
    "free_random": policies.free_random_policy,
    "constant": policies.constant_policy,
    "oracle_view": partial(policies.oracle_policy, view="view"),
    "oracle_full": partial(policies.oracle_policy, view="full"),
}
# Largest number of draws of a shuffled agent order over which an evaluation averages.
MAX_TURN_ORDERS = 32


class Outcome(NamedTuple):
    """Holds one episode of every held-out env under one policy."""

    rewards: Float[np.ndarray, "turn agent env"]
    events: Int8[np.ndarray, "turn agent env"]
    items_left: Int[np.ndarray, " env"]


def evaluate(config: IqnConfig, state: State, dataset: Dataset, seed: int) -> dict[str, float]:
    """Computes the scores of iqn; with several seeds means, and the spread of gated ones
    (`aggregate_seeds`).

    Returns are undiscounted sums of an episode's rewards, means over envs and agents. `share` is
    the return divided by that of the oracle with the agents' own view, NaN if that is not positive.
    `score` is 0 for the random policy and 1 for that oracle, NaN if that earns no more than random.
    """
    key = jax.random.key(seed)
    references = evaluate_reference_policies(config, dataset, key)
    outcomes = evaluate_policy(config, state, dataset, key)
    seed_scores = [_scores(config.env, outcome, references) for outcome in outcomes]
    scores = aggregate_seeds(seed_scores, [gated.metric for gated in GATED])
    for name, outcome in references.items():
        scores[f"{name}_return"] = returns(outcome).mean()
        scores[f"{name}_return_se"] = standard_error(outcome)
    scores["oracle_view_order_gap"] = order_gap(references["oracle_view"])
    scores |= _confidence_intervals(config, outcomes, references, seed)
    return {name: float(value) for name, value in scores.items()}


def _confidence_intervals(
    config: IqnConfig,
    outcomes: Sequence[Outcome],
    references: Mapping[str, Outcome],
    seed: int,
) -> dict[str, float]:
    """Computes the paired bootstrap interval of a single seed's `score` over held-out worlds, which
    says nothing about other seeds.
    """
    if len(outcomes) > 1:
        return {}
    chance = returns(references["random"]).mean(0)
    oracle = returns(references["oracle_view"]).mean(0)
    if oracle.mean() <= chance.mean():
        return {}
    low, high = bootstrap_interval(
        [returns(outcomes[0]).mean(0), chance, oracle],
        _score_of_means,
        np.random.default_rng(seed),
        config.evaluate.bootstrap_samples,
    )
    return {"score_held_out_low": low, "score_held_out_high": high}


def _score_of_means(
    policy: np.ndarray, chance: np.ndarray, oracle: np.ndarray, axis: int
) -> np.ndarray:
    span = oracle.mean(axis) - chance.mean(axis)
    return (policy.mean(axis) - chance.mean(axis)) / np.where(span == 0, np.nan, span)


# Playing.


def evaluate_policy(
    config: IqnConfig, state: State, dataset: Dataset, key: Key[Array, ""]
) -> list[Outcome]:
    """Plays the greedy policy of each seed in the held-out envs."""
    params = evaluation_params(config, state)
    outcomes = []
    for seed in range(config.seeds):
        seed_params = jax.tree.map(itemgetter(seed), params)
        outcome = _play_greedy(config, seed_params, dataset.held_out, key)
        outcomes.append(Outcome(*jax.device_get(outcome)))
    return outcomes


def evaluate_reference_policies(
    config: IqnConfig, dataset: Dataset, key: Key[Array, ""]
) -> dict[str, Outcome]:
    return {
        name: evaluate_reference_policy(config, name, dataset, key) for name in REFERENCE_POLICIES
    }


def evaluate_reference_policy(
    config: IqnConfig, name: str, dataset: Dataset, key: Key[Array, ""]
) -> Outcome:
    return Outcome(*jax.device_get(_play_reference(config, name, dataset.held_out, key)))


@partial(jax.jit, static_argnums=0)
def _play_greedy(
    config: IqnConfig, params: network.Params, held_out: HeldOut, key: Array
) -> tuple[Array, ...]:
    return _episodes(config, greedy_policy(config, params), held_out, key)


@partial(jax.jit, static_argnums=(0, 1))
def _play_reference(
    config: IqnConfig, name: str, held_out: HeldOut, key: Array
) -> tuple[Array, ...]:
    return _episodes(config, REFERENCE_POLICIES[name](config.env.rules), held_out, key)


def _episodes(
    config: IqnConfig, policy: Policy, held_out: HeldOut, key: Array
) -> tuple[Array, ...]:
    """Plays one episode per env; returns rewards, events and the items that are left.

    Parallel envs share the order of a turn. A shuffled order is drawn for several groups of envs,
    so that its effect on the first and the last agent averages out.
    """
    groups = 1
    if config.env.agent_order == "shuffled":
        groups = math.gcd(len(held_out.keys), MAX_TURN_ORDERS)

    def play_group(
        group_and_key: tuple[HeldOut, Array],
    ) -> tuple[Array, ...]:
        group, group_key = group_and_key
        rollout = turns.play(
            make_world(config.env.rules),
            held_out_envs(config, group),
            policy,
            group_key,
            first_turn=jnp.int32(0),
            turns=config.env.max_turns,
        )
        items_left = (rollout.envs.state.items > 0).sum((1, 2))
        return rollout.turns.rewards, rollout.turns.events, items_left

    split = jax.tree.map(lambda leaf: leaf.reshape(groups, -1, *leaf.shape[1:]), held_out)
    rewards, events, left = jax.lax.map(play_group, (split, jax.random.split(key, groups)))
    merged = [
        jnp.moveaxis(values, 0, 2).reshape(*values.shape[1:3], -1) for values in (rewards, events)
    ]
    return *merged, left.reshape(-1)


# Numbers.


def returns(outcome: Outcome) -> Float[np.ndarray, "agent env"]:
    """Computes each agent's sum of rewards in each env."""
    return outcome.rewards.sum(0, dtype=np.float64)


def standard_error(outcome: Outcome) -> float:
    """Computes the standard error over envs, since the agents of an env are correlated."""
    env_returns = returns(outcome).mean(0)
    return float(env_returns.std(ddof=1) / np.sqrt(len(env_returns)))


def order_gap(outcome: Outcome) -> float:
    """Computes the mean return of the first agent minus that of the last."""
    mean = returns(outcome).mean(1)
    return float(mean[0] - mean[-1])


def gini(
    incomes: Float[np.ndarray, "agent *env"],
) -> Float[np.ndarray, "*env"]:
    """Computes Σ_i (2i − A − 1) x_(i) / (A Σ x), x ascending; 0 if all are equal or zero."""
    agents = len(incomes)
    total = incomes.sum(0)
    weights = 2 * np.arange(1, agents + 1) - agents - 1
    weighted = np.tensordot(weights, np.sort(incomes, axis=0), axes=1)
    return np.where(
        total == 0,
        0.0,
        weighted / np.where(total == 0, 1.0, agents * total),
    )


def income(env: Env, outcome: Outcome) -> Float[np.ndarray, "agent env"]:
    """Computes what each agent earned from items of positive value."""
    total = np.zeros(outcome.events.shape[1:])
    for kind, entity in enumerate(env.entities, start=1):
        total += max(entity.value, 0) * (outcome.events == kind).sum(0)
    return total


def _scores(env: Env, outcome: Outcome, references: Mapping[str, Outcome]) -> dict[str, Any]:
    mean = returns(outcome).mean()
    chance = returns(references["random"]).mean()
    oracle = returns(references["oracle_view"]).mean()
    scores: dict[str, Any] = {
        "return_mean": mean,
        "return_se": standard_error(outcome),
        "share": mean / oracle if oracle > 0 else np.nan,
        "score": (mean - chance) / (oracle - chance) if oracle > chance else np.nan,
    }
    for agent, value in enumerate(returns(outcome).mean(1)):
        scores[f"return_agent_{agent}"] = value
    for name, event in named_events(env).items():
        scores[name] = (outcome.events == event).sum(0).mean()
    incomes = income(env, outcome)
    return scores | {
        "items_left": outcome.items_left.mean(),
        "order_gap": order_gap(outcome),
        "gini_episode": gini(incomes).mean(),
        "gini_systematic": float(gini(incomes.mean(1))),
    }
