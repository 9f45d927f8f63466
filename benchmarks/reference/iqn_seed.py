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
from benchmarks.reference.iqn_world import ObjectWorld
from quatrain.models.iqn import network
from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.cycle import updating
from quatrain.models.iqn.cycle.updating import Agent as Learner
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
    targets = updating.targets(config, agent, drawn, target_key)
    arguments = agent.params, config, drawn, targets, online_key
    gradients, metrics = jax.grad(updating.objective, has_aux=True)(*arguments)
    updates, adam = updating.optimizer(config.train).update(gradients, agent.optimizer)
    params = optax.apply_updates(agent.params, updates)
    count = optax.tree.get(adam, "count")
    target = updating.update_target(config.train, params, agent.target_params, count)
    return Learner(params, target, adam), metrics["loss"]


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
        self.state = Learner(params, params, updating.optimizer(config.train).init(params))

    def act(self, stack: np.ndarray) -> int:
        return int(act(self.config, self.state.params, stack, self._next_key())[0])

    def learn(self, batch: Batch) -> float:
        self.state, value = step_of_one(self.config, self.state, batch, self._next_key())
        return float(value)

    def copy_to_target(self) -> None:
        self.state = self.state._replace(target_params=self.state.params)

    def _next_key(self) -> Array:
        self.draws += 1
        return jax.random.fold_in(self.key, self.draws)


def view(world: ObjectWorld, agent: int) -> np.ndarray:
    """Observes as `ObjectWorld.observe`: a loop to numbers, then a jitted function."""
    y, x, _ = world.agents[agent].location
    return np.asarray(_observe(_kinds_of(world), y, x, len(world.kinds), world.rules.vision_radius))


def _kinds_of(world: ObjectWorld) -> np.ndarray:
    """The channel of every object (height, width, 2)."""
    number = {kind: channel for channel, kind in enumerate(world.kinds)} | {"nothing": 0}
    kinds = [number[thing.kind] for thing in world.map.flat]
    return np.array(kinds, np.int8).reshape(world.map.shape)


def _window(kinds: Array, y: Array, x: Array, channels: int, radius: int) -> Array:
    """The flat view at (y, x); channel 0 is empty, channel 1 the wall."""
    layers = jax.nn.one_hot(kinds, channels).sum(2).at[:, :, 0].set(0)
    beyond = jnp.pad(layers, ((radius, radius), (radius, radius), (0, 0)))
    inside = jnp.pad(jnp.ones(kinds.shape[:2]), radius)
    beyond = beyond.at[:, :, 1].add(1 - inside)
    side = 2 * radius + 1
    window = jax.lax.dynamic_slice(beyond, (y, x, 0), (side, side, channels))
    return window.transpose(2, 0, 1).reshape(-1)


_observe = jax.jit(_window, static_argnums=(3, 4))
