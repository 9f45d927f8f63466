"""the reference's work as the seed document proposes it: jitted functions, called from Python

One agent at a time, or all under a vmap. Network and Adam are the project's or a library's, so that
the work is the same; ring, world and loop stay on the host.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from benchmarks.reference.iqn import Batch, Settings
from benchmarks.reference.iqn_world import ObjectWorld
from quatrain.models.iqn import network
from quatrain.models.iqn.config import Network


class State(NamedTuple):
    """Holds what changes while an agent learns."""

    params: network.Params
    target_params: network.Params
    optimizer: Any


class Plan(NamedTuple):
    """Holds what does not change; hashable."""

    settings: Settings
    network: Network


def _optimizer(plan: Plan) -> optax.GradientTransformation:
    settings = plan.settings
    return optax.chain(
        optax.clip_by_global_norm(settings.max_grad_norm), optax.adam(settings.learning_rate)
    )


@partial(jax.jit, static_argnums=0)
def act(plan: Plan, params: network.Params, stack: Array, key: Array) -> Array:
    """Returns the greedy action of each stack, by random quantiles."""
    taus = jax.random.uniform(key, (len(stack), plan.settings.acting_quantiles))
    return network.apply(plan.network, params, stack, taus).mean(1).argmax(-1)


@partial(jax.jit, static_argnums=0)
def act_of_all(plan: Plan, params: network.Params, stacks: Array, keys: Array) -> Array:
    """Returns the result for all agents, along the leading axis of the arguments."""
    return jax.vmap(partial(act, plan))(params, stacks, keys)


def loss(
    params: network.Params,
    target_params: network.Params,
    batch: Batch,
    plan: Plan,
    taus: Any,
    noise: Any,
) -> Array:
    """Computes the reference's loss; quantiles and noise keys are those of its three passes."""
    apply = partial(network.apply, plan.network)
    best = apply(params, batch.next_stack, taus[0], noise[0]).mean(1).argmax(-1)
    next_values = _of_action(apply(target_params, batch.next_stack, taus[1], noise[1]), best)
    discounts = plan.settings.discount * (1 - batch.ended[:, None])
    expected = batch.reward[:, None] + discounts * next_values
    values = _of_action(apply(params, batch.stack, taus[2], noise[2]), batch.action)
    return quantile_huber(expected[:, None, :] - values[:, :, None], taus[2], batch.valid)


def _of_action(values: Array, action: Array) -> Array:
    return jnp.take_along_axis(values, action[:, None, None], axis=2)[..., 0]


def quantile_huber(errors: Array, taus: Array, valid: Array) -> Array:
    """Computes the mean of |tau - 1{u < 0}| H_1(u) over errors (batch, online, target)."""
    size = jnp.abs(errors)
    huber = jnp.where(size <= 1, 0.5 * errors**2, size - 0.5) * valid[:, None, None]
    below = jax.lax.stop_gradient(errors < 0)
    return (jnp.abs(taus[:, :, None] - below) * huber).mean()


def step(plan: Plan, state: State, batch: Batch, key: Array) -> tuple[State, Array]:
    """Takes one gradient step; only `params` are differentiated, not the targets."""
    settings, (tau_key, noise_key) = plan.settings, jax.random.split(key)
    taus = jax.random.uniform(tau_key, (3, len(batch.action), settings.quantiles))
    noise = jax.random.split(noise_key, 3) if settings.noisy else (None, None, None)
    arguments = state.params, state.target_params, batch, plan, taus, noise
    value, gradients = jax.value_and_grad(loss)(*arguments)
    updates, optimizer = _optimizer(plan).update(gradients, state.optimizer)
    params = optax.apply_updates(state.params, updates)
    target = optax.incremental_update(params, state.target_params, settings.target_rate)
    return State(params, target, optimizer), value


step_of_one = jax.jit(step, static_argnums=0)


@partial(jax.jit, static_argnums=0)
def step_of_all(plan: Plan, states: State, batches: Batch, keys: Array) -> tuple[State, Array]:
    """Returns the result for all agents, along the leading axis of the arguments."""
    return jax.vmap(partial(step, plan))(states, batches, keys)


class Agent:
    """Acts and learns like `benchmarks.reference.iqn.Agent`, with the two programs above."""

    def __init__(self, plan: Plan, params: network.Params, key: Array) -> None:
        self.plan, self.key, self.draws = plan, key, 0
        self.state = State(params, params, _optimizer(plan).init(params))

    def act(self, stack: np.ndarray) -> int:
        return int(act(self.plan, self.state.params, stack, self._next_key())[0])

    def learn(self, batch: Batch) -> float:
        self.state, value = step_of_one(self.plan, self.state, batch, self._next_key())
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


def views(world: ObjectWorld) -> np.ndarray:
    """Observes for all agents at once."""
    ys, xs, _ = np.array([agent.location for agent in world.agents]).T
    radius = world.rules.vision_radius
    return np.asarray(_observe_all(_kinds_of(world), ys, xs, len(world.kinds), radius))


def _kinds_of(world: ObjectWorld) -> np.ndarray:
    """The channel of every object (height, width, 2)."""
    number = {kind: channel for channel, kind in enumerate(world.kinds)} | {"nothing": 0}
    kinds = [number[thing.kind] for thing in world.map.flat]
    return np.array(kinds, np.int8).reshape(world.map.shape)


@partial(jax.jit, static_argnums=(3, 4))
def _observe(kinds: Array, y: Array, x: Array, channels: int, radius: int) -> Array:
    """The flat view at (y, x); channel 0 is empty, channel 1 the wall."""
    layers = jax.nn.one_hot(kinds, channels).sum(2).at[:, :, 0].set(0)
    beyond = jnp.pad(layers, ((radius, radius), (radius, radius), (0, 0)))
    inside = jnp.pad(jnp.ones(kinds.shape[:2]), radius)
    beyond = beyond.at[:, :, 1].add(1 - inside)
    side = 2 * radius + 1
    window = jax.lax.dynamic_slice(beyond, (y, x, 0), (side, side, channels))
    return window.transpose(2, 0, 1).reshape(-1)


@partial(jax.jit, static_argnums=(3, 4))
def _observe_all(kinds: Array, ys: Array, xs: Array, channels: int, radius: int) -> Array:
    return jax.vmap(lambda y, x: _observe(kinds, y, x, channels, radius))(ys, xs)


class Stored(NamedTuple):
    """Holds a host ring's arrays on the device."""

    states: Array
    actions: Array
    rewards: Array


@partial(jax.jit, static_argnums=(3, 4))
def sample(stored: Stored, starts: Array, key: Array, size: int, frames: int) -> tuple[Array, ...]:
    """Samples like `NumpyRing.sample`: states, actions, rewards, next states."""
    indices = jax.random.choice(key, starts, (size,))[:, None] + jnp.arange(frames)
    states, later = (stored.states[rows].reshape(size, -1) for rows in (indices, indices + 1))
    return states, stored.actions[indices[:, -1]], stored.rewards[indices[:, -1]], later


@jax.jit
def stacked(previous: Array, frame: Array) -> Array:
    """Stacks frames: (frames - 1, frame), (frame,) -> (1, frames * frame)."""
    return jnp.concatenate([previous, frame[None]]).reshape(1, -1)
