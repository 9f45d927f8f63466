"""What the ring costs, and that the way turns were written leaves no trace."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from quatrain.replay.frames.ring import FrameRing, Transitions, from_transitions, init, write
from quatrain.replay.frames.sampling import Window, draw_starts, gather_transitions, valid_starts
from tests.quick_jit import quick_jit
from tests.replay.plain_ring import tagged_turns

AGENTS, ENVS, FRAME = 5, 16, 125  # of the named world treasurehunt
WINDOW = Window(frames=5, n_step=1, discount=0.97)


def turns_of(turns: int, envs: int = ENVS) -> Transitions:
    shape = (turns, AGENTS, envs)
    world = np.zeros((turns, envs), bool)
    actions, rewards = np.zeros(shape, np.int8), np.zeros(shape, np.float32)
    return Transitions(
        np.zeros((*shape, FRAME), np.int8), actions, rewards, world, world, world.astype(np.int16)
    )


def cycle(ring: FrameRing, key: Array, block: Transitions) -> tuple[FrameRing, Array]:
    """Writes a block, then draws three batches."""
    ring = write(ring, block)
    starts = valid_starts(ring, WINDOW)

    def update(total: Array, key: Array) -> tuple[Array, None]:
        drawn = gather_transitions(ring, 2, draw_starts(key, ring, starts, 64), WINDOW)
        return total + sum(jnp.sum(column, dtype=jnp.float32) for column in drawn), None

    return ring, jax.lax.scan(update, jnp.float32(0), jax.random.split(key, 3))[0]


def test_a_transition_takes_130_bytes_an_agent():
    ring = jax.eval_shape(partial(init, 1000), turns_of(1))
    occupied = sum(column.size * column.dtype.itemsize for column in jax.tree.leaves(ring))
    assert occupied / (1000 * ENVS * AGENTS) == pytest.approx(130, rel=0.1)


def test_a_scan_over_cycles_copies_nothing_that_grows_with_the_capacity():
    seeds = 2
    keys = jax.random.split(jax.random.key(0), (2, seeds))
    blocks = jax.tree.map(
        lambda column: np.broadcast_to(column, (2, seeds, *column.shape)), turns_of(5)
    )

    @partial(quick_jit, donate_argnums=0)
    def run(rings: FrameRing, keys: Array, blocks: Transitions) -> tuple[FrameRing, Array]:
        return jax.lax.scan(
            lambda rings, cycles: jax.vmap(cycle)(rings, *cycles), rings, (keys, blocks)
        )

    def temporary_bytes(capacity: int) -> int:
        ring = jax.eval_shape(partial(init, capacity), turns_of(1))
        rings = jax.tree.map(
            lambda column: jax.ShapeDtypeStruct((seeds, *column.shape), column.dtype), ring
        )
        return run.lower(rings, keys, blocks).compile().memory_analysis().temp_size_in_bytes

    smaller_ring = 100 * ENVS * AGENTS * 130 * seeds
    assert temporary_bytes(32_000) == temporary_bytes(100) < smaller_ring


def test_the_length_of_blocks_leaves_no_trace():
    turns, put = tagged_turns(36, agents=2, envs=3, ends=(0.1, 0.2)), quick_jit(write)

    def written(ring: FrameRing, begin: int, block: int) -> FrameRing:
        for at in range(begin, 36, block):
            ring = put(ring, Transitions(*(column[at : at + block] for column in turns)))
        return ring

    by_fours = written(init(12, turns), 0, 4)
    first = quick_jit(from_transitions, static_argnums=0)(
        12, Transitions(*(column[:8] for column in turns))
    )
    for other in (written(init(12, turns), 0, 12), written(first, 8, 2)):
        jax.tree.map(np.testing.assert_array_equal, by_fours, other)
