"""iqn's replay: a small ring against a large one, and against a plain NumPy ring"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.harness import Contestant, Goal, Row
from benchmarks.iqn.sides import fill
from benchmarks.jax_work import (
    Continued,
    declaring,
    refuse_difference,
    refuse_other_frequencies,
    timed,
)
from benchmarks.reference import iqn_seed as seed
from benchmarks.reference.iqn_training import NumpyRing
from quatrain.replay.frames.ring import Transitions, from_transitions, write
from quatrain.replay.frames.sampling import Window, sample, valid_starts

BATCH, CALLS = 256, 40
WINDOW = Window(frames=5, n_step=1, discount=0.97)
# A cycle of preset default.
AGENTS, ENVS, FRAME, TURNS, UPDATES, UPDATE_BATCH = 5, 16, 125, 25, 32, 64
CYCLES = 4  # of a call, so that a scan carries the ring
EPISODES, EPISODE = 18, 51  # the last turn of an episode is final
TRIED = "whole stacks gathered at once: draws of 4k and of 64k fell to a quarter of their time"


def treasurehunt_turns(turns: int, agents: int, envs: int) -> Transitions:
    """Returns random frames in episodes of 50 turns and a final one."""
    rng, shape = np.random.default_rng(0), (turns, agents, envs)
    turn = np.broadcast_to(np.arange(turns, dtype=np.int16)[:, None] % EPISODE, (turns, envs))
    views = rng.integers(0, 3, (*shape, FRAME), dtype=np.int8)
    actions = rng.integers(0, 4, shape, dtype=np.int8)
    rewards, never = rng.normal(size=shape).astype(np.float32), np.zeros_like(turn, bool)
    return Transitions(views, actions, rewards, never, turn == EPISODE - 1, turn)


def capacity_rows(rounds: int) -> list[Row]:
    """Measures a cycle with and without sampling, which misses the cache more in a larger ring."""
    works = {str(size): cycle(size, UPDATES) for size in (4, 64)}
    times = timed(works | {"write 4": cycle(4, 0), "write 64": cycle(64, 0)}, rounds)
    row = declaring(times, "ms/step", goal=Goal(0.8, "before"), against="ours", tried=TRIED)
    alone = {"ours": "write 64", "before": "write 4"}
    return [
        row("write + 160 draws, 64k stored; before: 4k", ours="64", before="4"),
        row("  write alone, 64k stored; before: 4k", **alone),
    ]


def cycle(thousands: int, updates: int) -> Contestant:
    """Writes 25 turns and draws `updates` batches of each agent."""

    def draw_all(ring, keys):
        starts = valid_starts(ring, WINDOW)

        def draw(total, key_and_agent):
            key, agent = key_and_agent
            batch = sample(key, ring, starts, agent, WINDOW, UPDATE_BATCH)
            # A sum, so that every column is computed.
            return total + sum(jnp.sum(column, dtype=jnp.float32) for column in batch), None

        agents = jnp.repeat(jnp.arange(AGENTS), updates)
        return jax.lax.scan(draw, starts.total.astype(jnp.float32), (keys, agents))[0]

    @partial(jax.jit, donate_argnums=0)
    def program(ring, keys, block):
        def write_and_draw(ring, keys):
            ring = write(ring, block)
            return ring, draw_all(ring, keys)

        return jax.lax.scan(write_and_draw, ring, keys)

    slots = thousands * 1000 // ENVS
    ring = jax.jit(partial(from_transitions, slots))(treasurehunt_turns(slots, AGENTS, ENVS))
    block = jax.tree.map(jnp.asarray, treasurehunt_turns(TURNS, AGENTS, ENVS))
    keys = jax.random.split(jax.random.key(0), (CYCLES, updates * AGENTS))
    return Contestant(Continued(lambda ring: program(ring, keys, block), ring), CYCLES)


def numpy_rows(rounds: int) -> list[Row]:
    """Measures draws of 256 stacks and next stacks, and where they lie."""
    turns = treasurehunt_turns(EPISODES * EPISODE, agents=1, envs=1)
    number = np.arange(EPISODES * EPISODE)
    turns.frames[:, 0, 0, :2] = np.stack([number // 100 + 1, number % 100], axis=-1)
    host = NumpyRing(EPISODES * (EPISODE + WINDOW.frames - 1), FRAME, WINDOW.frames)
    fill(host, turns, agent=0)
    ring = jax.jit(partial(from_transitions, len(turns.turn)))(turns)
    rng, starts = np.random.default_rng(0), host.starts()
    keys = jax.random.split(jax.random.key(0), CALLS)
    stored = tuple(map(jnp.asarray, (host.states, host.actions, host.rewards)))
    on_device = jnp.asarray(starts)

    @jax.jit
    def program(ring, keys):
        def draw(key):
            batch = sample(key, ring, valid_starts(ring, WINDOW), 0, WINDOW, BATCH)
            return batch.stack, batch.action, batch.returns, batch.next_stack

        return jax.lax.map(draw, keys)

    def jitted(number):
        return seed.sample(stored, on_device, keys[number], BATCH, WINDOW.frames)

    calls = range(CALLS)
    works = {
        "before": lambda: [host.sample(rng, starts, BATCH) for _ in calls],
        "moved": lambda: [jax.device_put(host.sample(rng, starts, BATCH)) for _ in calls],
        "seed_way": lambda: [jitted(number) for number in calls],
        "ours": lambda: program(ring, keys),
    }
    results = {name: work() for name, work in works.items()}
    results |= {name: zip(*results[name], strict=True) for name in ("before", "moved", "seed_way")}
    refuse_other_transitions(results)
    times = timed(works, rounds, **dict.fromkeys(works, CALLS))
    row, goal = declaring(times, "us/call", seed_way="seed_way"), Goal(1, "before")
    moved = "  the batch on the device; before: drawn on the host, moved"
    return [
        row("sample(256), 5 frames of 125, one agent", goal=goal, claims=("agents-sample",)),
        row(moved, before="moved", claims=("agents-device",)),
    ]


def refuse_other_transitions(samples: dict[str, Any]) -> None:
    """Raises NotComparable unless all draw each turn but final ones equally often and alike."""
    first_of_each = {}
    drawable = np.arange(EPISODES * EPISODE) % EPISODE < EPISODE - 1
    for name, calls in samples.items():
        columns = [np.concatenate(jax.device_get(column)) for column in calls]
        latest = columns[0].reshape(-1, WINDOW.frames, FRAME)[:, -1].astype(int)
        number = (latest[:, 0] - 1) * 100 + latest[:, 1]
        counts = np.bincount(number, minlength=len(drawable))
        uniform = len(number) * drawable / drawable.sum()
        refuse_other_frequencies(f"sample(256): {name}", counts, uniform)
        first = np.unique(number, return_index=True)[1]
        first_of_each[name] = [column[first] for column in columns]
    refuse_difference("sample(256)", first_of_each)
