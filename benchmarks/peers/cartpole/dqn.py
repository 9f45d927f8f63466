"""schedule, key -> a deep Q-network on CartPole: each turn steps all environments once and trains
on one batch

The plain algorithm (Mnih et al. 2015, with Adam), since the comparison is about a whole loop
around this project's ring. Random numbers are drawn for all turns of a call at once, and the
optimiser sees all parameters as one vector: fewer small operations.
"""

from functools import partial
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jaxtyping import Bool, Float32, Int32, PRNGKeyArray, UInt32

from benchmarks.peers.cartpole import world
from benchmarks.peers.cartpole.world import Worlds
from quatrain.replay import frames
from quatrain.replay.frames import Batch, FrameRing, Transitions, Window

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
    def shapes(self) -> list[tuple[int, int]]:
        """Inputs and outputs of each layer."""
        return list(pairwise((OBS, *self.hidden, ACTIONS)))

    @property
    def turns_a_target(self) -> int:
        return max(1, self.target_every // self.environments)

    def epsilon(self, turns: Int32[Array, ""]) -> Float32[Array, ""]:
        """Falls linearly from 1."""
        share = turns * (self.environments / self.epsilon_over)
        return jnp.maximum(self.epsilon_end, 1 - (1 - self.epsilon_end) * share)


Vector = Float32[Array, "params"]
"""All layers' weights and biases, one after the other."""


class Layer(NamedTuple):
    weight: Float32[Array, "outputs inputs"]
    bias: Float32[Array, "outputs"]


class Learner(NamedTuple):
    """Holds everything that changes while learning."""

    params: Vector
    target_params: Vector
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


class Ended(NamedTuple):
    """Holds which episodes ended in a turn, and their returns."""

    ended: Bool[Array, "*turns lanes"]
    returns: Int32[Array, "*turns lanes"]


@partial(jax.jit, static_argnums=(0, 2))
def warmed_up(schedule: Schedule, key: PRNGKeyArray, steps: int) -> Learner:
    """Returns an untrained learner after some random transitions."""
    for_params, for_worlds, for_play = jax.random.split(key, 3)
    params = init_params(schedule, for_params)
    worlds = world.reset(
        world.starts_of(jax.random.uniform(for_worlds, (schedule.environments, OBS)))
    )

    def turn(
        carry: tuple[Worlds, FrameRing], chances: Chances
    ) -> tuple[tuple[Worlds, FrameRing], None]:
        worlds, memory = carry
        worlds, turns, _ = played(worlds, chances.actions, chances.starts)
        return (worlds, frames.write(memory, turns)), None

    turns = steps // schedule.environments
    chances = drawn(schedule, for_play, turns)
    template = jax.eval_shape(played, worlds, chances.actions[0], worlds.obs)[1]
    memory = frames.init(schedule.capacity // schedule.environments, template)
    (worlds, memory), _ = jax.lax.scan(turn, (worlds, memory), chances)
    return Learner(
        params, params, optimizer(schedule).init(params), worlds, memory, jnp.int32(turns)
    )


@partial(jax.jit, static_argnums=(0, 3), donate_argnums=1)
def train(
    schedule: Schedule, learner: Learner, key: PRNGKeyArray, turns: int
) -> tuple[Learner, Ended]:
    """Runs so many turns, each with one gradient step."""
    chances = drawn(schedule, jax.random.fold_in(key, learner.turns), turns)
    return jax.lax.scan(partial(turn, schedule), learner, chances)


def turn(schedule: Schedule, learner: Learner, chances: Chances) -> tuple[Learner, Ended]:
    """Acts in all environments, stores, samples, learns; updates the target periodically."""
    explore = chances.explores < schedule.epsilon(learner.turns)
    actions = jnp.where(
        explore, chances.actions, greedy(schedule, learner.params, learner.worlds.obs)
    )
    worlds, turns, ended = played(learner.worlds, actions, chances.starts)
    memory = frames.write(learner.ring, turns)
    params, adam = learnt(schedule, learner, draw(schedule, memory, chances.ranks))
    follow = learner.turns % schedule.turns_a_target == 0
    target_params = jnp.where(follow, params, learner.target_params)
    return Learner(params, target_params, adam, worlds, memory, learner.turns + 1), ended


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
) -> tuple[Worlds, Transitions, Ended]:
    """Steps all environments once, in the columns of the ring: one turn, one agent.

    The last observation of an episode is not stored: no value follows a fall, and the turn that
    the time limit cuts off
    starts no transition.
    """
    stepped = world.step(worlds, actions, starts)
    columns = (worlds.obs, actions.astype(jnp.int8), stepped.rewards)
    flags = (stepped.terminated, stepped.truncated, worlds.step.astype(jnp.int16))
    turns = Transitions(
        *(column[None, None] for column in columns), *(flag[None] for flag in flags)
    )
    return stepped.worlds, turns, Ended(stepped.terminated | stepped.truncated, worlds.step + 1)


def greedy(
    schedule: Schedule, params: Vector, observed: Float32[Array, "any 4"]
) -> Int32[Array, "any"]:
    value = values(layers(schedule, params), observed)
    return (value[1] > value[0]).astype(jnp.int32)


# The network.


def init_params(schedule: Schedule, key: PRNGKeyArray) -> Vector:
    """Draws weights and biases uniformly up to 1 / sqrt(inputs), as torch does."""
    limits = [jnp.full((inputs + 1) * outputs, inputs**-0.5) for inputs, outputs in schedule.shapes]
    return jax.random.uniform(key, (sum(map(len, limits)),), minval=-1.0) * jnp.concatenate(limits)


def layers(schedule: Schedule, params: Vector) -> list[Layer]:
    result, begin = [], 0
    for inputs, outputs in schedule.shapes:
        end = begin + inputs * outputs
        result.append(
            Layer(params[begin:end].reshape(outputs, inputs), params[end : end + outputs])
        )
        begin = end + outputs
    return result


def values(layers: list[Layer], observed: Float32[Array, "any 4"]) -> Float32[Array, "2 any"]:
    """Returns the values of both actions from fully connected layers with ReLU; the batch is the
    last axis.
    """
    hidden = observed.T
    for number, layer in enumerate(layers):
        before = hidden if number == 0 else rectified(hidden)
        hidden = layer.weight @ before + layer.bias[:, None]
    return hidden


@jax.custom_vjp
def rectified(x: Float32[Array, "units any"]) -> Float32[Array, "units any"]:
    """Computes `jax.nn.relu` with a gradient from its output, which is stored anyway, instead of
    its input.
    """
    return jnp.maximum(x, 0)


rectified.defvjp(
    lambda x: (rectified(x), rectified(x)),
    lambda argument, slope: (jnp.where(argument > 0, slope, 0),),
)


# Learning.


def draw(schedule: Schedule, memory: FrameRing, numbers: UInt32[Array, "batch"]) -> Batch:
    """Samples uniformly with replacement from all stored transitions: `frames.sample` with numbers
    drawn before.
    """
    starts = frames.valid_starts(memory, schedule.window)
    ranks = (numbers % starts.total.astype(jnp.uint32)).astype(jnp.int32)
    return frames.gather_transitions(
        memory, 0, frames.start_entries(memory, starts, ranks), schedule.window
    )


def learnt(schedule: Schedule, learner: Learner, batch: Batch) -> tuple[Vector, optax.OptState]:
    """Takes a step of Adam."""
    targets = target(schedule, learner.target_params, batch)
    slopes = jax.grad(loss)(layers(schedule, learner.params), batch, targets)
    gradient = jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(slopes)])
    change, state = optimizer(schedule).update(gradient, learner.optimizer)
    return learner.params + change, state


def target(schedule: Schedule, params: Vector, batch: Batch) -> Float32[Array, "batch"]:
    """Computes return + discount * max_a target_value(next, a)."""
    value = values(layers(schedule, params), batch.next_stack)
    return batch.returns + batch.bootstrap * jnp.maximum(value[0], value[1])


def loss(layers: list[Layer], batch: Batch, targets: Float32[Array, "batch"]) -> Float32[Array, ""]:
    """Computes mean((target - value(state, action))^2) / 2."""
    value = values(layers, batch.stack)
    return jnp.mean(optax.l2_loss(jnp.where(batch.action == 1, value[1], value[0]), targets))


def optimizer(schedule: Schedule) -> optax.GradientTransformation:
    return optax.adam(schedule.learning_rate)
