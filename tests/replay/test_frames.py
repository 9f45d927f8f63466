"""What the ring gives out: at any moment exactly what a walk through the whole episodes gives."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from scipy.stats import chisquare

from quatrain.replay.frames.ring import FrameRing, Transitions, from_transitions, init, write
from quatrain.replay.frames.sampling import (
    Batch,
    Window,
    draw_starts,
    gather_transitions,
    start_entries,
    valid_starts,
)
from tests.quick_jit import quick_jit
from tests.replay.plain_ring import PlainRing, PlainTransition, tagged_turns

CAPACITY, AGENTS, ENVS = 12, 2, 3
SIZE = CAPACITY * ENVS
LAPS = tagged_turns(3 * CAPACITY, AGENTS, ENVS, ends=(0.12, 0.15))

fill, put = quick_jit(from_transitions, static_argnums=0), quick_jit(write)


class Drawable(NamedTuple):
    """All that can be drawn: the first `total` of the entries, and the transitions of all agents
    there.
    """

    total: Array
    entries: Array
    batch: Batch  # agent and entry are the leading axes


def part(turns: Transitions, begin: int, end: int) -> Transitions:
    return jax.tree.map(lambda column: column[begin:end], turns)


@pytest.fixture(scope="module")
def moments() -> FrameRing:
    """The ring after each turn of three laps, along a leading axis."""

    def after(ring: FrameRing, turn: Transitions) -> tuple[FrameRing, FrameRing]:
        ring = write(ring, jax.tree.map(lambda column: column[None], turn))
        return ring, ring

    return quick_jit(lambda turns: jax.lax.scan(after, init(CAPACITY, turns), turns)[1])(LAPS)


@partial(quick_jit, static_argnums=0)
def everything(window: Window, ring: FrameRing) -> Drawable:
    starts = valid_starts(ring, window)
    entries = start_entries(ring, starts, jnp.arange(ring.data.turn.size))
    agents = jnp.arange(ring.data.actions.shape[1])
    return Drawable(
        starts.total,
        entries,
        jax.vmap(lambda agent: gather_transitions(ring, agent, entries, window))(agents),
    )


def at_every_moment(moments: FrameRing, window: Window) -> list[Drawable]:
    drawable = jax.device_get(jax.vmap(partial(everything, window))(moments))
    return [
        jax.tree.map(lambda column, at=at: column[at], drawable) for at in range(len(LAPS.turn))
    ]


def assert_same(batch: Batch, expected: list[PlainTransition]) -> None:
    """Floats to the rounding of float32, all else exactly."""
    for name, column in zip(Batch._fields, batch, strict=True):
        target = np.array([getattr(transition, name) for transition in expected])
        if column.dtype == np.float32:
            np.testing.assert_allclose(column, target, rtol=1e-6, atol=1e-6)
        else:
            np.testing.assert_array_equal(column, target)


@pytest.mark.parametrize(("frames", "n_step"), [(1, 1), (1, 3), (2, 2), (3, 4), (5, 1), (5, 3)])
def test_at_every_moment_of_three_laps_the_ring_gives_what_a_walk_through_whole_episodes_gives(
    moments, frames, n_step
):
    window, host = Window(frames, n_step, 0.9), PlainRing(CAPACITY)
    for turn, drawable in enumerate(at_every_moment(moments, window)):
        host.write(part(LAPS, turn, turn + 1))
        starts = host.starts(window)
        entries = [time % CAPACITY * ENVS + env for time, env in starts]
        assert drawable.entries[: drawable.total].tolist() == entries
        if not starts:
            continue
        for agent in range(AGENTS):
            batch = Batch(*(column[agent, : drawable.total] for column in drawable.batch))
            assert_same(batch, [host.transition(time, env, agent, window) for time, env in starts])


def test_every_valid_start_of_an_agent_is_drawn_equally_often():
    window, draws = Window(3, 2, 0.9), 1_000_000
    turns, host = tagged_turns(20, AGENTS, ENVS, ends=(0.1, 0.2)), PlainRing(CAPACITY)
    time, agent, env = np.ogrid[:20, :AGENTS, :ENVS]
    numbers = (agent * 20 + time) * ENVS + env
    turns = turns._replace(frames=numbers[..., None].astype(np.int32))
    ring = fill(CAPACITY, part(turns, 0, 8))
    for begin in (8, 12, 16):
        ring = put(ring, part(turns, begin, begin + 4))
    host.write(turns)

    @quick_jit
    def drawn(key: Array) -> Batch:
        entries = draw_starts(key, ring, valid_starts(ring, window), draws)
        return gather_transitions(ring, 1, entries, window)

    batch = drawn(jax.random.key(5))
    counts = np.bincount(batch.stack[:, -1], minlength=numbers.size)
    valid = [(20 + time) * ENVS + env for time, env in host.starts(window)]
    assert 10 < len(valid) < SIZE - window.n_step * ENVS
    assert counts.sum() == counts[valid].sum()
    assert chisquare(counts[valid]).pvalue > 0.01
