"""schedule, key -> a deep Q-learner on CartPole: in every turn all worlds step once, then one batch is learnt from.

The plain algorithm (Mnih et al. 2015, with Adam), for what is compared is a whole loop around this project's ring.
Random numbers are drawn for all turns of a call at once, and the optimiser sees all parameters as one vector: fewer
small operations, each of which costs a microsecond or more.
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

SEEN, ACTIONS = 4, 2


class Schedule(NamedTuple):
    """What is trained, and when; steps are those of single environments."""

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
        return list(pairwise((SEEN, *self.hidden, ACTIONS)))

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
    """Everything that changes while learning."""

    params: Vector
    target_params: Vector
    optimizer: optax.OptState
    worlds: Worlds
    ring: FrameRing
    turns: Int32[Array, ""]


class Chances(NamedTuple):
    """What is random in a turn of all worlds."""

    starts: Float32[Array, "*turns lanes 4"]  # of the next episode, should this one end
    explores: Float32[Array, "*turns lanes"]  # below epsilon: act at random
    actions: Int32[Array, "*turns lanes"]
    ranks: UInt32[Array, "*turns batch"]  # modulo the number of stored transitions


class Ended(NamedTuple):
    """Which episodes ended in a turn, and the return of those that did."""

    ended: Bool[Array, "*turns lanes"]
    returns: Int32[Array, "*turns lanes"]


@partial(jax.jit, static_argnums=(0, 2))
def warmed_up(schedule: Schedule, key: PRNGKeyArray, steps: int) -> Learner:
    """A learner that has acted at random for a while, and learnt nothing yet."""
    for_params, for_worlds, for_play = jax.random.split(key, 3)
    params = init_params(schedule, for_params)
    worlds = world.reset(
        world.starts_of(jax.random.uniform(for_worlds, (schedule.environments, SEEN)))
    )

    def turn(
        carry: tuple[Worlds, FrameRing], chances: Chances
    ) -> tuple[tuple[Worlds, FrameRing], None]:
        worlds, memory = carry
        worlds, turns, _ = played(worlds, chances.actions, chances.starts)
        return (worlds, frames.write(memory, turns)), None

    turns = steps // schedule.environments
    chances = drawn(schedule, for_play, turns)
    template = jax.eval_shape(played, worlds, chances.actions[0], worlds.seen)[1]
    memory = frames.init(schedule.capacity // schedule.environments, template)
    (worlds, memory), _ = jax.lax.scan(turn, (worlds, memory), chances)
    return Learner(
        params, params, optimizer(schedule).init(params), worlds, memory, jnp.int32(turns)
    )


@partial(jax.jit, static_argnums=(0, 3), donate_argnums=1)
def train(
    schedule: Schedule, learner: Learner, key: PRNGKeyArray, turns: int
) -> tuple[Learner, Ended]:
    """So many turns, each with one gradient step."""
    chances = drawn(schedule, jax.random.fold_in(key, learner.turns), turns)
    return jax.lax.scan(partial(turn, schedule), learner, chances)


def turn(schedule: Schedule, learner: Learner, chances: Chances) -> tuple[Learner, Ended]:
    """Act in all worlds, store, draw, learn; now and then the target follows."""
    explore = chances.explores < schedule.epsilon(learner.turns)
    actions = jnp.where(
        explore, chances.actions, greedy(schedule, learner.params, learner.worlds.seen)
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
        starts=world.starts_of(jax.random.uniform(for_starts, (*lanes, SEEN))),
        explores=jax.random.uniform(for_explores, lanes),
        actions=(jax.random.bits(for_actions, lanes) % ACTIONS).astype(jnp.int32),
        ranks=jax.random.bits(for_ranks, (turns, schedule.batch_size)),
    )


# Acting.


def played(
    worlds: Worlds, actions: Int32[Array, "lanes"], starts: Float32[Array, "lanes 4"]
) -> tuple[Worlds, Transitions, Ended]:
    """One step of all worlds, as the ring stores it: one turn, one agent.

    What an episode led to at its end is not stored: no value follows a fall, and the turn that the limit cuts off
    is no start of a transition.
    """
    stepped = world.step(worlds, actions, starts)
    columns = (worlds.seen, actions.astype(jnp.int8), stepped.rewards)
    flags = (stepped.terminated, stepped.truncated, worlds.step.astype(jnp.int16))
    turns = Transitions(
        *(column[None, None] for column in columns), *(flag[None] for flag in flags)
    )
    return stepped.worlds, turns, Ended(stepped.terminated | stepped.truncated, worlds.step + 1)


def greedy(
    schedule: Schedule, params: Vector, seen: Float32[Array, "any 4"]
) -> Int32[Array, "any"]:
    value = values(layers(schedule, params), seen)
    return (value[1] > value[0]).astype(jnp.int32)


# The network.


def init_params(schedule: Schedule, key: PRNGKeyArray) -> Vector:
    """Uniform up to 1 / sqrt(inputs), biases too, as torch begins."""
    limits = [jnp.full((inputs + 1) * outputs, inputs**-0.5) for inputs, outputs in schedule.shapes]
    return jax.random.uniform(key, (sum(map(len, limits)),), minval=-1.0) * jnp.concatenate(limits)


def layers(schedule: Schedule, params: Vector) -> list[Layer]:
    found, begin = [], 0
    for inputs, outputs in schedule.shapes:
        end = begin + inputs * outputs
        found.append(Layer(params[begin:end].reshape(outputs, inputs), params[end : end + outputs]))
        begin = end + outputs
    return found


def values(layers: list[Layer], seen: Float32[Array, "any 4"]) -> Float32[Array, "2 any"]:
    """Of both actions, by fully connected layers with rectifiers between them; the batch is the last axis."""
    hidden = seen.T
    for number, layer in enumerate(layers):
        before = hidden if number == 0 else rectified(hidden)
        hidden = layer.weight @ before + layer.bias[:, None]
    return hidden


@jax.custom_vjp
def rectified(x: Float32[Array, "units any"]) -> Float32[Array, "units any"]:
    """`jax.nn.relu`, whose gradient looks at what it gave, which is kept anyway, and not at what it got."""
    return jnp.maximum(x, 0)


rectified.defvjp(
    lambda x: (rectified(x), rectified(x)), lambda given, slope: (jnp.where(given > 0, slope, 0),)
)


# Learning.


def draw(schedule: Schedule, memory: FrameRing, numbers: UInt32[Array, "batch"]) -> Batch:
    """Uniform with replacement over all stored transitions: `frames.sample`, but with numbers drawn before."""
    starts = frames.valid_starts(memory, schedule.window)
    ranks = (numbers % starts.total.astype(jnp.uint32)).astype(jnp.int32)
    return frames.gather_transitions(
        memory, 0, frames.start_entries(memory, starts, ranks), schedule.window
    )


def learnt(schedule: Schedule, learner: Learner, batch: Batch) -> tuple[Vector, optax.OptState]:
    """A step of Adam."""
    targets = target(schedule, learner.target_params, batch)
    slopes = jax.grad(loss)(layers(schedule, learner.params), batch, targets)
    gradient = jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(slopes)])
    change, state = optimizer(schedule).update(gradient, learner.optimizer)
    return learner.params + change, state


def target(schedule: Schedule, params: Vector, batch: Batch) -> Float32[Array, "batch"]:
    """return + discount * max_a target_value(next, a)"""
    value = values(layers(schedule, params), batch.next_stack)
    return batch.returns + batch.bootstrap * jnp.maximum(value[0], value[1])


def loss(layers: list[Layer], batch: Batch, targets: Float32[Array, "batch"]) -> Float32[Array, ""]:
    """mean((target - value(state, action))^2) / 2"""
    value = values(layers, batch.stack)
    return jnp.mean(optax.l2_loss(jnp.where(batch.action == 1, value[1], value[0]), targets))


def optimizer(schedule: Schedule) -> optax.GradientTransformation:
    return optax.adam(schedule.learning_rate)
