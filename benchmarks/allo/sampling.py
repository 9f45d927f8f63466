"""episodes -> rows about sampling: ends searched, a sorted table of ends, or stored horizons."""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import chisquare

from benchmarks.allo.worlds import rows_of
from benchmarks.harness import Contestant, Measured, race
from benchmarks.reference.replay_loop import (
    sample_searching,
    sample_with_snippet,
    sample_with_terminal_table,
)
from benchmarks.table import Goal, NotTheSame, Point, Row, Without
from quatrain.replay.episodes.lags import draw_lags
from quatrain.replay.episodes.pairs import pair_matrix
from quatrain.replay.episodes.trajectories import Episodes, sample, sample_numpy

SEED = 0
BATCH = 256
BATCHES = (64, 1024)
WALKS = (10, 100, 1000)
SCANNED = 1000  # samples in a call of the compiled sampler
SLOW, MEDIUM, FAST = 20, 60, 500
"""Calls per round."""
WHOLE_RUN_SAMPLES = 2 * 20_000
"""The original draws two batches a step."""
MEMORY_ROWS = 100
TRIED = (
    "exponential numbers modulo the horizon in place of the inverse CDF, unchecked gathers, fewer "
    "temporaries: 1.4x faster. A dozen NumPy calls remain; drawing a chunk at once meets its goal."
)


def sampling_rows(episodes: Episodes, law: np.ndarray, discount: float, rounds: int) -> list[Row]:
    """Measures 256 pairs from rows of equal length: on the host, and in a compiled scan."""
    contestants = samplers(episodes, discount)
    times = lawful_race(contestants, law, rounds)
    length = int(episodes.horizon[0])
    row = partial(Row, unit="us/call", before=times["before"], seed_way=times["seed"])
    snippet = Row(
        "  the proposal's own snippet", "us/call", times["numpy"], times["before"], times["snippet"]
    )
    main = row(
        f"sample({BATCH}), rows of {length}",
        ours=times["numpy"],
        limit=times["limit"],
        without=Without("the noted horizons: ends are searched", times["searching"]),
        goal=Goal(10, "seed's way"),
        claims=("replay-1", "replay-2"),
    )
    bulk = row("  a chunk at once, as in training", ours=times["bulk"], limit=times["limit"])
    return [
        main if main.goal_reached else main._replace(tried=TRIED),
        snippet._replace(claims=("allo-1",)),
        row("  in a scan, one by one", ours=times["scan"]),
        bulk._replace(goal=Goal(15, "seed's way")),
    ]


def batch_rows(episodes: Episodes, law: np.ndarray, discount: float, rounds: int) -> list[Row]:
    """Measures other batch sizes."""
    rows = []
    for size in (BATCHES[0], BATCH, BATCHES[1]):
        times = lawful_race(host_samplers(episodes, discount, size), law, rounds)
        rows.append(curve_row(f"  sample({size})", times, Point("batch", "batch size", size)))
    return rows


def capacity_rows(episodes: Episodes, law: np.ndarray, discount: float, rounds: int) -> list[Row]:
    """Measures fewer and more stored transitions, in equally long rows."""
    length = int(episodes.horizon[0])
    rows = []
    for walks in WALKS:
        some = first_walks(episodes, walks)
        law_of_some = (
            law
            if len(some.starts) == len(episodes.starts)
            else pair_matrix(some, len(law), (discount,))
        )
        times = lawful_race(host_samplers(some, discount, BATCH), law_of_some, rounds)
        stored = walks * length
        rows.append(
            curve_row(f"  of {stored:,} transitions", times, Point("stored", "transitions", stored))
        )
    return rows


def curve_row(name: str, times: dict[str, Measured], point: Point) -> Row:
    return Row(
        name, "us/call", times["numpy"], times["before"], times["seed"], times["limit"], point=point
    )


def first_walks(episodes: Episodes, walks: int) -> Episodes:
    """Returns the first of equally long trajectories."""
    length = int(episodes.horizon[0])
    slots, starts = walks * (length + 1), walks * length
    return Episodes(*(column[:slots] for column in episodes[:-1]), starts=episodes.starts[:starts])


def whole_row(sampled: Row) -> Row:
    """Computes the sampling time of the original's default run, from the times of one sample."""

    def whole(measured: Measured | None) -> Measured:
        assert measured is not None
        return Measured(WHOLE_RUN_SAMPLES * measured.values, measured.compile_seconds)

    name = f"sampling of {WHOLE_RUN_SAMPLES // 2:,} steps"
    before, proposed, here = map(whole, (sampled.before, sampled.seed_way, sampled.ours))
    return Row(name, "s", here, before, proposed, claims=("replay-overall",))


def memory_row(episodes: Episodes, rounds: int) -> Row:
    """Measures the memory of the ends of 100 rows: the proposal's table, or horizons and starts."""
    some = first_walks(episodes, MEMORY_ROWS)
    buffer = rows_of(some)

    def bytes_of(*arrays: np.ndarray) -> Measured:
        return Measured(np.full(rounds, float(sum(array.nbytes for array in arrays))))

    return Row(
        f"  notes of ends, {MEMORY_ROWS} rows of {int(episodes.horizon[0])}",
        "KiB",
        bytes_of(some.horizon, some.starts),
        seed_way=bytes_of(buffer.terminal_indices, buffer.num_terminals),
        claims=("replay-memory",),
    )


# Samplers.


def lawful_race(
    contestants: dict[str, Contestant], law: np.ndarray, rounds: int
) -> dict[str, Measured]:
    """Measures samplers after checking that their pairs follow the law; the limit draws none."""
    for name, contestant in contestants.items():
        if name != "limit":
            refuse_another_law(name, contestant.run(), law)
    jax.clear_caches()  # so that the first call compiles
    return race(contestants, rounds)


def samplers(episodes: Episodes, discount: float) -> dict[str, Contestant]:
    """Returns all samplers by name; a run returns the pairs of its calls (the limit: nothing)."""
    rng, buffer, ended = (
        np.random.default_rng(SEED),
        rows_of(episodes),
        episodes.terminated | episodes.truncated,
    )
    on_device, keys = jax.tree.map(jnp.asarray, episodes), itertools.count()

    def compiled(draw_all: Callable[[jax.Array, Episodes], Any]) -> Contestant:
        program = jax.jit(lambda key, data: draw_all(jax.random.split(key, SCANNED), data))
        return Contestant(
            lambda: jax.block_until_ready(program(jax.random.key(next(keys)), on_device)), SCANNED
        )

    def draw_pairs(key: jax.Array, data: Episodes) -> tuple[jax.Array, jax.Array]:
        return sample(key, data, BATCH, (discount,), constraint_batches=0)[:2]

    return host_samplers(episodes, discount, BATCH) | {
        "snippet": repeated(SLOW, lambda: sample_with_snippet(rng, buffer, BATCH, discount)),
        "searching": repeated(
            SLOW, lambda: sample_by_search(rng, episodes, ended, BATCH, discount)
        ),
        "scan": compiled(
            lambda each, data: jax.lax.scan(
                lambda _, key: (None, draw_pairs(key, data)), None, each
            )[1]
        ),
        "bulk": compiled(lambda each, data: jax.vmap(lambda key: draw_pairs(key, data))(each)),
    }


def host_samplers(episodes: Episodes, discount: float, size: int) -> dict[str, Contestant]:
    """Returns the samplers on the host, and the limit: a gather without random numbers."""
    rng, buffer = np.random.default_rng(SEED), rows_of(episodes)
    slots, out = (
        rng.integers(len(episodes.state), size=2 * size),
        np.empty(2 * size, episodes.state.dtype),
    )
    return {
        "before": repeated(SLOW, lambda: sample_searching(rng, buffer, size, discount)),
        "seed": repeated(MEDIUM, lambda: sample_with_terminal_table(rng, buffer, size, discount)),
        "numpy": repeated(
            FAST, lambda: sample_numpy(rng, episodes, size, (discount,), constraint_batches=0)[:2]
        ),
        "limit": repeated_silently(
            10 * FAST, lambda: np.take(episodes.state, slots, out=out, mode="clip")
        ),
    }


def repeated(calls: int, draw: Callable[[], Any]) -> Contestant:
    """Returns a contestant whose run returns the results of all calls, column by column."""
    return Contestant(lambda: zip(*[draw() for _ in range(calls)], strict=True), calls)


def repeated_silently(calls: int, work: Callable[[], Any]) -> Contestant:
    def run() -> None:
        for _ in itertools.repeat(None, calls):
            work()

    return Contestant(run, calls)


def sample_by_search(
    rng: np.random.Generator, episodes: Episodes, ended: np.ndarray, size: int, discount: float
) -> tuple[np.ndarray, np.ndarray]:
    """Samples like `sample_numpy`, but searches each trajectory's end."""
    slots = episodes.starts[(rng.random(size) * len(episodes.starts)).astype(np.intp)]
    horizons = np.array([1 + ended[slot:].argmax() for slot in slots])
    return episodes.state[slots], episodes.state[slots + draw_lags(rng, horizons, (discount,))]


def refuse_another_law(name: str, pairs: Any, law: np.ndarray) -> None:
    """Raises unless pairs are as frequent as the law says (chi-square, expected counts >= 5).

    Raises:
        NotTheSame: they are not.
    """
    states, later_states = (np.asarray(column).ravel() for column in pairs)
    counts = np.bincount(states.astype(np.int64) * len(law) + later_states, minlength=law.size)
    expected = law.ravel() * len(states)
    often = expected >= 5
    observed, frequencies = counts[often], expected[often]
    if expected[~often].any():
        observed = np.append(observed, counts[~often].sum())
        frequencies = np.append(frequencies, expected[~often].sum())
    if (counts[expected == 0] > 0).any() or chisquare(observed, frequencies).pvalue < 1e-6:
        raise NotTheSame(f"{name}: {len(states):,} pairs do not follow the sampling law")
