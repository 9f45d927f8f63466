"""parameters of all agents -> their policies: greedy, or random with probability epsilon"""

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int, Int8, Key, Shaped

from quatrain.envs.treasurehunt.turns import Policy
from quatrain.models.iqn import network
from quatrain.models.iqn.config import Acting, IqnConfig, LearnerConfig
from quatrain.models.iqn.losses import greedy_action


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


def greedy_policy(config: IqnConfig, params: network.Params) -> Policy:
    """Returns the policy of all agents, greedy at the midpoints; `params` begin with axis agent."""
    return lambda _key, agent, stack, _states: greedy_actions(
        config,
        agent_params(params, agent),
        stack,
        midpoints(config.train.acting.quantiles),
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


def epsilon_greedy_policy(
    config: IqnConfig, params: network.Params, epsilon: Float[Array, ""]
) -> Policy:
    """Returns the policy of all agents that is greedy, or random with probability epsilon."""
    return lambda key, agent, stack, _states: epsilon_greedy_actions(
        config, agent_params(params, agent), key, stack, epsilon
    )
