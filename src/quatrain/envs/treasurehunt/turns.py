"""A world's pure functions and a policy -> turns of many worlds: what was seen, done and earned."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float32, Int, Int8, Int16, Key

State = Any
"""A pytree of one world; at least: turn (int32, from 0 in each episode), episode (int32), key."""

Policy = Callable[[Array, Array, Array, State], Array]
"""key, agent, stack Int8 (lanes, frames*frame) oldest frame first, states of all lanes -> actions (lanes,)."""


class Acted(NamedTuple):
    """What one action did. event: 0 entered floor, k >= 1 took an item of entity k, -1 wall, -2 another agent."""

    state: State
    reward: Float32[Array, ""]
    event: Int8[Array, ""]


class Ended(NamedTuple):
    """A state after its turn, and whether its episode ended there."""

    state: State
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]


class World(NamedTuple):
    """The pure functions of one world, and its sizes; static in a compiled program.

    reset: (key, episode) -> state. begin_turn: state -> state. observe: (state, agent) -> Int8 (frame,).
    act: (state, agent, action) -> Acted. end_turn: state -> Ended. shuffled: whether agents act in a fresh order
    each turn.
    """

    agents: int
    frame_size: int
    shuffled: bool
    reset: Callable[[Array, Array], State]
    begin_turn: Callable[[State], State]
    observe: Callable[[State, Array], Array]
    act: Callable[[State, Array, Array], Acted]
    end_turn: Callable[[State], Ended]


class Lanes(NamedTuple):
    """Worlds between two turns. history: the frames before the next, oldest first, zeros before the episode."""

    state: State
    history: Int8[Array, "agents lanes back frame"]


class Turn(NamedTuple):
    """What one turn of all lanes was, agents by their index. turn: its number in the episode, from 0."""

    frames: Int8[Array, "*turns agents lanes frame"]
    actions: Int8[Array, "*turns agents lanes"]
    rewards: Float32[Array, "*turns agents lanes"]
    events: Int8[Array, "*turns agents lanes"]
    terminated: Bool[Array, "*turns lanes"]
    truncated: Bool[Array, "*turns lanes"]
    turn: Int16[Array, "*turns lanes"]


class Played(NamedTuple):
    """The lanes after some turns, and these turns (with a leading axis)."""

    lanes: Lanes
    turns: Turn


class _Choice(NamedTuple):
    """What one agent saw, did and earned in all lanes."""

    frame: Int8[Array, "lanes frame"]
    action: Int8[Array, " lanes"]
    reward: Float32[Array, " lanes"]
    event: Int8[Array, " lanes"]
    history: Int8[Array, "lanes back frame"]


def start(world: World, keys: Key[Array, " lanes"], frames: int) -> Lanes:
    """Each key's world at the start of episode 0; policies will see `frames` frames, this turn's included."""
    state = jax.vmap(world.reset)(keys, jnp.zeros(len(keys), jnp.int32))
    return Lanes(
        state, jnp.zeros((world.agents, len(keys), frames - 1, world.frame_size), jnp.int8)
    )


def play(
    world: World,
    lanes: Lanes,
    policy: Policy,
    key: Key[Array, ""],
    first_turn: Int[Array, ""],
    turns: int,
) -> Played:
    """Play `turns` turns; ended episodes start anew. Turn i draws from fold_in(key, first_turn + i), so any split
    of turns over calls gives the same bits.
    """

    def one_turn(lanes: Lanes, keys: Array) -> tuple[Lanes, Turn]:
        return play_turn(world, lanes, policy, keys)

    return Played(*lax.scan(one_turn, lanes, keys_of(world, key, first_turn, turns)))


def keys_of(
    world: World, key: Key[Array, ""], first_turn: Int[Array, ""], turns: int
) -> Key[Array, "turns keys"]:
    """Of each turn the keys of its agents, and last that of their order.

    All at once: a hash for a single number costs the CPU as much as an agent's whole turn.
    """

    def of_turn(number: Array) -> Array:
        return jax.vmap(partial(jax.random.fold_in, jax.random.fold_in(key, number)))(
            jnp.arange(world.agents + 1)
        )

    return jax.vmap(of_turn)(first_turn + jnp.arange(turns))


def turn_order(world: World, key: Key[Array, ""]) -> Int[Array, " agents"]:
    """Who acts first, second, ... in all lanes of a turn; key: fold_in(the turn's key, agents)."""
    return jax.random.permutation(key, world.agents) if world.shuffled else jnp.arange(world.agents)


def play_turn(
    world: World, lanes: Lanes, policy: Policy, keys: Key[Array, " keys"]
) -> tuple[Lanes, Turn]:
    """One turn of `play`, with the keys that are its own."""
    order = turn_order(world, keys[-1])
    history = lanes.history[order] if world.shuffled else lanes.history

    def one_agent(state: State, agent_and_history: tuple[Array, Array]) -> tuple[State, _Choice]:
        agent, past = agent_and_history
        frame = _observed(world, state, agent)
        stack = jnp.concatenate([past, frame[:, None]], 1)
        action = policy(keys[agent], agent, stack.reshape(len(frame), -1), state)
        acted = jax.vmap(world.act, (0, None, 0))(state, agent, action)
        return acted.state, _Choice(
            frame, action.astype(jnp.int8), acted.reward, acted.event, stack[:, 1:]
        )

    state, choices = lax.scan(one_agent, jax.vmap(world.begin_turn)(lanes.state), (order, history))
    if world.shuffled:
        by_agent = jnp.argsort(order)
        choices = jax.tree.map(lambda leaf: leaf[by_agent], choices)
    ended = jax.vmap(world.end_turn)(state)
    turn = Turn(*choices[:4], ended.terminated, ended.truncated, state.turn.astype(jnp.int16))
    return _renew(
        world, Lanes(ended.state, choices.history), ended.terminated | ended.truncated
    ), turn


def _observed(world: World, state: State, agent: Array) -> Int8[Array, "lanes frame"]:
    def observed() -> Array:
        return jax.vmap(world.observe, (0, None))(state, agent)

    def blank() -> Array:
        return jnp.zeros((len(state.turn), world.frame_size), jnp.int8)

    # XLA would compute a frame that nobody reads inside the loop that stores it, three times slower on a CPU.
    # It cannot look through a branch; this one is always taken.
    return lax.platform_dependent(
        cpu=lambda: lax.cond(agent >= 0, observed, blank), default=observed
    )


def _renew(world: World, lanes: Lanes, over: Bool[Array, " lanes"]) -> Lanes:
    """The next episode in lanes where the last one is over, with a blank history."""

    def renewed() -> Lanes:
        fresh = jax.vmap(world.reset)(lanes.state.key, lanes.state.episode + 1)
        state = jax.tree.map(lambda new, old: _where(over, new, old, axis=0), fresh, lanes.state)
        return Lanes(state, _where(over, jnp.zeros_like(lanes.history), lanes.history, axis=1))

    return lax.cond(over.any(), renewed, lambda: lanes)


def _where(over: Array, new: Array, old: Array, axis: int) -> Array:
    shape = [1] * old.ndim
    shape[axis] = len(over)
    return jnp.where(over.reshape(shape), new, old)
