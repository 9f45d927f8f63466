"""parameters of all agents -> how they act: greedily on a mean over quantiles, at random with probability epsilon."""

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int, Int8, Shaped

from quatrain.envs.treasurehunt.turns import Policy
from quatrain.models.iqn import network
from quatrain.models.iqn.config import IqnConfig


def midpoints(count: int) -> Float[Array, "1 quantile"]:
    """(g + 1/2) / G: a mean over them has no noise of its own."""
    return (jnp.arange(count, dtype=jnp.float32)[None] + 0.5) / count


def best_actions(
    config: IqnConfig,
    own: network.Params,
    stack: Shaped[Array, "batch inputs"],
    taus: Float[Array, "_ quantile"],
) -> Int8[Array, " batch"]:
    """The action of the greatest q(s, a), the mean of one agent's Z over `taus`, without noise."""
    return network.apply(config.network, own, stack, taus).mean(1).argmax(-1).astype(jnp.int8)


def of_agent(params: network.Params, agent: Int[Array, ""]) -> network.Params:
    """One agent's parameters out of those of all."""
    return jax.tree.map(lambda leaf: leaf[agent], params)


def greedy_policy(config: IqnConfig, params: network.Params) -> Policy:
    """Each agent by its own network, at the midpoints; `params` have a leading axis of agents."""
    taus = midpoints(config.train.acting.quantiles)

    def act(_key: Array, agent: Array, stack: Array, _states: object) -> Array:
        return best_actions(config, of_agent(params, agent), stack, taus)

    return act


def epsilon_greedy_policy(
    config: IqnConfig, params: network.Params, epsilon: Float[Array, ""]
) -> Policy:
    """The best action by the configured quantiles, or with probability epsilon one of all actions."""
    count = config.train.acting.quantiles

    def act(key: Array, agent: Array, stack: Array, _states: object) -> Array:
        taus_key, explore_key, action_key = jax.random.split(key, 3)
        drawn_taus = config.train.acting.taus == "uniform"
        taus = jax.random.uniform(taus_key, (len(stack), count)) if drawn_taus else midpoints(count)
        explores = jax.random.uniform(explore_key, (len(stack),)) < epsilon
        drawn = jax.random.randint(action_key, (len(stack),), 0, network.ACTIONS, jnp.int8)
        return jnp.where(
            explores, drawn, best_actions(config, of_agent(params, agent), stack, taus)
        )

    return act
