"""a world's pure functions, a policy -> turns of many envs: observations, actions, rewards"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float32, Int, Int8, Int16, Key, Shaped

# Pytree of one env; has at least turn (int32, from 0 in each episode), episode (int32) and key.
State = Any
# A turn of the replay is a small integer.
MAX_TURN = jnp.iinfo(jnp.int16).max

# (key, agent, stack (env, frames*frame), oldest first, states of all envs) -> actions.
Policy = Callable[[Array, Array, Array, State], Array]


class ActionResult(NamedTuple):
    """Holds the result of one action.

    event: 0 entered floor, k >= 1 took an item of entity k, -1 hit a wall, -2 hit another agent.
    """

    state: State
    reward: Float32[Array, ""]
    event: Int8[Array, ""]


class TurnEnd(NamedTuple):
    """Holds a state after its turn, and whether its episode ended there."""

    state: State
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]


class World(NamedTuple):
    """Holds the pure functions of one world and its sizes; static in a compiled program.

    reset: (key, episode) -> state. begin_turn: state -> state. observe: (state, agent) -> frame,
    (frame_size,) of type `dtype`. act: (state, agent, action) -> ActionResult. end_turn: state ->
    TurnEnd. shuffled: whether agents act in a new random order each turn.
    """

    agents: int
    frame_size: int
    shuffled: bool
    reset: Callable[[Array, Array], State]
    begin_turn: Callable[[State], State]
    observe: Callable[[State, Array], Array]
    act: Callable[[State, Array, Array], ActionResult]
    end_turn: Callable[[State], TurnEnd]
    dtype: Any = jnp.int8


class EnvStates(NamedTuple):
    """Holds the envs between two turns.

    history: the frames before the next one, oldest first, zeros before the episode. final: the
    episode was truncated; its final observation comes next.
    """

    state: State
    history: Shaped[Array, "agent env back frame"]
    final: Bool[Array, " env"]


class Turn(NamedTuple):
    """Holds one turn of all envs; agents are in the order of their index, not of acting.

    turn: number of the turn in its episode, from 0. final: the turn comes after the last one of a
    truncated episode, for its final observation; it pays nothing.
    """

    frames: Shaped[Array, "*turn agent env frame"]
    actions: Int8[Array, "*turn agent env"]
    rewards: Float32[Array, "*turn agent env"]
    events: Int8[Array, "*turn agent env"]
    terminated: Bool[Array, "*turn env"]
    final: Bool[Array, "*turn env"]
    turn: Int16[Array, "*turn env"]


class Rollout(NamedTuple):
    """Holds the envs after some turns, and these turns (with a leading axis)."""

    envs: EnvStates
    turns: Turn


class _AgentTurn(NamedTuple):
    """Holds one agent's part of a turn in all envs: columns of `Turn`, and the next history."""

    frame: Shaped[Array, "env frame"]
    action: Int8[Array, " env"]
    reward: Float32[Array, " env"]
    event: Int8[Array, " env"]
    history: Shaped[Array, "env back frame"]


def start(world: World, keys: Key[Array, " env"], frames: int) -> EnvStates:
    """Returns one env per key at the start of episode 0, for policies that see `frames` frames."""
    state = jax.vmap(world.reset)(keys, jnp.zeros(len(keys), jnp.int32))
    history_shape = (world.agents, len(keys), frames - 1, world.frame_size)
    return EnvStates(state, jnp.zeros(history_shape, world.dtype), jnp.zeros(len(keys), bool))


def play(
    world: World,
    envs: EnvStates,
    policy: Policy,
    key: Key[Array, ""],
    first_turn: Int[Array, ""] | int,
    turns: int,
) -> Rollout:
    """Plays `turns` turns; envs whose episode ended start the next one.

    A truncated episode has a final turn more, which goes on as any other: an agent observes what
    those before it have changed.

    Turn i draws from fold_in(key, first_turn + i), so any split into calls gives the same bits.
    """
    end, played = lax.scan(
        lambda envs, keys: play_turn(world, envs, policy, keys),
        envs,
        turn_keys(world, key, first_turn, turns),
    )
    return Rollout(end, played)


def turn_keys(
    world: World, key: Key[Array, ""], first_turn: Int[Array, ""] | int, turns: int
) -> Key[Array, "turn key"]:
    """Returns the keys of each turn: one per agent, then one for the order of the agents.

    All are derived at once: on CPU, hashing a single number costs as much as an agent's whole turn.
    """

    def keys_of_turn(number: Array) -> Array:
        fold = partial(jax.random.fold_in, jax.random.fold_in(key, number))
        return jax.vmap(fold)(jnp.arange(world.agents + 1))

    return jax.vmap(keys_of_turn)(first_turn + jnp.arange(turns))


def turn_order(world: World, key: Key[Array, ""]) -> Int[Array, " agent"]:
    """Returns the agents in the order in which they act in all envs, from the turn's last key."""
    return jax.random.permutation(key, world.agents) if world.shuffled else jnp.arange(world.agents)


def play_turn(
    world: World, envs: EnvStates, policy: Policy, keys: Key[Array, " key"]
) -> tuple[EnvStates, Turn]:
    """Plays one turn with its keys from `turn_keys`."""
    order = turn_order(world, keys[-1])
    history = envs.history[order] if world.shuffled else envs.history
    state, agent_turns = lax.scan(
        partial(_play_agent, world, policy, keys),
        jax.vmap(world.begin_turn)(envs.state),
        (order, history),
    )
    if world.shuffled:
        by_agent = jnp.argsort(order)
        agent_turns = jax.tree.map(lambda leaf: leaf[by_agent], agent_turns)
    end = jax.vmap(world.end_turn)(state)
    terminated = end.terminated & ~envs.final
    turn = Turn(
        frames=agent_turns.frame,
        actions=agent_turns.action,
        rewards=jnp.where(envs.final, 0, agent_turns.reward),
        events=agent_turns.event,
        terminated=terminated,
        final=envs.final,
        turn=jnp.minimum(state.turn, MAX_TURN).astype(jnp.int16),
    )
    ended = terminated | envs.final
    envs = EnvStates(end.state, agent_turns.history, final=end.truncated & ~ended)
    return _reset_ended(world, envs, ended), turn


def _play_agent(
    world: World, policy: Policy, keys: Array, state: State, agent_and_history: tuple[Array, Array]
) -> tuple[State, _AgentTurn]:
    agent, past_frames = agent_and_history
    frame = _observe_envs(world, state, agent)
    stack = jnp.concatenate([past_frames, frame[:, None]], 1)
    action = policy(keys[agent], agent, stack.reshape(len(frame), -1), state)
    result = jax.vmap(world.act, (0, None, 0))(state, agent, action)
    agent_turn = _AgentTurn(
        frame=frame,
        action=action.astype(jnp.int8),
        reward=result.reward,
        event=result.event,
        history=stack[:, 1:],
    )
    return result.state, agent_turn


def _observe_envs(world: World, state: State, agent: Array) -> Shaped[Array, "env frame"]:
    def observe() -> Array:
        return jax.vmap(world.observe, (0, None))(state, agent)

    # If the policy ignores the frame, XLA would fuse its computation into the loop that stores it,
    # three times slower on CPU. It cannot fuse through a branch; this branch is always taken.
    return lax.platform_dependent(
        cpu=lambda: lax.cond(
            agent >= 0, observe, lambda: jnp.zeros((len(state.turn), world.frame_size), world.dtype)
        ),
        default=observe,
    )


def _reset_ended(world: World, envs: EnvStates, ended: Bool[Array, " env"]) -> EnvStates:
    """Starts the next episode, with a blank history, in the envs whose episode ended."""

    def reset_envs() -> EnvStates:
        select = partial(_select_envs, ended)
        reset_state = jax.vmap(world.reset)(envs.state.key, envs.state.episode + 1)
        return EnvStates(
            state=jax.tree.map(select, reset_state, envs.state),
            history=jnp.where(ended[:, None, None], 0, envs.history),
            final=envs.final,
        )

    return lax.cond(ended.any(), reset_envs, lambda: envs)


def _select_envs(mask: Array, where_true: Array, where_false: Array) -> Array:
    shape = (-1, *[1] * (where_false.ndim - 1))
    return jnp.where(mask.reshape(shape), where_true, where_false)
