"""parameters of all agents -> how they act: greedily on a mean over quantiles, at random with probability epsilon."""

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Key, Shaped

from quatrain.envs.treasurehunt.turns import Policy
from quatrain.models.iqn import network
from quatrain.models.iqn.config import IqnConfig


def action_values(
    config: IqnConfig, params: network.Params, stack: Shaped[Array, "batch inputs"], key: Key[Array, ""]
) -> Float[Array, "batch action"]:
    """q(s, a) of one agent: the mean of Z over the acting quantiles, without noise."""
    count = config.train.acting.quantiles
    if config.train.acting.taus == "midpoints":
        taus = (jnp.arange(count, dtype=jnp.float32)[None] + 0.5) / count
    else:
        taus = jax.random.uniform(key, (len(stack), count))
    return network.apply(config.network, params, stack, taus).mean(1)


def greedy_policy(config: IqnConfig, params: network.Params) -> Policy:
    """Each agent by its own network; `params` have a leading axis of agents."""

    def act(key: Array, agent: Array, stack: Array, _states: object) -> Array:
        own = jax.tree.map(lambda leaf: leaf[agent], params)
        return action_values(config, own, stack, key).argmax(-1).astype(jnp.int8)

    return act


def epsilon_greedy_policy(config: IqnConfig, params: network.Params, epsilon: Float[Array, ""]) -> Policy:
    """The greedy action, or with probability epsilon one of all actions."""
    greedy = greedy_policy(config, params)

    def act(key: Array, agent: Array, stack: Array, states: object) -> Array:
        greedy_key, explore_key, action_key = jax.random.split(key, 3)
        explores = jax.random.uniform(explore_key, (len(stack),)) < epsilon
        drawn = jax.random.randint(action_key, (len(stack),), 0, network.ACTIONS, jnp.int8)
        return jnp.where(explores, drawn, greedy(greedy_key, agent, stack, states))

    return act
