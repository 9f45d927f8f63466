"""parameters of all agents -> their policies: greedy, or random with probability epsilon"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Float32, Int, Int8, Key, Shaped

from quatrain.frameworks.jax import over_seeds
from quatrain.models.iqn import network
from quatrain.models.iqn.config import Acting, LearnerConfig, LinearEpsilon
from quatrain.models.iqn.losses import greedy_action

# (key, agent, stack (env, inputs), states of all envs) -> actions of this agent in all envs.
Policy = Callable[[Array, Array, Array, Any], Array]


def epsilon_at(
    acting: Acting, transitions: Int[Array, ""], episodes: Int[Array, ""] | Float[Array, ""]
) -> Float[Array, ""]:
    """Computes epsilon after an agent's transitions and finished episodes in all envs.

    Both counts include the prefill.
    """
    schedule = acting.epsilon
    if isinstance(schedule, LinearEpsilon):
        elapsed = transitions.astype(jnp.float32) / schedule.over_transitions
        epsilon = schedule.start - (schedule.start - schedule.end) * elapsed
    else:
        epsilon = schedule.start * (1 - schedule.decay) ** episodes.astype(jnp.float32)
    return jnp.maximum(jnp.float32(schedule.end), epsilon)


def midpoints(count: int) -> Float[Array, "1 quantile"]:
    """Returns (g + 1/2) / G, quantiles whose mean has no sampling noise."""
    return (jnp.arange(count, dtype=jnp.float32)[None] + 0.5) / count


def greedy_actions(
    config: LearnerConfig,
    params: network.Params,
    stack: Shaped[Array, "batch inputs"],
    taus: Float[Array, "_ quantile"],
) -> Int8[Array, " batch"]:
    """Returns the actions with the greatest q(s, a), an agent's mean of Z over `taus`, no noise."""
    values = network.apply(config.network, params, stack, taus)
    return greedy_action(values).astype(jnp.int8)


def agent_params(params: network.Params, agent: Int[Array, ""]) -> network.Params:
    return jax.tree.map(lambda leaf: leaf[agent], params)


def greedy_policy(config: LearnerConfig, params: network.Params) -> Policy:
    """Returns the policy of all agents, greedy at the midpoints; `params` begin with axis agent."""
    return lambda _key, agent, stack, _states: greedy_actions(
        config, agent_params(params, agent), stack, midpoints(config.train.acting.quantiles)
    )


def evaluation_network(
    acting: Acting, online: network.Params, target: network.Params
) -> network.Params:
    """Returns the parameters that act in evaluations.

    Online networks may fall into loops for a while (into a wall, say); their average over updates,
    the Polyak target, does not.
    """
    return target if acting.evaluation_network == "target" else online


def epsilon_greedy_actions(
    config: LearnerConfig,
    params: network.Params,
    key: Key[Array, ""],
    stack: Shaped[Array, "batch inputs"],
    epsilon: Float[Array, ""],
) -> Int8[Array, " batch"]:
    """Returns an agent's actions: greedy, or with probability epsilon uniform over all actions."""
    acting = config.train.acting
    batch = len(stack)
    taus_key, explore_key, action_key = jax.random.split(key, 3)
    taus = midpoints(acting.quantiles)
    if acting.taus == "uniform":
        taus = jax.random.uniform(taus_key, (batch, acting.quantiles))
    explores = jax.random.uniform(explore_key, (batch,)) < epsilon
    count = network.count_actions(params)
    return jnp.where(
        explores,
        jax.random.randint(action_key, (batch,), 0, count, jnp.int8),
        greedy_actions(config, params, stack, taus),
    )


def explore(
    config: LearnerConfig,
    params: network.Params,
    transitions: Int[Array, ""],
    episodes: Int[Array, ""],
) -> tuple[Policy, Float[Array, ""]]:
    """Returns the policy of all agents that is greedy, or random with probability epsilon, and
    epsilon; the counts are those of `epsilon_at`.
    """
    epsilon = epsilon_at(config.train.acting, transitions, episodes)

    def act(key: Array, agent: Array, stack: Array, _states: Any) -> Array:
        return epsilon_greedy_actions(config, agent_params(params, agent), key, stack, epsilon)

    return act, epsilon


# Programs that environments on the host call in each turn.


@lru_cache(maxsize=4)
def exploring_program(config: LearnerConfig) -> Callable[..., tuple[Array, Array]]:
    """Returns the compiled `explore` of all seeds: (parameters, keys, turns, transitions, episodes,
    stacks) -> actions (seed, agent, env) and the epsilon of each seed.
    """

    def act(seed: tuple) -> tuple[Int8[Array, "agent env"], Float32[Array, ""]]:
        params, key, turns, transitions, episodes, stacks = seed
        epsilon = epsilon_at(config.train.acting, transitions, episodes)
        policy = partial(epsilon_greedy_actions, config, epsilon=epsilon)
        keys = jax.random.split(jax.random.fold_in(key, turns), len(stacks))
        return jax.vmap(lambda *agent: policy(*agent))(params, keys, stacks), epsilon

    mapped = over_seeds(act, config.train.seed_parallelism)
    return jax.jit(lambda *seeds: mapped(seeds))


@lru_cache(maxsize=4)
def greedy_program(config: LearnerConfig) -> Callable[[network.Params, Any], Array]:
    """Returns the compiled greedy policy of one seed: its parameters, stacks (agent, env, inputs)
    -> actions (agent, env).
    """
    taus = midpoints(config.train.acting.quantiles)
    return jax.jit(jax.vmap(lambda params, stack: greedy_actions(config, params, stack, taus)))
