"""ring of the newest turns -> uniform n-step transitions with stacked frames"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float32, Int, Int8, Int32, PRNGKeyArray, Shaped

from quatrain.replay.frames.ring import AnyArray, FrameRing, Transitions

AgentIndex = Int[AnyArray, ""] | int


class Window(NamedTuple):
    """Holds the span of a transition: a stack of `frames`, and a return over `n_step` turns."""

    frames: int
    n_step: int
    discount: float


class ValidStarts(NamedTuple):
    """Holds the valid starts of transitions, oldest first, until the ring is written again.

    The first `early_count` are in `early`; the others are the candidates from number `later` on.
    """

    early: Int32[Array, "early"]
    early_count: Int32[Array, ""]
    later: Int32[Array, ""]
    total: Int32[Array, ""]


class Batch(NamedTuple):
    """Holds transitions of one agent. The target is `returns + bootstrap * value(next_stack)`.

    stack: frames oldest first, zeros before the episode. returns: discounted sum of the rewards up
    to next_stack, which is never beyond the final observation of the episode. bootstrap: discount
    to the power of the turns up to next_stack, 0 if terminated.
    """

    stack: Shaped[Array, "batch inputs"]
    action: Int8[Array, "batch"]
    returns: Float32[Array, "batch"]
    bootstrap: Float32[Array, "batch"]
    next_stack: Shaped[Array, "batch inputs"]


def valid_starts(ring: FrameRing, window: Window) -> ValidStarts:
    """Returns the transitions with a whole stack before them and `n_step` stored turns after them.

    The cost depends on the window, which must fit into the ring, and the number of envs, not on the
    capacity. `total` is 0 until enough turns are written; then nothing can be sampled.
    """
    capacity = len(ring.data.turn)
    candidates = ring.candidates
    back = window.frames - 1
    stored = jnp.minimum(ring.written, capacity)
    oldest = ring.head - stored
    early_slots = (oldest + jnp.arange(back, dtype=jnp.int32)) % capacity
    early = _early_starts(ring, early_slots, stored - window.n_step)
    later = candidates.before[(oldest + back) % capacity]
    later_end = candidates.before[(ring.head - window.n_step) % capacity]
    later_count = jnp.where(stored > back + window.n_step, candidates.modulo(later_end - later), 0)
    return ValidStarts(
        early=_entries_where(early, early_slots),
        early_count=early.sum(dtype=jnp.int32),
        later=later,
        total=early.sum(dtype=jnp.int32) + later_count,
    )


def _early_starts(
    ring: FrameRing, slots: Int32[Array, "slot"], followed_turns: Int32[Array, ""]
) -> Bool[Array, "slot env"]:
    """Finds valid starts among the oldest turns, whose stacks may reach beyond the ring.

    Such a stack is whole only if its episode began within the ring.
    """
    order = jnp.arange(len(slots), dtype=jnp.int32)[:, None]
    return ~ring.data.final[slots] & (order < followed_turns) & (ring.data.turn[slots] <= order)


def _entries_where(
    mask: Bool[Array, "slot env"], slots: Int32[Array, "slot"]
) -> Int32[Array, "slot_env"]:
    """Returns the entries where the mask holds, in order, padded with arbitrary entries."""
    envs = mask.shape[1]
    entries = slots[:, None] * envs + jnp.arange(envs, dtype=jnp.int32)
    (selected,) = jnp.nonzero(mask.ravel(), size=mask.size, fill_value=0)
    return entries.ravel()[selected]


def start_entries(
    ring: FrameRing, starts: ValidStarts, ranks: Int[Array, "batch"]
) -> Int32[Array, "batch"]:
    """Returns the valid starts of these ranks, 0 <= rank < starts.total."""
    candidates = ring.candidates
    places = candidates.place(starts.later + ranks - starts.early_count)
    later = _take(candidates.entries, places)
    if len(starts.early) == 0:
        return later
    early = _take(starts.early, jnp.minimum(ranks, len(starts.early) - 1))
    return jnp.where(ranks < starts.early_count, early, later)


def draw_starts(
    key: PRNGKeyArray, ring: FrameRing, starts: ValidStarts, batch_size: int
) -> Int32[Array, "batch"]:
    """Draws valid starts uniformly with replacement; needs at least one.

    A rank is a random word modulo the total, so its probability is biased by at most
    total / 2^32.
    """
    words = jax.random.bits(key, (batch_size,), jnp.uint32)
    ranks = words % jnp.maximum(starts.total, 1).astype(jnp.uint32)
    return start_entries(ring, starts, ranks.astype(jnp.int32))


def gather_transitions(
    ring: FrameRing, agent: AgentIndex, entries: Int32[Array, "batch"], window: Window
) -> Batch:
    """Returns the agent's transitions that start at these valid entries."""
    data = ring.data
    steps = jnp.arange(window.n_step, dtype=jnp.int32) * data.turn.shape[1]
    path_entries = (entries[:, None] + steps) % data.turn.size
    rewarded, terminal = _follow_path(data, path_entries)
    count = jnp.sum(rewarded, axis=1, dtype=jnp.int32)
    powers = jnp.asarray([window.discount**k for k in range(window.n_step + 1)], jnp.float32)
    rewards = _take(data.rewards, _agent_entries(data, agent, path_entries), 3)
    # A terminal turn has no successor: its own stack stands in, without effect as bootstrap is 0.
    offsets = jnp.stack([jnp.zeros_like(count), jnp.where(terminal, 0, count)], axis=1)
    stacks = _stacks(ring, agent, entries[:, None], offsets, window.frames)
    return Batch(
        stack=stacks[:, 0],
        action=_take(data.actions, _agent_entries(data, agent, entries), 3),
        returns=jnp.sum(jnp.where(rewarded, powers[:-1] * rewards, 0.0), axis=1),
        bootstrap=jnp.where(terminal, 0.0, powers[count]),
        next_stack=stacks[:, 1],
    )


def _follow_path(
    data: Transitions, path: Int32[Array, "batch n_step"]
) -> tuple[Bool[Array, "batch n_step"], Bool[Array, " batch"]]:
    """Returns which rewards count, and whether the episode terminates on the way."""
    terminated = _take(data.terminated, path, 2)
    # A valid start is not final, so its own flag is not needed.
    final = jnp.pad(_take(data.final, path[:, 1:], 2), ((0, 0), (1, 0)))
    ended = (terminated | final).astype(jnp.int32)
    reached = jnp.cumsum(ended, axis=1) == ended  # no earlier turn of the path ended the episode
    return reached & ~final, jnp.any(reached & terminated, axis=1)


def _stacks(
    ring: FrameRing,
    agent: AgentIndex,
    entries: Int32[Array, "batch 1"],
    offsets: Int32[Array, "batch stack"],
    frames: int,
) -> Shaped[Array, "batch stack inputs"]:
    """Returns the stacks of the turns `offsets` after the entries, in a single gather.

    The entry and the turn belong to the same episode.
    """
    data = ring.data
    turn_offsets = offsets[:, :, None] + jnp.arange(1 - frames, 1, dtype=jnp.int32)
    path = (entries[:, :, None] + turn_offsets * data.turn.shape[1]) % data.turn.size
    rows = _agent_entries(data, agent, path)
    if frames == 1:
        return _take(data.frames, rows, 3).reshape(*offsets.shape, -1)
    begun = _take(data.turn, entries, 2)[:, :, None] + turn_offsets >= 0

    def gather() -> Array:
        return jnp.where(begun[..., None], _take(data.frames, rows, 3), 0)

    # On CPU, XLA would fuse the gather into the flat stack and index each number by divisions, ten
    # times slower. It cannot fuse through a branch; this branch is always taken.
    stacks = lax.platform_dependent(
        cpu=lambda: lax.cond(
            ring.head >= 0,
            gather,
            lambda: jnp.zeros((*rows.shape, data.frames.shape[-1]), data.frames.dtype),
        ),
        default=gather,
    )
    return stacks.reshape(*offsets.shape, -1)


def _agent_entries(
    data: Transitions, agent: AgentIndex, entries: Int32[Array, "*any"]
) -> Int32[Array, "*any"]:
    """Returns the entries' rows in the columns per agent, whose axes are slot, agent, env."""
    _, agents, envs = data.actions.shape
    return entries + (entries // envs * (agents - 1) + agent) * envs


def _take(column: AnyArray, rows: Int32[Array, "*any"], axes: int = 1) -> Shaped[Array, "..."]:
    """Returns rows of a column whose first axes are flattened; the indices are not checked."""
    flat = jnp.reshape(column, (-1, *column.shape[axes:]))
    return flat.at[rows].get(mode="promise_in_bounds")
