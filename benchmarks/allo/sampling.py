"""episodes -> rows about sampling: ends searched, a sorted table of ends, or stored horizons"""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.allo.steps import SEED, rows_of
from benchmarks.harness import Goal, Measured, Row
from benchmarks.jax_work import declaring, refuse_other_frequencies, timed
from benchmarks.reference.replay_loop import (
    sample_searching,
    sample_with_snippet,
    sample_with_terminal_table,
)
from quatrain.replay.episodes.pairs import pair_matrix
from quatrain.replay.episodes.trajectories import Episodes, sample, sample_numpy

BATCH = 256
SCANNED = 1000
"""Samples in a call of the compiled sampler."""
CHECKED = 100
"""Samples of each other sampler whose pairs are compared with the law."""
MEMORY_ROWS = 100
TRIED = (
    "exponential numbers modulo the horizon in place of the inverse CDF, unchecked gathers, fewer "
    "temporaries: 1.4x faster. A dozen NumPy calls remain; drawing a chunk at once meets its goal."
)
Draw = Callable[[], Any]


def sampling_rows(episodes: Episodes, states: int, discount: float, rounds: int) -> list[Row]:
    """Measures 256 pairs from rows of equal length: on the host, and in a compiled program."""
    draws, law = samplers(episodes, discount), pair_matrix(episodes, states, (discount,))
    for side, draw in draws.items():
        if side != "limit":
            calls = 1 if side == "bulk" else CHECKED
            refuse_another_law(side, [draw() for _ in range(calls)], law)
    times = timed(draws, rounds, bulk=SCANNED)
    row = declaring(times, "us/call", seed_way="seed_way")
    name, limited = f"sample({BATCH}), rows of {int(episodes.horizon[0])}", {"limit": "limit"}
    snippet, chunk = "  the proposal's own snippet", "  a chunk at once, as in training"
    goal, claims = Goal(10, "seed's way"), ("replay-1", "replay-2")
    return [
        row(name, **limited, goal=goal, claims=claims, tried=TRIED),
        row(snippet, seed_way="snippet", claims=("allo-1",)),
        row(chunk, ours="bulk", **limited, goal=Goal(15, "seed's way")),
        memory_row(episodes),
    ]


def memory_row(episodes: Episodes) -> Row:
    """Measures the memory of the ends of 100 rows: the proposal's table, or horizons and starts."""
    buffer = rows_of(episodes)
    share, notes = MEMORY_ROWS / len(buffer.obs), (buffer.terminal_indices, buffer.num_terminals)
    ours, proposed = (
        Measured(np.array([share * sum(part.nbytes for part in parts)]))
        for parts in ((episodes.horizon, episodes.starts), notes)
    )
    name = f"  notes of ends, {MEMORY_ROWS} rows of {int(episodes.horizon[0])}"
    return Row(name, "KiB", ours, seed_way=proposed, claims=("replay-memory",))


def samplers(episodes: Episodes, discount: float) -> dict[str, Draw]:
    """Returns functions to pairs, and the limit: a gather of as many numbers."""
    rng, buffer, numbers = np.random.default_rng(SEED), rows_of(episodes), itertools.count()
    slots = rng.integers(len(episodes.state), size=2 * BATCH)
    out = np.empty(2 * BATCH, episodes.state.dtype)
    on_device = jax.tree.map(jnp.asarray, episodes)

    @jax.jit
    def program(key, data):
        keys = jax.random.split(key, SCANNED)
        return jax.vmap(lambda each: sample(each, data, BATCH, (discount,), 0)[:2])(keys)

    return {
        "before": partial(sample_searching, rng, buffer, BATCH, discount),
        "seed_way": partial(sample_with_terminal_table, rng, buffer, BATCH, discount),
        "snippet": partial(sample_with_snippet, rng, buffer, BATCH, discount),
        "ours": lambda: sample_numpy(rng, episodes, BATCH, (discount,), 0)[:2],
        "bulk": lambda: program(jax.random.key(next(numbers)), on_device),
        "limit": lambda: np.take(episodes.state, slots, out=out, mode="clip"),
    }


def refuse_another_law(name: str, pairs: list[Any], law: np.ndarray) -> None:
    """Raises NotComparable unless pairs are as frequent as the law says."""
    states, later_states = (
        np.concatenate([np.ravel(column) for column in columns]).astype(np.int64)
        for columns in zip(*pairs, strict=True)
    )
    counts = np.bincount(states * len(law) + later_states, minlength=law.size)
    refuse_other_frequencies(name, counts, law.ravel() * len(states))
