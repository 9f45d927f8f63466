"""iqn's replay: against flashbax inside a scan, a small ring against a large one, and against a plain NumPy ring."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import flashbax
import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import chisquare

from benchmarks.harness import Contestant, race
from benchmarks.reference.iqn_ring import NumpyRing
from benchmarks.table import Goal, NotTheSame, Row
from quatrain.replay.ring import Ring, Transitions, Window, filled, sample, valid_starts, write

STEPS = 300  # writes, each with a draw, in a call of a compiled program
BATCH = 256
LANES, SLOTS = 16, 6_250  # 100,000 transitions
ONE_FRAME = Window(frames=1, n_step=1, discount=0.99)
TREASUREHUNT = Window(frames=5, n_step=1, discount=0.97)
AGENTS, FRAME, TURNS, UPDATES, UPDATE_BATCH = 5, 125, 25, 32, 64  # a cycle of preset default
EPISODES, EPISODE = 18, 50  # what about 1000 rows of the NumPy ring hold


def rows(rounds: int) -> list[Row]:
    """All rows of the replay."""
    return [*flashbax_rows(rounds), *capacity_rows(rounds), numpy_row(rounds)]


# Against flashbax: every step of a scan writes a turn of 16 lanes and draws 256 transitions.


class Drawn(NamedTuple):
    """What a learner takes from a draw; only this is asked for, so both sides may leave out the rest."""

    frame: jax.Array
    action: jax.Array
    reward: jax.Array
    terminated: jax.Array
    next_frame: jax.Array


class Replay(NamedTuple):
    """A replay in two functions, and its state when it holds `numbered_turns`."""

    state: Any
    add: Callable[[Any, Transitions], Any]
    draw: Callable[[Any, jax.Array], Drawn]


def flashbax_rows(rounds: int) -> list[Row]:
    result = []
    for keys, goal in (("rbg", 2.0), ("threefry2x32", 1.5)):
        replays = {"ours": our_replay(), "flashbax": flashbax_replay()}
        for name, replay in replays.items():
            refuse_uneven_draws(name, replay, keys)
        times = race({name: scanned(replay, keys) for name, replay in replays.items()}, rounds)
        name = f"add 16 + sample(256) in a scan, {keys} keys; before: flashbax"
        row = Row(name, "-", "-", "us/call", times["ours"], times["flashbax"], goal=Goal(goal, "before"))
        result.append(row)
    return result


def numbered_turns(turns: int = SLOTS) -> Transitions:
    """Turns of one endless episode, one agent; a frame is (turn, lane)."""
    shape = (turns, 1, LANES)
    frames = np.stack(np.broadcast_arrays(np.arange(turns)[:, None, None], np.arange(LANES)), axis=-1)
    numbers, never = frames.sum(axis=-1), np.zeros((turns, LANES), bool)
    turn = np.broadcast_to(np.arange(turns, dtype=np.int16)[:, None], (turns, LANES))
    frames, actions = frames.astype(np.float32), (numbers % 4).astype(np.int8)
    return Transitions(frames.reshape(*shape, 2), actions, numbers.astype(np.float32), never, never, turn)


def our_replay() -> Replay:
    def draw(ring: Ring, key: jax.Array) -> Drawn:
        batch = sample(key, ring, valid_starts(ring, ONE_FRAME), 0, ONE_FRAME, BATCH)
        return Drawn(batch.stack, batch.action, batch.returns, batch.bootstrap == 0, batch.next_stack)

    return Replay(jax.jit(partial(filled, SLOTS))(numbered_turns()), write, draw)


def flashbax_replay() -> Replay:
    buffer = flashbax.make_flat_buffer(SLOTS * LANES, BATCH, BATCH, add_sequences=True, add_batch_size=LANES)

    def items(turns: Transitions) -> dict[str, jax.Array]:
        """Lanes first, then time."""
        columns = {"frame": turns.frames[:, 0], "action": turns.actions[:, 0], "reward": turns.rewards[:, 0]}
        return {name: jnp.swapaxes(column, 0, 1) for name, column in (columns | {"ended": turns.terminated}).items()}

    def draw(state: Any, key: jax.Array) -> Drawn:
        first, second = buffer.sample(state, key).experience
        return Drawn(first["frame"], first["action"], first["reward"], first["ended"], second["frame"])

    def add(state: Any, turns: Transitions) -> Any:
        return buffer.add(state, items(turns))

    empty = buffer.init(jax.tree.map(lambda column: column[0, 0], items(numbered_turns(1))))
    return Replay(jax.jit(add)(empty, numbered_turns()), add, draw)


def scanned(replay: Replay, keys: str) -> Contestant:
    """Steps of adding and drawing, the state donated from call to call."""

    @partial(jax.jit, donate_argnums=0)
    def program(state: Any, keys: jax.Array, turns: Transitions) -> tuple[Any, Drawn]:
        def step(carry: tuple[Any, Drawn], inputs: tuple[jax.Array, Transitions]) -> tuple[tuple[Any, Drawn], None]:
            (state, sums), (key, turn) = carry, inputs
            state = replay.add(state, jax.tree.map(lambda column: column[None], turn))
            sums = jax.tree.map(jnp.add, sums, replay.draw(state, key))
            return (state, sums), None

        shapes = jax.eval_shape(replay.draw, state, keys[0])
        zeros = jax.tree.map(lambda column: jnp.zeros(column.shape, jnp.float32), shapes)
        return jax.lax.scan(step, (state, zeros), (keys, turns))[0]

    held, turns = [jax.tree.map(jnp.copy, replay.state)], jax.tree.map(jnp.asarray, numbered_turns(STEPS))
    split = jax.random.split(jax.random.key(0, impl=keys), STEPS)

    def run() -> None:
        state, sums = program(held.pop(), split, turns)
        held.append(jax.block_until_ready(state))
        jax.block_until_ready(sums)

    return Contestant(run, STEPS)


def refuse_uneven_draws(name: str, replay: Replay, keys: str) -> None:
    """All turns but the newest, whose successor is not there, must be drawn equally often, with their successor.

    Raises:
        NotTheSame: they are not.
    """
    split = jax.random.split(jax.random.key(1, impl=keys), 4_000)
    drawn = jax.jit(lambda state, keys: jax.lax.map(lambda key: replay.draw(state, key), keys))(replay.state, split)
    frame, action, reward, _, later = (np.asarray(column).reshape(-1, *column.shape[2:]) for column in drawn)
    turn, lane = frame.astype(np.int64).T
    whole = (later - frame == [1, 0]).all() and (action == (turn + lane) % 4).all() and (reward == turn + lane).all()
    refuse_another_law(name, np.bincount(turn * LANES + lane, minlength=SLOTS * LANES), (SLOTS - 1) * LANES, whole)


def refuse_another_law(name: str, counts: np.ndarray, drawable: int, whole: bool) -> None:
    """The first `drawable` numbers equally often, no other, and each as a `whole` transition.

    Raises:
        NotTheSame: it is otherwise.
    """
    found = chisquare(counts[:drawable])
    if not whole or counts[drawable:].any() or found.pvalue < 1e-6:
        raise NotTheSame(f"{name}: draws are not uniform over {drawable:,} whole transitions (p = {found.pvalue:.1e})")


# A cycle of writing 25 turns and drawing 32 x 5 batches of 64, as in preset default.


def capacity_rows(rounds: int) -> list[Row]:
    """The cycle with its draws, which meet fewer cached frames in a larger ring; and without them."""
    result = []
    for updates, name in ((UPDATES, "write + 160 sample(64)"), (0, "  write + valid starts alone")):
        times = race({"4k": cycle(250, updates), "64k": cycle(4000, updates)}, rounds)
        row = Row(f"{name}, 64k stored; before: 4k", "-", "-", "ms/step", times["64k"], times["4k"])
        result.append(row._replace(goal=Goal(0.8, "before")))
    return result


def treasurehunt_turns(turns: int, agents: int, lanes: int) -> Transitions:
    """Random frames in episodes of 50 turns."""
    rng, shape = np.random.default_rng(0), (turns, agents, lanes)
    turn = np.broadcast_to(np.arange(turns, dtype=np.int16)[:, None] % EPISODE, (turns, lanes))
    frames = rng.integers(0, 3, (*shape, FRAME), dtype=np.int8)
    actions, rewards = rng.integers(0, 4, shape, dtype=np.int8), rng.normal(size=shape).astype(np.float32)
    return Transitions(frames, actions, rewards, np.zeros_like(turn, bool), turn == EPISODE - 1, turn)


def cycle(slots: int, updates: int) -> Contestant:
    cycles = 4  # so that a scan carries the ring

    @partial(jax.jit, donate_argnums=0)
    def program(ring: Ring, keys: jax.Array, block: Transitions) -> tuple[Ring, Any]:
        def one(ring: Ring, keys: jax.Array) -> tuple[Ring, Any]:
            ring = write(ring, block)
            return ring, summed(ring, keys)

        return jax.lax.scan(one, ring, keys)

    def summed(ring: Ring, keys: jax.Array) -> Any:
        """Draws of one agent after the other; their sum, so that every column is computed."""
        starts = valid_starts(ring, TREASUREHUNT)

        def draw(total: jax.Array, inputs: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
            key, agent = inputs
            batch = sample(key, ring, starts, agent, TREASUREHUNT, UPDATE_BATCH)
            return total + sum(jnp.sum(column, dtype=jnp.float32) for column in batch), None

        return jax.lax.scan(draw, starts.total.astype(jnp.float32), (keys, jnp.repeat(jnp.arange(AGENTS), updates)))[0]

    held = [jax.jit(partial(filled, slots))(treasurehunt_turns(slots, AGENTS, LANES))]
    block = jax.tree.map(jnp.asarray, treasurehunt_turns(TURNS, AGENTS, LANES))
    keys = jax.random.split(jax.random.key(0), (cycles, updates * AGENTS))

    def run() -> None:
        ring, totals = program(held.pop(), keys, block)
        held.append(jax.block_until_ready(ring))
        jax.block_until_ready(totals)

    return Contestant(run, cycles)


# Against the plain NumPy ring, in the shape of the original program.


def numpy_row(rounds: int) -> Row:
    turns = treasurehunt_turns(EPISODES * EPISODE, agents=1, lanes=1)
    number = np.arange(EPISODES * EPISODE)
    turns.frames[:, 0, 0, :2] = np.stack([number // 100 + 1, number % 100], axis=-1)
    plain, ours = numpy_sampler(turns), our_sampler(turns)
    refuse_other_transitions(plain.run(), ours.run())
    jax.clear_caches()  # so that the first call compiles
    times = race({"numpy": plain, "ours": ours}, rounds)
    name = "sample(256), 5 frames of 125, one agent"
    return Row(name, "004 buffer", "2-3x", "us/call", times["ours"], times["numpy"], goal=Goal(1.0, "before"))


def numpy_sampler(turns: Transitions) -> Contestant:
    calls, rng = 40, np.random.default_rng(0)
    ring = NumpyRing(EPISODES * (EPISODE + TREASUREHUNT.frames - 1), FRAME, TREASUREHUNT.frames)
    for number, turn in enumerate(turns.turn[:, 0]):
        if turn == 0:
            ring.begin_episode()
        reward = float(turns.rewards[number, 0, 0])
        ring.add(turns.frames[number, 0, 0], turns.actions[number, 0, 0], reward, bool(turns.truncated[number, 0]))
    starts = ring.starts()

    def run() -> list[np.ndarray]:
        drawn = [ring.sample(rng, starts, BATCH) for _ in range(calls)]
        return [np.concatenate(columns) for columns in zip(*drawn, strict=True)]

    return Contestant(run, calls)


def our_sampler(turns: Transitions) -> Contestant:
    calls, ring = 40, jax.jit(partial(filled, len(turns.turn)))(turns)

    @jax.jit
    def program(ring: Ring, keys: jax.Array) -> list[jax.Array]:
        starts = valid_starts(ring, TREASUREHUNT)

        def draw(key: jax.Array) -> list[jax.Array]:
            batch = sample(key, ring, starts, 0, TREASUREHUNT, BATCH)
            return [batch.stack, batch.action, batch.returns, batch.next_stack]

        return jax.lax.map(draw, keys)

    keys = jax.random.split(jax.random.key(0), calls)

    def run() -> list[np.ndarray]:
        drawn = jax.block_until_ready(program(ring, keys))
        return [np.asarray(column).reshape(-1, *column.shape[2:]) for column in drawn]

    return Contestant(run, calls)


def refuse_other_transitions(*sides: list[np.ndarray]) -> None:
    """Both must draw all turns but the last of each episode equally often, and alike in every column.

    Raises:
        NotTheSame: they do not.
    """
    seen = []
    for name, columns in zip(("numpy", "ours"), sides, strict=True):
        latest = columns[0].reshape(len(columns[0]), TREASUREHUNT.frames, FRAME)[:, -1].astype(np.int64)
        number = (latest[:, 0] - 1) * 100 + latest[:, 1]
        place = number // EPISODE * (EPISODE - 1) + number % EPISODE
        drawable = number % EPISODE < EPISODE - 1
        refuse_another_law(name, np.bincount(place), EPISODES * (EPISODE - 1), bool(drawable.all()))
        first = np.unique(number, return_index=True)[1]
        seen.append([column[first] for column in columns])
    if not all(np.array_equal(one, other) for one, other in zip(*seen, strict=True)):
        raise NotTheSame("sample(256): the NumPy ring and ours draw different transitions")
