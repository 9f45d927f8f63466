"""the reference's work as the document proposes it: jitted functions, called from Python

One agent at a time, or all under a vmap. The compiled functions are the project's, so that the work
is the same; ring, world and loop stay on the host.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from benchmarks.reference.iqn import Batch
from quatrain.models.iqn import learn, network
from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.learn import Agent as Learner
from quatrain.replay.frames import sampling


@partial(jax.jit, static_argnums=0)
def act(config: IqnConfig, params: network.Params, stack: Array, key: Array) -> Array:
    """Returns the greedy action of each stack, by random quantiles."""
    taus = jax.random.uniform(key, (len(stack), config.train.acting.quantiles))
    return network.apply(config.network, params, stack, taus).mean(1).argmax(-1)


def step(config: IqnConfig, agent: Learner, batch: Batch, key: Array) -> tuple[Learner, Array]:
    """Takes one gradient step on a batch of the host, as the project does on its own."""
    target_key, online_key = jax.random.split(key)
    discount = jnp.full(len(batch.action), config.train.loss.discount)
    drawn = sampling.Batch(*batch[:3], discount, batch.next_stack)
    targets = learn.targets(config, agent, drawn, target_key)
    arguments = agent.params, config, drawn, targets, online_key
    gradients, metrics = jax.grad(learn.objective, has_aux=True)(*arguments)
    updates, adam = learn.optimizer(config.train).update(gradients, agent.optimizer)
    params = optax.apply_updates(agent.params, updates)
    count = optax.tree.get(adam, "count")
    target = learn.update_target(config.train, params, agent.target_params, count)
    return Learner(params, target, adam), metrics["loss"].mean()


step_of_one = jax.jit(step, static_argnums=0)


@partial(jax.jit, static_argnums=0)
def step_of_all(
    config: IqnConfig, agents: Learner, batches: Batch, keys: Array
) -> tuple[Learner, Array]:
    """Returns the result for all agents, along the leading axis of the arguments."""
    return jax.vmap(partial(step, config))(agents, batches, keys)


class Agent:
    """Acts and learns like `benchmarks.reference.iqn.Agent`, with the two programs above."""

    def __init__(self, config: IqnConfig, params: network.Params, key: Array) -> None:
        self.config, self.key, self.draws = config, key, 0
        self.state = Learner(params, params, learn.optimizer(config.train).init(params))

    def act(self, stack: np.ndarray) -> int:
        return int(act(self.config, self.state.params, stack, self._next_key())[0])

    def learn(self, batch: Batch) -> float:
        self.state, value = step_of_one(self.config, self.state, batch, self._next_key())
        return float(value)

    def _next_key(self) -> Array:
        self.draws += 1
        return jax.random.fold_in(self.key, self.draws)
