"""rounds -> rows about a replay inside a compiled scan: iqn's ring against flashbax's flat buffer

Every step adds a turn of 16 environments and draws transitions.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import flashbax
import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import chisquare

from benchmarks.harness import Contestant, Measured, race
from benchmarks.table import Goal, NotTheSame, Point, Row, Without
from quatrain.replay.frames import (
    FrameRing,
    Transitions,
    Window,
    from_transitions,
    random_words,
    sample_from_words,
    valid_starts,
    write,
)

STEPS = 300
"""Of a call of a compiled program."""
LANES, SLOTS, BATCH = 16, 6_250, 256
CAPACITIES, BATCHES = (10_000, 100_000, 1_000_000), (32, 256, 2048)
ONE_FRAME = Window(frames=1, n_step=1, discount=0.99)
GOALS = {"rbg": 2.0, "threefry2x32": 1.5}
CHECKED = 1_000_000
"""Transitions that are drawn before anything is timed."""
TRIED = (
    "a form of its own for draws without a stack or a second turn: no gain; what a key costs in"
    " each step is why the words of all steps are drawn at once in the row above"
)
"""Where ours has a key for each step, as flashbax wants it."""


class Drawn(NamedTuple):
    """Holds what a learner needs of a draw; both sides may leave out the rest."""

    frame: jax.Array
    action: jax.Array
    reward: jax.Array
    terminated: jax.Array
    next_frame: jax.Array


class Replay(NamedTuple):
    """Holds a replay as functions, and its state when it holds `numbered_turns`; `draw_inputs`:
    keys ->
    the input of each draw.
    """

    state: Any
    add: Callable[[Any, Transitions], Any]
    draw: Callable[[Any, jax.Array], Drawn]
    draw_inputs: Callable[[jax.Array], jax.Array] = lambda keys: keys


def rows(rounds: int) -> list[Row]:
    """Measures both kinds of keys, and the cost of a step by capacity and batch."""
    result, times_of = [], cache(partial(raced, rounds=rounds))  # two curves meet in one point
    for keys, goal in GOALS.items():
        times = times_of(SLOTS, BATCH, keys)
        name = f"add {LANES} + sample({BATCH}) in a scan, {keys} keys; before: flashbax"
        result.append(row_of(name, times)._replace(goal=Goal(goal, "before")))
        name = "  ours with a key for each step, too; before: flashbax"
        result.append(
            result[-1]._replace(name=name, ours=times["by key"], without=None, tried=TRIED)
        )
    for at in CAPACITIES:
        point = Point("add and draw in a scan: transitions stored", "transitions stored", at)
        times = times_of(at // LANES, BATCH, "rbg")
        result.append(
            row_of(f"  {at:,} stored, rbg keys; before: flashbax", times)._replace(point=point)
        )
    for at in BATCHES:
        point = Point("add and draw in a scan: batch", "batch", at)
        times = times_of(SLOTS, at, "rbg")
        result.append(
            row_of(f"  a batch of {at}, rbg keys; before: flashbax", times)._replace(point=point)
        )
    return result


def row_of(name: str, times: dict[str, Measured]) -> Row:
    without = Without("random words of all steps at once", times["by key"])
    ours, limit = times["ours"], times["limit"]
    return Row(
        name, "us/call", ours, times["flashbax"], limit=limit, without=without, against="flashbax"
    )


def raced(slots: int, batch: int, keys: str, rounds: int) -> dict[str, Measured]:
    """Ours, flashbax and the gathers alone, after a look at what they draw.

    Raises:
        NotTheSame: one does not draw uniformly.
    """
    turns = numbered_turns(slots)
    ours = our_replay(turns, batch)
    replays = {
        "ours": ours,
        "by key": by_key(ours, batch),
        "flashbax": flashbax_replay(turns, batch),
    }
    for name, replay in replays.items():
        refuse_uneven_draws(name, replay, keys, slots, batch)
    split = jax.random.split(jax.random.key(0, impl=keys), STEPS)
    contestants = {name: scanned(replay, split) for name, replay in replays.items()}
    entries = jax.random.randint(jax.random.key(2), (STEPS, batch), 0, (slots - 1) * LANES)
    return race(contestants | {"limit": scanned(gathering(turns), entries)}, rounds)


def numbered_turns(turns: int) -> Transitions:
    """Turns of one endless episode, one agent; a frame is (turn, lane)."""
    shape = (turns, 1, LANES)
    frames = np.stack(
        np.broadcast_arrays(np.arange(turns)[:, None, None], np.arange(LANES)), axis=-1
    )
    numbers, never = frames.sum(axis=-1), np.zeros((turns, LANES), bool)
    # An episode of more turns than 16 bits count: what is not stacked does not ask for the turn.
    turn = np.broadcast_to(np.arange(turns).astype(np.int16)[:, None], (turns, LANES))
    frames, actions = frames.astype(np.float32), (numbers % 4).astype(np.int8)
    return Transitions(
        frames.reshape(*shape, 2), actions, numbers.astype(np.float32), never, never, turn
    )


def our_replay(turns: Transitions, batch: int) -> Replay:
    """Draws the random words of all steps at once: the fastest way in a scan."""

    def draw(ring: FrameRing, argument: jax.Array) -> Drawn:
        result = sample_from_words(argument, ring, valid_starts(ring, ONE_FRAME), 0, ONE_FRAME)
        return Drawn(
            result.stack, result.action, result.returns, result.bootstrap == 0, result.next_stack
        )

    argument = jax.vmap(partial(random_words, batch_size=batch))
    return Replay(jax.jit(partial(from_transitions, len(turns.turn)))(turns), write, draw, argument)


def by_key(replay: Replay, batch: int) -> Replay:
    """Ours, with a key for each step."""
    return Replay(
        replay.state, replay.add, lambda ring, key: replay.draw(ring, random_words(key, batch))
    )


def flashbax_replay(turns: Transitions, batch: int) -> Replay:
    slots = len(turns.turn)
    buffer = flashbax.make_flat_buffer(
        slots * LANES, batch, batch, add_sequences=True, add_batch_size=LANES
    )

    def items(turns: Transitions) -> dict[str, jax.Array]:
        """Lanes first, then time."""
        columns = {
            "frame": turns.frames[:, 0],
            "action": turns.actions[:, 0],
            "reward": turns.rewards[:, 0],
        }
        return {
            name: jnp.swapaxes(column, 0, 1)
            for name, column in (columns | {"ended": turns.terminated}).items()
        }

    def draw(state: Any, key: jax.Array) -> Drawn:
        first, second = buffer.sample(state, key).experience
        return Drawn(
            first["frame"], first["action"], first["reward"], first["ended"], second["frame"]
        )

    def add(state: Any, turns: Transitions) -> Any:
        return buffer.add(state, items(turns))

    empty = buffer.init(
        jax.tree.map(
            lambda column: column[0, 0], items(jax.tree.map(lambda column: column[:1], turns))
        )
    )
    return Replay(jax.jit(add)(empty, turns), add, draw)


def gathering(turns: Transitions) -> Replay:
    """Measures the lower bound: writes the turn into slot 0 and gathers given entries."""

    def add(data: Transitions, turn: Transitions) -> Transitions:
        return jax.tree.map(
            lambda slots, values: jax.lax.dynamic_update_slice_in_dim(slots, values, 0, 0),
            data,
            turn,
        )

    def draw(data: Transitions, entries: jax.Array) -> Drawn:
        def take(column: jax.Array, at: jax.Array) -> jax.Array:
            return column.reshape(-1, *column.shape[3:]).at[at].get(mode="promise_in_bounds")

        ended = data.terminated[:, None]
        result = [
            take(column, entries) for column in (data.frames, data.actions, data.rewards, ended)
        ]
        return Drawn(*result, take(data.frames, entries + LANES))

    return Replay(jax.tree.map(jnp.asarray, turns), add, draw)


def scanned(replay: Replay, keys: jax.Array) -> Contestant:
    """Steps of adding and drawing, the state donated from call to call."""

    @partial(jax.jit, donate_argnums=0)
    def program(state: Any, keys: jax.Array, turns: Transitions) -> tuple[Any, Drawn]:
        def step(
            carry: tuple[Any, Drawn], inputs: tuple[jax.Array, Transitions]
        ) -> tuple[tuple[Any, Drawn], None]:
            (state, sums), (key, turn) = carry, inputs
            state = replay.add(state, jax.tree.map(lambda column: column[None], turn))
            sums = jax.tree.map(jnp.add, sums, replay.draw(state, key))
            return (state, sums), None

        argument = replay.draw_inputs(keys)
        shapes = jax.eval_shape(replay.draw, state, argument[0])
        zeros = jax.tree.map(lambda column: jnp.zeros(column.shape, jnp.float32), shapes)
        return jax.lax.scan(step, (state, zeros), (argument, turns))[0]

    stored, turns = (
        [jax.tree.map(jnp.copy, replay.state)],
        jax.tree.map(jnp.asarray, numbered_turns(STEPS)),
    )

    def run() -> None:
        state, sums = program(stored.pop(), keys, turns)
        stored.append(jax.block_until_ready(state))
        jax.block_until_ready(sums)

    return Contestant(run, STEPS)


def refuse_uneven_draws(name: str, replay: Replay, keys: str, slots: int, batch: int) -> None:
    """Checks that all turns but the newest (which has no successor) are drawn equally often, with
    their successor.

    Raises:
        NotTheSame: they are not.
    """
    split = jax.random.split(jax.random.key(1, impl=keys), CHECKED // batch)
    drawn = jax.jit(
        lambda state, keys: jax.lax.map(partial(replay.draw, state), replay.draw_inputs(keys))
    )(replay.state, split)
    frame, action, reward, _, later = (
        np.asarray(column).reshape(-1, *column.shape[2:]) for column in drawn
    )
    turn, lane = frame.astype(np.int64).T
    whole = (
        (later - frame == [1, 0]).all()
        and (action == (turn + lane) % 4).all()
        and (reward == turn + lane).all()
    )
    bins = min(slots - 1, CHECKED // 100 // LANES)
    result = chisquare(
        np.bincount(turn * bins // (slots - 1) * LANES + lane, minlength=bins * LANES),
        np.repeat(np.bincount(np.arange(slots - 1) * bins // (slots - 1)), LANES)
        * len(turn)
        / ((slots - 1) * LANES),
    )
    if not whole or turn.max() >= slots - 1 or result.pvalue < 1e-6:
        raise NotTheSame(
            f"{name}: draws are not uniform over whole transitions (p = {result.pvalue:.1e})"
        )
