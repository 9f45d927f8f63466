"""rounds -> a row about a replay inside a compiled scan: iqn's ring against flashbax's flat buffer

Every step adds a turn of 16 environments and draws transitions.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.rows import OURS, Row
from benchmarks.timing import Continued, NotComparable, check_frequencies, race
from quatrain.replay.frames.ring import FrameRing, Transitions, from_transitions, write
from quatrain.replay.frames.sampling import Window, draw_starts, gather_transitions, valid_starts

BATCH, BINS = 256, 250
"""Transitions of a draw; ranges of their numbers in which draws are counted."""
STEPS, CHECKED = 300, 1_000_000
"""Of a call of a compiled program; transitions that are drawn before anything is timed."""
LANES, SLOTS = 16, 6_250
ONE_FRAME = Window(frames=1, n_step=1, discount=0.99)


class Transition(NamedTuple):
    """Holds one transition, or many with a leading axis; `reward` is its number."""

    obs: Any
    action: Any
    reward: Any
    next_obs: Any
    done: Any


class Replay(NamedTuple):
    """Holds a replay as functions, and its full state."""

    state: Any
    add: Callable[[Any, Transitions], Any]
    draw: Callable[[Any, jax.Array], Transition]


def rows(rounds: int) -> list[Row]:
    """Measures both with the random numbers of XLA's own generator.

    Raises:
        NotComparable: one does not draw uniformly.
    """
    turns = numbered_turns(SLOTS)
    replays = {OURS: ours(turns), "flashbax": flashbax(turns)}
    keys = jax.random.split(jax.random.key(0, impl="rbg"), STEPS)
    for name, replay in replays.items():
        check(name, replay, turns)
    works = {name: scanned(replay, keys) for name, replay in replays.items()}
    times = race(works, rounds, dict.fromkeys(works, STEPS))
    return [Row(f"add {LANES}, draw {BATCH} in a compiled scan", "us/call", times)]


def numbered_turns(turns: int) -> Transitions:
    """Returns turns of one endless episode with one agent. A frame is (turn, lane), the reward
    numbers the transitions.
    """
    turn, lane = np.meshgrid(np.arange(turns), np.arange(LANES), indexing="ij")
    number = turn * LANES + lane
    never = np.zeros((turns, LANES), bool)
    return Transitions(
        np.stack([turn, lane], axis=-1).astype(np.float32)[:, None],
        (number % 4).astype(np.int8)[:, None],
        number.astype(np.float32)[:, None],
        never,
        never,
        turn.astype(np.int16),
    )


def ours(turns: Transitions) -> Replay:
    def draw(ring: FrameRing, key: jax.Array) -> Transition:
        starts = draw_starts(key, ring, valid_starts(ring, ONE_FRAME), BATCH)
        batch = gather_transitions(ring, 0, starts, ONE_FRAME)
        ended = batch.bootstrap == 0
        return Transition(batch.stack, batch.action, batch.returns, batch.next_stack, ended)

    ring = jax.jit(partial(from_transitions, len(turns.turn)))(turns)
    return Replay(ring, write, draw)


def flashbax(turns: Transitions) -> Replay:
    from flashbax import make_flat_buffer

    size = len(turns.turn) * LANES
    buffer = make_flat_buffer(size, BATCH, BATCH, add_sequences=True, add_batch_size=LANES)

    def add(state: Any, turns: Transitions) -> Any:
        columns = (turns.frames[:, 0], turns.actions[:, 0], turns.rewards[:, 0], turns.terminated)
        return buffer.add(state, [jnp.swapaxes(column, 0, 1) for column in columns])

    def draw(state: Any, key: jax.Array) -> Transition:
        (*first, ended), (following, *_) = buffer.sample(state, key).experience
        return Transition(*first, following, ended)

    first = [turns.frames[0, 0, 0], turns.actions[0, 0, 0], turns.rewards[0, 0, 0]]
    empty = buffer.init([jnp.asarray(column) for column in (*first, turns.terminated[0, 0])])
    return Replay(jax.jit(add)(empty, turns), add, draw)


def scanned(replay: Replay, keys: jax.Array) -> Continued:
    """Returns steps of adding and drawing; each call donates its state to the next."""

    @partial(jax.jit, donate_argnums=0)
    def program(state: Any, keys: jax.Array, turns: Transitions) -> tuple[Any, Transition]:
        def step(carry, inputs):
            (state, sums), (key, turn) = carry, inputs
            state = replay.add(state, jax.tree.map(lambda column: column[None], turn))
            return (state, jax.tree.map(jnp.add, sums, replay.draw(state, key))), None

        shapes = jax.eval_shape(replay.draw, state, keys[0])
        zeros = jax.tree.map(lambda column: jnp.zeros(column.shape, jnp.float32), shapes)
        return jax.lax.scan(step, (state, zeros), (keys, turns))[0]

    turns = jax.tree.map(jnp.asarray, numbered_turns(STEPS))
    state = jax.tree.map(jnp.copy, replay.state)
    return Continued(lambda state: program(state, keys, turns), state)


def check(name: str, replay: Replay, turns: Transitions) -> None:
    """Raises NotComparable unless all transitions but those of the newest turn (which have no
    successor) are drawn equally often, with their successor.
    """
    split = jax.random.split(jax.random.key(1, impl="rbg"), CHECKED // BATCH)
    draw = jax.jit(lambda state, keys: jax.lax.map(partial(replay.draw, state), keys))
    draws = draw(replay.state, split)
    drawn = Transition(*(np.asarray(column).reshape(-1, *column.shape[2:]) for column in draws))
    columns = [column[:-1].reshape(-1, *column.shape[3:]) for column in turns[:3]]
    following = turns.frames[1:].reshape(columns[0].shape)
    never = turns.terminated[:-1].ravel()
    check_draws(name, drawn, Transition(*columns, following, never))


def check_draws(name: str, drawn: Transition, data: Transition) -> None:
    """Raises NotComparable unless all transitions, and no others, are drawn equally often."""
    numbers, stored = drawn.reward.reshape(-1).astype(np.int64), len(data.reward)
    counts, expected = (
        np.bincount(np.minimum(each, stored) * BINS // stored, minlength=BINS + 1)
        for each in (numbers, np.arange(stored))
    )
    check_frequencies(name, counts, expected * len(numbers) / stored)
    for column, stored_column in zip(drawn, data, strict=True):
        each = stored_column[numbers]
        if not np.array_equal(column.reshape(each.shape), each):
            raise NotComparable(f"{name}: draws transitions in parts of several")
