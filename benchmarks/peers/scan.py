"""rounds -> rows about a replay inside a compiled scan: iqn's ring against flashbax's flat buffer

Every step adds a turn of 16 environments and draws transitions.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import flashbax
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.harness import Contestant, Goal, Measured, Row, Without, race
from benchmarks.jax_work import Continued
from benchmarks.peers.buffers import Transition, refuse_others
from quatrain.replay.frames.ring import FrameRing, Transitions, from_transitions, write
from quatrain.replay.frames.sampling import Window, random_words, sample_from_words, valid_starts

STEPS, CHECKED = 300, 1_000_000
"""Of a call of a compiled program; transitions that are drawn before anything is timed."""
LANES, SLOTS, BATCH = 16, 6_250, 256
ONE_FRAME = Window(frames=1, n_step=1, discount=0.99)
GOALS = {"rbg": 2.0, "threefry2x32": 1.5}
TRIED = (
    "a form of its own for draws without a stack or a second turn: no gain; what a key costs in"
    " each step is why the words of all steps are drawn at once in the row above"
)
"""Where ours has a key for each step, as flashbax wants it."""


class Replay(NamedTuple):
    """Holds a replay as functions, and its state when it holds `numbered_turns`; `draw_inputs`:
    keys -> the input of each draw.
    """

    state: Any
    add: Callable[[Any, Transitions], Any]
    draw: Callable[[Any, jax.Array], Transition]
    draw_inputs: Callable[[jax.Array], jax.Array] = lambda keys: keys


def rows(rounds: int) -> list[Row]:
    """Measures both kinds of keys."""
    result = []
    for keys, goal in GOALS.items():
        row, by_key = measured(keys, rounds)
        name = f"add {LANES} + sample({BATCH}) in a scan, {keys} keys"
        both = {"goal": Goal(goal, "before")}
        result.append(row._replace(name=name, **both))
        name = "  ours with a key for each step, too"
        result.append(row._replace(name=name, ours=by_key, without=None, tried=TRIED, **both))
    return result


def measured(keys: str, rounds: int) -> tuple[Row, Measured]:
    """Returns ours beside flashbax and the gathers alone, and ours with a key for each step; checks
    what they draw.

    Raises:
        NotComparable: one does not draw uniformly.
    """
    turns = numbered_turns(SLOTS)
    ours = our_replay(turns)
    by_key = Replay(*ours[:2], lambda ring, key: ours.draw(ring, random_words(key, BATCH)))
    replays = {"ours": ours, "by key": by_key, "flashbax": flashbax_replay(turns)}
    for name, replay in replays.items():
        refuse_other_draws(name, replay, keys, turns)
    split = jax.random.split(jax.random.key(0, impl=keys), STEPS)
    contestants = {name: scanned(replay, split) for name, replay in replays.items()}
    entries = jax.random.randint(jax.random.key(2), (STEPS, BATCH), 0, (SLOTS - 1) * LANES)
    times = race(contestants | {"limit": scanned(gathering(turns), entries)}, rounds)
    row = Row(
        "",
        "us/call",
        times["ours"],
        times["flashbax"],
        limit=times["limit"],
        without=Without("random words of all steps at once", times["by key"]),
        against="flashbax",
    )
    return row, times["by key"]


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
        # More turns than 16 bits count: without stacks nothing reads the turn of an episode.
        turn.astype(np.int16),
    )


def our_replay(turns: Transitions) -> Replay:
    """Draws the random words of all steps at once: the fastest way in a scan."""

    def draw(ring: FrameRing, words: jax.Array) -> Transition:
        batch = sample_from_words(words, ring, valid_starts(ring, ONE_FRAME), 0, ONE_FRAME)
        ended = batch.bootstrap == 0
        return Transition(batch.stack, batch.action, batch.returns, batch.next_stack, ended)

    ring = jax.jit(partial(from_transitions, len(turns.turn)))(turns)
    return Replay(ring, write, draw, jax.vmap(partial(random_words, batch_size=BATCH)))


def flashbax_replay(turns: Transitions) -> Replay:
    buffer = flashbax.make_flat_buffer(
        len(turns.turn) * LANES, BATCH, BATCH, add_sequences=True, add_batch_size=LANES
    )

    def add(state: Any, turns: Transitions) -> Any:
        columns = (turns.frames[:, 0], turns.actions[:, 0], turns.rewards[:, 0], turns.terminated)
        return buffer.add(state, [jnp.swapaxes(column, 0, 1) for column in columns])

    def draw(state: Any, key: jax.Array) -> Transition:
        (*first, ended), (following, *_) = buffer.sample(state, key).experience
        return Transition(*first, following, ended)

    first = [turns.frames[0, 0, 0], turns.actions[0, 0, 0], turns.rewards[0, 0, 0]]
    empty = buffer.init([jnp.asarray(column) for column in (*first, turns.terminated[0, 0])])
    return Replay(jax.jit(add)(empty, turns), add, draw)


def gathering(turns: Transitions) -> Replay:
    """Measures the lower bound: writes the turn into slot 0 and gathers given entries."""

    def add(data: Transitions, turn: Transitions) -> Transitions:
        update = partial(jax.lax.dynamic_update_slice_in_dim, start_index=0, axis=0)
        return jax.tree.map(update, data, turn)

    def draw(data: Transitions, entries: jax.Array) -> Transition:
        def take(column: jax.Array, at: jax.Array) -> jax.Array:
            return column.reshape(-1, *column.shape[3:]).at[at].get(mode="promise_in_bounds")

        now = [take(column, entries) for column in data[:3]]
        ended = take(data.terminated[:, None], entries)
        return Transition(*now, take(data.frames, entries + LANES), ended)

    return Replay(jax.tree.map(jnp.asarray, turns), add, draw)


def scanned(replay: Replay, keys: jax.Array) -> Contestant:
    """Returns steps of adding and drawing; each call donates its state to the next."""

    @partial(jax.jit, donate_argnums=0)
    def program(state: Any, keys: jax.Array, turns: Transitions) -> tuple[Any, Transition]:
        def step(carry, inputs):
            (state, sums), (key, turn) = carry, inputs
            state = replay.add(state, jax.tree.map(lambda column: column[None], turn))
            return (state, jax.tree.map(jnp.add, sums, replay.draw(state, key))), None

        draws = replay.draw_inputs(keys)
        shapes = jax.eval_shape(replay.draw, state, draws[0])
        zeros = jax.tree.map(lambda column: jnp.zeros(column.shape, jnp.float32), shapes)
        return jax.lax.scan(step, (state, zeros), (draws, turns))[0]

    turns = jax.tree.map(jnp.asarray, numbered_turns(STEPS))
    state = jax.tree.map(jnp.copy, replay.state)
    return Contestant(Continued(lambda state: program(state, keys, turns), state), STEPS)


def refuse_other_draws(name: str, replay: Replay, keys: str, turns: Transitions) -> None:
    """Raises NotComparable unless all transitions but those of the newest turn (which have no
    successor) are drawn equally often, with their successor.
    """
    split = jax.random.split(jax.random.key(1, impl=keys), CHECKED // BATCH)
    draw = jax.jit(lambda state, keys: jax.lax.map(partial(replay.draw, state), keys))
    draws = draw(replay.state, replay.draw_inputs(split))
    drawn = Transition(*(np.asarray(column).reshape(-1, *column.shape[2:]) for column in draws))
    columns = [column[:-1].reshape(-1, *column.shape[3:]) for column in turns[:3]]
    following = turns.frames[1:].reshape(columns[0].shape)
    never = turns.terminated[:-1].ravel()
    refuse_others(name, drawn, Transition(*columns, following, never))
