"""schedule, key -> a deep Q-network on CartPole: each turn steps all environments once and trains
on one batch

The plain algorithm (Mnih et al. 2015, with Adam) around this project's ring. Random numbers are
drawn for all turns of a call at once, and Adam sees all parameters as one vector: fewer small
operations.
"""

from functools import partial
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jaxtyping import Float32, Int32, PRNGKeyArray, UInt32

from benchmarks.peers.cartpole import world
from benchmarks.peers.cartpole.world import Worlds
from quatrain.replay.frames.ring import FrameRing, Transitions, from_transitions, write
from quatrain.replay.frames.sampling import (
    Batch,
    Window,
    gather_transitions,
    start_entries,
    valid_starts,
)

OBS, ACTIONS = 4, 2


class Schedule(NamedTuple):
    """Holds what is trained and when; steps are environment steps."""

    environments: int = 10
    capacity: int = 10_000
    warm_up: int = 1_000
    batch_size: int = 128
    hidden: tuple[int, ...] = (64, 64)
    learning_rate: float = 1e-3
    discount: float = 0.99
    target_every: int = 500
    epsilon_over: int = 10_000
    epsilon_end: float = 0.05

    @property
    def window(self) -> Window:
        return Window(frames=1, n_step=1, discount=self.discount)

    @property
    def optimizer(self) -> optax.GradientTransformation:
        return optax.flatten(optax.adam(self.learning_rate))

    def epsilon(self, turns: Int32[Array, ""]) -> Float32[Array, ""]:
        """Falls linearly from 1."""
        share = turns * (self.environments / self.epsilon_over)
        return jnp.maximum(self.epsilon_end, 1 - (1 - self.epsilon_end) * share)


class Layer(NamedTuple):
    weight: Float32[Array, "outputs inputs"]
    bias: Float32[Array, "outputs"]


Layers = list[Layer]


class Learner(NamedTuple):
    """Holds everything that changes while learning."""

    params: Layers
    target_params: Layers
    optimizer: optax.OptState
    worlds: Worlds
    ring: FrameRing
    turns: Int32[Array, ""]


class Chances(NamedTuple):
    """Holds the random numbers of one turn of all environments."""

    starts: Float32[Array, "*turns lanes 4"]  # of the next episode, should this one end
    explores: Float32[Array, "*turns lanes"]  # below epsilon: act at random
    actions: Int32[Array, "*turns lanes"]
    ranks: UInt32[Array, "*turns batch"]  # modulo the number of stored transitions


@partial(jax.jit, static_argnums=0)
def warmed_up(schedule: Schedule, key: PRNGKeyArray) -> Learner:
    """Returns an untrained learner after the random transitions of the warm-up."""
    for_params, for_worlds, for_play = jax.random.split(key, 3)
    params = init_params(schedule, for_params)
    uniforms = jax.random.uniform(for_worlds, (schedule.environments, OBS))
    turns = schedule.warm_up // schedule.environments
    chances = drawn(schedule, for_play, turns)

    def play(worlds: Worlds, chances: Chances) -> tuple[Worlds, Transitions]:
        return played(worlds, chances.actions, chances.starts)

    worlds, blocks = jax.lax.scan(play, world.reset(world.starts_of(uniforms)), chances)
    block = Transitions(*(column[:, 0] for column in blocks))
    ring = from_transitions(schedule.capacity // schedule.environments, block)
    adam = schedule.optimizer.init(params)
    return Learner(params, params, adam, worlds, ring, jnp.int32(turns))


@partial(jax.jit, static_argnums=(0, 3), donate_argnums=1)
def train(schedule: Schedule, learner: Learner, key: PRNGKeyArray, turns: int) -> Learner:
    """Runs so many turns, each with one gradient step."""
    chances = drawn(schedule, jax.random.fold_in(key, learner.turns), turns)
    return jax.lax.scan(partial(turn, schedule), learner, chances)[0]


def turn(schedule: Schedule, learner: Learner, chances: Chances) -> tuple[Learner, None]:
    """Acts in all environments, stores, samples, learns; updates the target periodically."""
    explore = chances.explores < schedule.epsilon(learner.turns)
    actions = jnp.where(explore, chances.actions, greedy(learner.params, learner.worlds.obs))
    worlds, block = played(learner.worlds, actions, chances.starts)
    ring = write(learner.ring, block)
    params, adam = learnt(schedule, learner, draw(schedule, ring, chances.ranks))
    follow = learner.turns % max(1, schedule.target_every // schedule.environments) == 0
    target_params = jax.tree.map(partial(jnp.where, follow), params, learner.target_params)
    return Learner(params, target_params, adam, worlds, ring, learner.turns + 1), None


def drawn(schedule: Schedule, key: PRNGKeyArray, turns: int) -> Chances:
    lanes = (turns, schedule.environments)
    for_starts, for_explores, for_actions, for_ranks = jax.random.split(key, 4)
    return Chances(
        starts=world.starts_of(jax.random.uniform(for_starts, (*lanes, OBS))),
        explores=jax.random.uniform(for_explores, lanes),
        actions=(jax.random.bits(for_actions, lanes) % ACTIONS).astype(jnp.int32),
        ranks=jax.random.bits(for_ranks, (turns, schedule.batch_size)),
    )


# Acting.


def played(
    worlds: Worlds, actions: Int32[Array, "lanes"], starts: Float32[Array, "lanes 4"]
) -> tuple[Worlds, Transitions]:
    """Steps all environments once; returns the turn of one agent as the ring stores it.

    The last observation of an episode is not stored: no value follows a fall, and the turn that
    the time limit cuts off counts as final: it starts no transition.
    """
    stepped = world.step(worlds, actions, starts)
    columns = (worlds.obs, actions.astype(jnp.int8), stepped.rewards)
    final = stepped.truncated & ~stepped.terminated
    flags = (stepped.terminated, final, worlds.step.astype(jnp.int16))
    of_agent = (column[None, None] for column in columns)
    return stepped.worlds, Transitions(*of_agent, *(flag[None] for flag in flags))


def greedy(params: Layers, observed: Float32[Array, "any 4"]) -> Int32[Array, "any"]:
    value = values(params, observed)
    return (value[1] > value[0]).astype(jnp.int32)


# The network.


def init_params(schedule: Schedule, key: PRNGKeyArray) -> Layers:
    """Draws weights and biases uniformly up to 1 / sqrt(inputs), as torch does."""
    result = []
    for inputs, outputs in pairwise((OBS, *schedule.hidden, ACTIONS)):
        key, for_layer = jax.random.split(key)
        drawn = jax.random.uniform(for_layer, (outputs, inputs + 1), minval=-1.0) * inputs**-0.5
        result.append(Layer(drawn[:, :-1], drawn[:, -1]))
    return result


def values(layers: Layers, observed: Float32[Array, "any 4"]) -> Float32[Array, "2 any"]:
    """Returns the values of both actions; the batch is the last axis, which is faster."""
    first, *others = layers
    result = first.weight @ observed.T + first.bias[:, None]
    for layer in others:
        result = layer.weight @ rectified(result) + layer.bias[:, None]
    return result


@jax.custom_vjp
def rectified(x: Float32[Array, "units any"]) -> Float32[Array, "units any"]:
    """Computes ReLU with a gradient from its output, which is stored anyway, not from its input."""
    return jnp.maximum(x, 0)


rectified.defvjp(
    lambda x: (rectified(x), rectified(x)),
    lambda argument, slope: (jnp.where(argument > 0, slope, 0),),
)


# Learning.


def draw(schedule: Schedule, ring: FrameRing, numbers: UInt32[Array, "batch"]) -> Batch:
    """Samples all stored transitions alike: `sample` with numbers drawn before."""
    starts = valid_starts(ring, schedule.window)
    ranks = (numbers % starts.total.astype(jnp.uint32)).astype(jnp.int32)
    entries = start_entries(ring, starts, ranks)
    return gather_transitions(ring, 0, entries, schedule.window)


def learnt(schedule: Schedule, learner: Learner, batch: Batch) -> tuple[Layers, optax.OptState]:
    """Takes a step of Adam towards return + discount * max_a target_value(next, a)."""
    following = values(learner.target_params, batch.next_stack)
    targets = batch.returns + batch.bootstrap * jnp.maximum(*following)
    gradient = jax.grad(loss)(learner.params, batch, targets)
    change, state = schedule.optimizer.update(gradient, learner.optimizer)
    return optax.apply_updates(learner.params, change), state


def loss(layers: Layers, batch: Batch, targets: Float32[Array, "batch"]) -> Float32[Array, ""]:
    """Computes mean((target - value(state, action))^2) / 2."""
    value = values(layers, batch.stack)
    return jnp.mean(optax.l2_loss(jnp.where(batch.action == 1, value[1], value[0]), targets))
