"""the reference's act and gradient step as the seed document proposes them: jitted, and called from
Python.

One agent at a time, or the gradient steps of all agents under one vmap. Network and Adam are
libraries' or the project's, so that the work is the same; ring, world and loop stay on the host.
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


def start(plan: Plan, params: network.Params) -> State:
    return State(params, jax.tree.map(jnp.copy, params), _optimizer(plan).init(params))


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
    params: network.Params, target_params: network.Params, batch: Batch, plan: Plan, key: Array
) -> Array:
    """Computes the reference's loss; noise and quantiles of the three forward passes come from
    `key`.
    """
    settings, size = plan.settings, len(batch.action)
    taus = draw_taus(plan, size, key)
    noise = (
        jax.random.split(jax.random.fold_in(key, 1), 3) if settings.noisy else (None, None, None)
    )
    best = (
        network.apply(plan.network, params, batch.next_stack, taus[0], noise[0]).mean(1).argmax(-1)
    )
    next_values = _of_action(
        network.apply(plan.network, target_params, batch.next_stack, taus[1], noise[1]), best
    )
    expected = batch.reward[:, None] + settings.discount * next_values * (1 - batch.ended[:, None])
    values = _of_action(
        network.apply(plan.network, params, batch.stack, taus[2], noise[2]), batch.action
    )
    return quantile_huber(expected[:, None, :] - values[:, :, None], taus[2], batch.valid)


def draw_taus(plan: Plan, size: int, key: Array) -> Array:
    """Quantiles of the three forward passes of a step: of the selection, the target and the online
    network.
    """
    return jax.random.uniform(jax.random.fold_in(key, 0), (3, size, plan.settings.quantiles))


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
    value, gradients = jax.value_and_grad(loss)(state.params, state.target_params, batch, plan, key)
    updates, optimizer = _optimizer(plan).update(gradients, state.optimizer)
    params = optax.apply_updates(state.params, updates)
    rate = plan.settings.target_rate
    target = jax.tree.map(
        lambda kept, new: rate * new + (1 - rate) * kept, state.target_params, params
    )
    return State(params, target, optimizer), value


step_of_one = jax.jit(step, static_argnums=0)


@partial(jax.jit, static_argnums=0)
def step_of_all(plan: Plan, states: State, batches: Batch, keys: Array) -> tuple[State, Array]:
    """Returns the result for all agents, along the leading axis of the arguments."""
    return jax.vmap(partial(step, plan))(states, batches, keys)


class Agent:
    """Acts and learns like `benchmarks.reference.iqn.Agent`, with the two programs above."""

    def __init__(self, plan: Plan, params: network.Params, key: Array) -> None:
        self.plan, self.state, self.key, self.draws = plan, start(plan, params), key, 0

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


def kinds_of(world: ObjectWorld) -> np.ndarray:
    """Returns the channel of every object (height, width, 2), input of a compiled observation."""
    number = {kind: channel for channel, kind in enumerate(world.kinds)} | {"nothing": 0}
    return np.array([number[thing.kind] for thing in world.map.flat], np.int8).reshape(
        world.map.shape
    )


@partial(jax.jit, static_argnums=(3, 4))
def observe(kinds: Array, y: Array, x: Array, channels: int, radius: int) -> Array:
    """Returns the flat view at (y, x), as `ObjectWorld.observe`; channel 0 is empty, channel 1 the
    wall.
    """
    layers = jax.nn.one_hot(kinds, channels).sum(2).at[:, :, 0].set(0)
    beyond = jnp.pad(layers, ((radius, radius), (radius, radius), (0, 0)))
    inside = jnp.pad(jnp.ones(kinds.shape[:2]), radius)
    beyond = beyond.at[:, :, 1].add(1 - inside)
    side = 2 * radius + 1
    return (
        jax.lax.dynamic_slice(beyond, (y, x, 0), (side, side, channels))
        .transpose(2, 0, 1)
        .reshape(-1)
    )


@partial(jax.jit, static_argnums=(3, 4))
def observe_all(kinds: Array, ys: Array, xs: Array, channels: int, radius: int) -> Array:
    """Returns the views of agents at several places."""
    return jax.vmap(lambda y, x: observe(kinds, y, x, channels, radius))(ys, xs)


class Stored(NamedTuple):
    """Holds a host ring's arrays on the device."""

    states: Array
    actions: Array
    rewards: Array


@partial(jax.jit, static_argnums=(3, 4))
def sample(
    stored: Stored, starts: Array, key: Array, size: int, frames: int
) -> tuple[Array, Array, Array, Array]:
    """Samples like `NumpyRing.sample`: states, actions, rewards, next states."""
    indices = jax.random.choice(key, starts, (size,))[:, None] + jnp.arange(frames)
    states, later = (stored.states[rows].reshape(size, -1) for rows in (indices, indices + 1))
    return states, stored.actions[indices[:, -1]], stored.rewards[indices[:, -1]], later


@jax.jit
def stacked(previous: Array, frame: Array) -> Array:
    """Stacks frames: (frames - 1, frame), (frame,) -> (1, frames * frame)."""
    return jnp.concatenate([previous, frame[None]]).reshape(1, -1)
