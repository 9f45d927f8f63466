"""iqn's replay: a small ring against a large one, and against a plain NumPy ring."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import chisquare

from benchmarks.harness import Contestant, Measured, race
from benchmarks.reference import iqn_seed as seed
from benchmarks.reference.iqn_ring import NumpyRing
from benchmarks.table import Goal, NotTheSame, Point, Row, Without
from quatrain.replay.frames import (
    FrameRing,
    Transitions,
    Window,
    from_transitions,
    sample,
    valid_starts,
    write,
)

BATCH, CALLS = 256, 40
LANES = 16
CAPACITIES = (4, 16, 64, 256)  # thousands
TREASUREHUNT = Window(frames=5, n_step=1, discount=0.97)
AGENTS, FRAME, TURNS, UPDATES, UPDATE_BATCH = 5, 125, 25, 32, 64  # a cycle of preset default
TRIED = (
    "whole stacks gathered at once: "
    "draws out of 4k and out of 64k both fell to a quarter of their time"
)
EPISODES, EPISODE = 18, 50  # what about 1000 rows of the NumPy ring hold


def rows(rounds: int) -> list[Row]:
    """Returns all rows of the replay."""
    return [*numpy_rows(rounds), *capacity_rows(rounds)]


# A cycle of writing 25 turns and drawing 32 x 5 batches of 64, as in preset default.


def capacity_rows(rounds: int) -> list[Row]:
    """Measures the cycle with and without sampling, which has more cache misses in a larger
    ring.
    """
    result = []
    for capacities, updates, what in (
        (CAPACITIES, UPDATES, "write + 160 draws"),
        ((4, 64), 0, "  write alone"),
    ):
        times = race(
            {str(each): cycle(each * 1000 // LANES, updates) for each in capacities}, rounds
        )
        for each in capacities:
            row = Row(
                f"{what}, {each}k stored; before: 4k",
                "ms/step",
                times[str(each)],
                times["4"],
                against="ours",
            )
            point = (
                Point("transitions in iqn's replay", "capacity", each * 1000) if updates else None
            )
            result.append(
                row._replace(
                    goal=Goal(0.8, "before") if each == 64 else None, point=point, tried=TRIED
                )
            )
    return result


def treasurehunt_turns(turns: int, agents: int, envs: int) -> Transitions:
    """Returns random frames in episodes of 50 turns."""
    rng, shape = np.random.default_rng(0), (turns, agents, envs)
    turn = np.broadcast_to(np.arange(turns, dtype=np.int16)[:, None] % EPISODE, (turns, envs))
    frames = rng.integers(0, 3, (*shape, FRAME), dtype=np.int8)
    actions, rewards = (
        rng.integers(0, 4, shape, dtype=np.int8),
        rng.normal(size=shape).astype(np.float32),
    )
    return Transitions(
        frames, actions, rewards, np.zeros_like(turn, bool), turn == EPISODE - 1, turn
    )


def cycle(slots: int, updates: int) -> Contestant:
    cycles = 4  # so that a scan carries the ring

    @partial(jax.jit, donate_argnums=0)
    def program(ring: FrameRing, keys: jax.Array, block: Transitions) -> tuple[FrameRing, Any]:
        def item(ring: FrameRing, keys: jax.Array) -> tuple[FrameRing, Any]:
            ring = write(ring, block)
            return ring, summed(ring, keys)

        return jax.lax.scan(item, ring, keys)

    def summed(ring: FrameRing, keys: jax.Array) -> Any:
        """Draws of one agent after the other; their sum, so that every column is computed."""
        starts = valid_starts(ring, TREASUREHUNT)

        def draw(total: jax.Array, inputs: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
            key, agent = inputs
            batch = sample(key, ring, starts, agent, TREASUREHUNT, UPDATE_BATCH)
            return total + sum(jnp.sum(column, dtype=jnp.float32) for column in batch), None

        return jax.lax.scan(
            draw, starts.total.astype(jnp.float32), (keys, jnp.repeat(jnp.arange(AGENTS), updates))
        )[0]

    kept = [jax.jit(partial(from_transitions, slots))(treasurehunt_turns(slots, AGENTS, LANES))]
    block = jax.tree.map(jnp.asarray, treasurehunt_turns(TURNS, AGENTS, LANES))
    keys = jax.random.split(jax.random.key(0), (cycles, updates * AGENTS))

    def run() -> None:
        ring, totals = program(kept.pop(), keys, block)
        kept.append(jax.block_until_ready(ring))
        jax.block_until_ready(totals)

    return Contestant(run, cycles)


# Against the plain NumPy ring, in the shape of the original program.


def numpy_rows(rounds: int) -> list[Row]:
    """Draws of 256 stacks and next stacks, and where they lie."""
    turns = treasurehunt_turns(EPISODES * EPISODE, agents=1, envs=1)
    number = np.arange(EPISODES * EPISODE)
    turns.frames[:, 0, 0, :2] = np.stack([number // 100 + 1, number % 100], axis=-1)
    host, ring = host_ring(turns), jax.jit(partial(from_transitions, len(turns.turn)))(turns)
    contestants = {
        "before": host_sampler(host, to_device=False),
        "moved": host_sampler(host, to_device=True),
        "seed": jitted_sampler(host),
        "ours": our_sampler(ring),
        "called": called_sampler(ring),
    }
    refuse_other_transitions({name: joined(each.run()) for name, each in contestants.items()})
    jax.clear_caches()  # so that the first call compiles
    times = race(contestants | {"take": takes(turns)}, rounds)
    called = Without("the scan: each draw called from Python", times["called"])
    row = partial(Row, unit="us/call", ours=times["ours"], seed_way=times["seed"], without=called)
    sizes = [
        Measured(np.full(rounds, float(sum(each.nbytes for each in jax.tree.leaves(side)))))
        for side in ([host.states, host.actions, host.rewards, host.drawable], ring)
    ]
    return [
        row(
            "sample(256), 5 frames of 125, one agent",
            before=times["before"],
            limit=times["take"],
            goal=Goal(1.0, "before"),
            claims=("agents-sample",),
        ),
        row(
            "  the batch on the device; before: drawn on the host, moved",
            before=times["moved"],
            claims=("agents-device",),
        ),
        Row(f"  memory of {len(turns.turn)} transitions of one agent", "KiB", sizes[1], sizes[0]),
    ]


def takes(turns: Transitions) -> Contestant:
    """Takes as many rows of int8 frames by np.take."""
    frames = np.ascontiguousarray(turns.frames[:, 0, 0])
    places = np.random.default_rng(0).integers(
        0, len(frames), (CALLS, 2 * BATCH * TREASUREHUNT.frames)
    )
    out = np.empty((places.shape[1], FRAME), np.int8)

    def run() -> None:
        for each in places:
            np.take(frames, each, axis=0, out=out, mode="clip")

    return Contestant(run, CALLS)


def host_ring(turns: Transitions) -> NumpyRing:
    """Returns the plain ring with these turns of one agent."""
    ring = NumpyRing(EPISODES * (EPISODE + TREASUREHUNT.frames - 1), FRAME, TREASUREHUNT.frames)
    for number, turn in enumerate(turns.turn[:, 0]):
        if turn == 0:
            ring.begin_episode()
        reward = float(turns.rewards[number, 0, 0])
        ring.add(
            turns.frames[number, 0, 0],
            turns.actions[number, 0, 0],
            reward,
            bool(turns.truncated[number, 0]),
        )
    return ring


def host_sampler(ring: NumpyRing, to_device: bool) -> Contestant:
    """Draws by fancy indexing; `to_device`: each batch is moved to where a compiled step reads
    it.
    """
    rng, starts = np.random.default_rng(0), ring.starts()

    def draw() -> Any:
        drawn = ring.sample(rng, starts, BATCH)
        return jax.block_until_ready(jax.device_put(drawn)) if to_device else drawn

    return Contestant(lambda: [draw() for _ in range(CALLS)], CALLS)


def jitted_sampler(ring: NumpyRing) -> Contestant:
    """Samples by a jitted call from Python, with the plain ring's arrays on the device."""
    stored = seed.Stored(*map(jnp.asarray, (ring.states, ring.actions, ring.rewards)))
    starts, keys = jnp.asarray(ring.starts()), jax.random.split(jax.random.key(0), CALLS)

    def run() -> list[Any]:
        drawn = [seed.sample(stored, starts, key, BATCH, TREASUREHUNT.frames) for key in keys]
        return jax.block_until_ready(drawn)

    return Contestant(run, CALLS)


def our_sampler(ring: FrameRing) -> Contestant:
    """Samples all batches in one compiled program."""
    program, keys = jax.jit(lambda ring, keys: jax.lax.map(partial(_draw, ring), keys)), _keys()
    return Contestant(lambda: jax.block_until_ready(program(ring, keys)), CALLS)


def called_sampler(ring: FrameRing) -> Contestant:
    """Samples like `our_sampler` without the scan."""
    program, keys = jax.jit(_draw), _keys()
    return Contestant(lambda: jax.block_until_ready([program(ring, key) for key in keys]), CALLS)


def _keys() -> jax.Array:
    return jax.random.split(jax.random.key(0), CALLS)


def _draw(ring: FrameRing, key: jax.Array) -> list[jax.Array]:
    batch = sample(key, ring, valid_starts(ring, TREASUREHUNT), 0, TREASUREHUNT, BATCH)
    return [batch.stack, batch.action, batch.returns, batch.next_stack]


def joined(draws: Any) -> list[np.ndarray]:
    """Draws as one list of columns: a list of draws, or columns with a leading axis of draws."""
    columns = zip(*draws, strict=True) if len(draws) == CALLS else draws
    return [np.concatenate([np.asarray(each) for each in column]) for column in columns]


def refuse_other_transitions(sides: dict[str, list[np.ndarray]]) -> None:
    """Raises unless all sample every turn but the last of an episode equally often, with equal
    columns.

    Raises:
        NotTheSame: they do not.
    """
    views = []
    for name, columns in sides.items():
        latest = (
            columns[0].reshape(len(columns[0]), TREASUREHUNT.frames, FRAME)[:, -1].astype(np.int64)
        )
        number = (latest[:, 0] - 1) * 100 + latest[:, 1]
        place = number // EPISODE * (EPISODE - 1) + number % EPISODE
        drawable = number % EPISODE < EPISODE - 1
        refuse_another_law(name, np.bincount(place), EPISODES * (EPISODE - 1), bool(drawable.all()))
        first = np.unique(number, return_index=True)[1]
        views.append([column[first] for column in columns])
    for name, columns in zip(sides, views, strict=True):
        if not all(
            np.array_equal(item, other) for item, other in zip(columns, views[0], strict=True)
        ):
            raise NotTheSame(f"sample(256): {name} draws other transitions than before")


def refuse_another_law(name: str, counts: np.ndarray, drawable: int, whole: bool) -> None:
    """Raises unless only the first `drawable` numbers occur, equally often, each a `whole`
    transition.

    Raises:
        NotTheSame: it is otherwise.
    """
    actual = chisquare(counts[:drawable])
    if not whole or counts[drawable:].any() or actual.pvalue < 1e-6:
        raise NotTheSame(
            f"{name}: draws are not uniform over {drawable:,} whole transitions (p = "
            f"{actual.pvalue:.1e})"
        )
