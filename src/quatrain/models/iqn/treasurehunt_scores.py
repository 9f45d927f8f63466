"""episodes of treasure hunts -> what scores have of their own: shares of an oracle, and fairness"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int, Int8, Int16, Key

from quatrain.envs.treasurehunt import policies, turns
from quatrain.envs.treasurehunt.config import Env
from quatrain.envs.treasurehunt.turns import Policy
from quatrain.envs.treasurehunt.world import make_world
from quatrain.models.iqn import network
from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.network import greedy_policy
from quatrain.models.iqn.rules import GATED, REFERENCE_NAMES
from quatrain.models.iqn.treasurehunt import Dataset, HeldOut, held_out_envs, named_events
from quatrain.statistics import bootstrap_interval

# Policies that play the same envs with the same spawn noise as the learned one.
REFERENCE_POLICIES: Mapping[str, Callable[[Env], Policy]] = {
    "random": policies.random_policy,
    "free_random": policies.free_random_policy,
    "constant": policies.constant_policy,
    "oracle_view": partial(policies.oracle_policy, view="view"),
    "oracle_full": partial(policies.oracle_policy, view="full"),
}
# Name of the policy whose parameters are given.
LEARNED = "learned"
# Largest number of draws of a shuffled agent order over which an evaluation averages.
MAX_TURN_ORDERS = 32
# Scores with their spread over seeds.
SPREAD = tuple(gated.metric for gated in GATED)
# Reference policy -> what figures call it; the policies beside a learning curve; a remark.
REFERENCES = {name.removesuffix("_return"): text for name, text in REFERENCE_NAMES.items()}
BESIDE = ("learned", "oracle_view", "random")
REMARK = "Blue: oracles, which know the rules, but have no memory: a policy may surpass them."


class Outcome(NamedTuple):
    """Holds one episode of every held-out env under one policy.

    items, positions: of the first env, before the first turn and after each.
    """

    rewards: Float[np.ndarray, "turn agent env"]
    events: Int8[np.ndarray, "turn agent env"]
    items_left: Int[np.ndarray, " env"]
    items: Int8[np.ndarray, "moment height width"]
    positions: Int16[np.ndarray, "moment agent 2"]

    @property
    def returns(self) -> Float[np.ndarray, "agent env"]:
        """Returns each agent's sum of rewards in each env."""
        return self.rewards.sum(0, dtype=np.float64)


def play_held_out(
    config: IqnConfig, params: Sequence[network.Params], _state: Any, dataset: Dataset, seed: int
) -> tuple[list[Outcome], dict[str, Outcome]]:
    """Plays the held-out envs by the greedy policy of each seed, and by the references."""
    key = jax.random.key(seed)
    learned = [play_policy(config, LEARNED, each, dataset, key) for each in params]
    references = {
        name: play_policy(config, name, params[0], dataset, key) for name in REFERENCE_POLICIES
    }
    return learned, references


def play_policy(
    config: IqnConfig, name: str, params: network.Params, dataset: Dataset, key: Key[Array, ""]
) -> Outcome:
    """Plays the held-out envs by a reference policy, or by the greedy one of these parameters."""
    place = jnp.int32([*REFERENCE_POLICIES, LEARNED].index(name))
    return Outcome(*jax.device_get(_episodes(config, place, params, dataset.held_out, key)))


@partial(jax.jit, static_argnums=0)
def _episodes(
    config: IqnConfig, place: Int[Array, ""], params: network.Params, held_out: HeldOut, key: Array
) -> tuple[Array, ...]:
    """Plays one episode per env by the policy at a place; returns the fields of an Outcome.

    Which one is data, so that one program plays all of them. Parallel envs share the order of a
    turn. A shuffled order is drawn for several groups of envs, so that its effect on the first and
    the last agent averages out.
    """
    world = make_world(config.env)
    references = [reference(config.env) for reference in REFERENCE_POLICIES.values()]
    policy: Policy = partial(jax.lax.switch, place, [*references, greedy_policy(config, params)])
    groups = 1
    if config.env.agent_order == "shuffled":
        groups = math.gcd(len(held_out.keys), MAX_TURN_ORDERS)

    def one_turn(envs: turns.EnvStates, keys: Array) -> tuple[turns.EnvStates, tuple[Array, ...]]:
        after, turn = turns.play_turn(world, envs, policy, keys)
        state = after.state
        return after, (turn.rewards, turn.events, state.items[0], state.positions[0])

    def play_group(group_and_key: tuple[HeldOut, Array]) -> tuple[Array, ...]:
        group, group_key = group_and_key
        envs = held_out_envs(config, group)
        keys = turns.turn_keys(world, group_key, 0, config.env.max_turns)
        end, (rewards, events, *moments) = jax.lax.scan(one_turn, envs, keys)
        first = (envs.state.items[:1], envs.state.positions[:1])
        return (
            rewards,
            events,
            (end.state.items > 0).sum((1, 2)),
            *map(jnp.concatenate, zip(first, moments, strict=True)),
        )

    split = jax.tree.map(lambda leaf: leaf.reshape(groups, -1, *leaf.shape[1:]), held_out)
    rewards, events, left, *film = jax.lax.map(play_group, (split, jax.random.split(key, groups)))
    merged = [
        jnp.moveaxis(values, 0, 2).reshape(*values.shape[1:3], -1) for values in (rewards, events)
    ]
    return *merged, left.reshape(-1), *(moments[0] for moments in film)


def pictures(
    config: IqnConfig, _state: Any, _dataset: Any, outcomes: Any, scores: Mapping[str, float]
) -> dict[str, Any]:
    """Returns the figures that only this world has."""
    from quatrain.models.iqn.treasurehunt_plots import animate, draw_fairness

    drawn: dict[str, Any] = {"episode": animate(config, outcomes.learned[0])}
    if config.env.agents > 1:
        drawn["fairness"] = draw_fairness(config, outcomes, scores)
    return drawn


# Numbers.


def scores(
    config: IqnConfig, outcome: Outcome, references: Mapping[str, Outcome]
) -> dict[str, float]:
    """Computes the scores of one seed.

    `share` is the return divided by that of the oracle with the agents' own view, NaN if that is
    not positive. `score` is 0 for the random policy and 1 for that oracle, NaN if that earns no
    more than random.
    """
    mean = outcome.returns.mean()
    chance = references["random"].returns.mean()
    oracle = references["oracle_view"].returns.mean()
    incomes = income(config.env, outcome)
    events = {
        name: (outcome.events == event).sum(0).mean()
        for name, event in named_events(config.env).items()
    }
    return {
        "share": mean / oracle if oracle > 0 else np.nan,
        "score": (mean - chance) / (oracle - chance) if oracle > chance else np.nan,
        **events,
        "items_left": outcome.items_left.mean(),
        "order_gap": order_gap(outcome),
        "gini_episode": gini(incomes).mean(),
        "gini_systematic": float(gini(incomes.mean(1))),
    }


def scores_of_run(config: IqnConfig, _state: Any, outcomes: Any, seed: int) -> dict[str, float]:
    """Computes the oracle's order gap, and the paired bootstrap interval of a single seed's `score`
    over held-out worlds, which says nothing about other seeds.
    """
    references = outcomes.references
    scores = {"oracle_view_order_gap": order_gap(references["oracle_view"])}
    chance = references["random"].returns.mean(0)
    oracle = references["oracle_view"].returns.mean(0)
    if len(outcomes.learned) > 1 or oracle.mean() <= chance.mean():
        return scores
    low, high = bootstrap_interval(
        [outcomes.learned[0].returns.mean(0), chance, oracle],
        _score_of_means,
        np.random.default_rng(seed),
        config.evaluate.bootstrap_samples,
    )
    return scores | {"score_held_out_low": low, "score_held_out_high": high}


def _score_of_means(
    policy: np.ndarray, chance: np.ndarray, oracle: np.ndarray, axis: int
) -> np.ndarray:
    span = oracle.mean(axis) - chance.mean(axis)
    return (policy.mean(axis) - chance.mean(axis)) / np.where(span == 0, np.nan, span)


def order_gap(outcome: Outcome) -> float:
    """Computes the mean return of the first agent minus that of the last."""
    mean = outcome.returns.mean(1)
    return float(mean[0] - mean[-1])


def gini(incomes: Float[np.ndarray, "agent *env"]) -> Float[np.ndarray, "*env"]:
    """Computes Σ_i (2i − A − 1) x_(i) / (A Σ x), x ascending; 0 if all are equal or zero."""
    agents = len(incomes)
    total = incomes.sum(0)
    weights = 2 * np.arange(1, agents + 1) - agents - 1
    weighted = np.tensordot(weights, np.sort(incomes, axis=0), axes=1)
    return np.where(total == 0, 0.0, weighted / np.where(total == 0, 1.0, agents * total))


def income(env: Env, outcome: Outcome) -> Float[np.ndarray, "agent env"]:
    """Computes what each agent earned from items of positive value."""
    total = np.zeros(outcome.events.shape[1:])
    for kind, entity in enumerate(env.entities, start=1):
        total += max(entity.value, 0) * (outcome.events == kind).sum(0)
    return total
