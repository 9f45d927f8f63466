"""turns of many worlds -> a ring of the newest ones -> uniform draws of n-step transitions, frames stacked when drawn

The worlds, here lanes, move in lock step, so one head serves them all. An entry is a turn of one lane: the number
`slot * lanes + lane`, hence one turn later is `lanes` further on. A frame is stored once; stacks and n-step returns
are worked out when drawn. All functions are pure; inside a jitted scan that carries the ring it is written in place.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float32, Int, Int8, Int16, Int32, PRNGKeyArray, Shaped, UInt32

AnyArray = np.ndarray | Array


class Transitions(NamedTuple):
    """Turns in time order, NumPy or JAX arrays; the last three columns belong to the world, not to an agent."""

    frames: Shaped[AnyArray, "turns agents lanes frame"]  # what each agent saw before it acted
    actions: Int8[AnyArray, "turns agents lanes"]
    rewards: Float32[AnyArray, "turns agents lanes"]
    terminated: Bool[AnyArray, "turns lanes"]  # both flags describe the turn's end
    truncated: Bool[AnyArray, "turns lanes"]
    turn: Int16[AnyArray, "turns lanes"]  # within the episode, from 0


class Candidates(NamedTuple):
    """The entries in the ring whose successor was or will be observed, in the order of time: all but the cut ones.

    The i-th one ever is `entries[i % size]`, where size = slots * lanes = the most there can be. The numbers i are
    kept modulo 2 * size, so that their differences (at most size) stay right for ever.
    """

    entries: Int32[Array, "size"]
    before: Int32[Array, "slots"]  # number of the first one of this slot or a later turn
    end: Int32[Array, ""]  # number of the next one to come

    def place(self, number: Int32[Array, "*any"]) -> Int32[Array, "*any"]:
        return number % len(self.entries)

    def modulo(self, number: Int32[Array, "*any"]) -> Int32[Array, "*any"]:
        return number % (2 * len(self.entries))


class Ring(NamedTuple):
    """The newest turns: `data` has slots in place of turns, and the slot at `head` is written next."""

    data: Transitions
    head: Int32[Array, ""]
    written: Int32[Array, ""]  # turns ever written
    candidates: Candidates


class Window(NamedTuple):
    """What a transition spans: a stack of `frames` up to its turn, a return over `n_step` turns from it on."""

    frames: int
    n_step: int
    discount: float


class Starts(NamedTuple):
    """The valid starts of transitions, oldest first, until the ring is written again.

    `early_count` of them stand in `early`; then come candidates from number `later` on.
    """

    early: Int32[Array, "early"]
    early_count: Int32[Array, ""]
    later: Int32[Array, ""]
    total: Int32[Array, ""]


class Batch(NamedTuple):
    """Transitions of one agent. The target of a value is `returns + bootstrap * value(next_stack)`."""

    stack: Shaped[Array, "batch inputs"]  # frames oldest first, zeros before the episode began
    action: Int8[Array, "batch"]
    returns: Float32[Array, "batch"]  # discounted sum of the rewards up to next_stack
    bootstrap: Float32[
        Array, "batch"
    ]  # discount to the power of the turns up to next_stack, 0 if terminated
    next_stack: Shaped[Array, "batch inputs"]


def init(capacity: int, template: Transitions) -> Ring:
    """An empty ring of `capacity` turns, for transitions with the template's sizes and types."""
    data = Transitions(
        *(jnp.zeros((capacity, *column.shape[1:]), column.dtype) for column in template)
    )
    zero, counts = jnp.zeros((), jnp.int32), jnp.zeros(capacity, jnp.int32)
    return Ring(data, zero, zero, Candidates(jnp.zeros(data.turn.size, jnp.int32), counts, zero))


def filled(capacity: int, transitions: Transitions) -> Ring:
    """A ring that holds these transitions (and room for more), written from its first slot on.

    Raises:
        ValueError: there are more turns than the capacity.
    """
    turns = len(transitions.turn)
    if turns > capacity:
        raise ValueError(
            f"{turns} turns do not fit into a ring of {capacity}; raise its capacity or drop the oldest."
        )
    return _put(init(capacity, transitions), transitions)


def write(ring: Ring, block: Transitions) -> Ring:
    """The ring with the block in place of its oldest turns.

    A block never goes round the end: its length divides the capacity, and must divide all that was written before.

    Raises:
        ValueError: the length does not divide the capacity.
    """
    capacity, turns = len(ring.data.turn), len(block.turn)
    if capacity % turns:
        raise ValueError(
            f"A block of {turns} turns would go round the end of a ring of {capacity}; "
            "make the capacity a multiple of the block."
        )
    return _put(ring, block)


def _put(ring: Ring, block: Transitions) -> Ring:
    return Ring(
        data=Transitions(
            *(_put_rows(*columns, ring.head) for columns in zip(ring.data, block, strict=True))
        ),
        head=(ring.head + len(block.turn)) % len(ring.data.turn),
        written=ring.written + len(block.turn),
        candidates=_put_candidates(ring.candidates, block, ring.head),
    )


def _put_rows(
    column: Shaped[AnyArray, "slots ..."],
    rows: Shaped[AnyArray, "turns ..."],
    head: Int32[Array, ""],
) -> Shaped[Array, "slots ..."]:
    return lax.dynamic_update_slice_in_dim(column, jnp.asarray(rows), head, axis=0)


def _put_candidates(
    candidates: Candidates, block: Transitions, head: Int32[Array, ""]
) -> Candidates:
    """Appends the block's. Those it overwrites need no work: the oldest slot's number now tells where to begin."""
    lanes = block.turn.shape[1]
    followed = _followed(block.terminated, block.truncated).ravel()
    numbers = candidates.end + jnp.cumsum(followed, dtype=jnp.int32) - followed
    entries = head * lanes + jnp.arange(len(followed), dtype=jnp.int32)
    places = jnp.where(followed, candidates.place(numbers), len(candidates.entries))
    return Candidates(
        entries=candidates.entries.at[places].set(entries, mode="drop", unique_indices=True),
        before=_put_rows(candidates.before, candidates.modulo(numbers[::lanes]), head),
        end=candidates.modulo(candidates.end + _sum(followed)),
    )


def _followed(
    terminated: Bool[AnyArray, "*any"], truncated: Bool[AnyArray, "*any"]
) -> Bool[Array, "*any"]:
    """Whether a turn's successor is known (be it that there is none): not if the turn was cut off."""
    return jnp.asarray(terminated | ~truncated)


def _sum(flags: Bool[Array, "*any"]) -> Int32[Array, ""]:
    return jnp.sum(flags, dtype=jnp.int32)


def valid_starts(ring: Ring, window: Window) -> Starts:
    """Where transitions may start: candidates with a whole stack behind and `n_step` stored turns ahead.

    What this costs depends on the window and the lanes, not on the capacity. `total` is 0 as long as too little
    was written; then there is nothing to sample.

    Raises:
        ValueError: the window does not fit into the ring.
    """
    capacity, least = len(ring.data.turn), window.frames + window.n_step
    if capacity < least:
        raise ValueError(
            f"A ring of {capacity} turns never holds a stack of {window.frames} frames and the {window.n_step} turns "
            f"after it; its capacity must be at least {least}."
        )
    candidates, back = ring.candidates, window.frames - 1
    stored = jnp.minimum(ring.written, capacity)
    oldest = ring.head - stored
    early_slots = (oldest + jnp.arange(back, dtype=jnp.int32)) % capacity
    early = _early_starts(ring, early_slots, stored - window.n_step)
    later = candidates.before[(oldest + back) % capacity]
    later_count = candidates.modulo(
        candidates.before[(ring.head - window.n_step) % capacity] - later
    )
    return Starts(
        early=_entries_where(early, early_slots),
        early_count=_sum(early),
        later=later,
        total=_sum(early) + jnp.where(stored > back + window.n_step, later_count, 0),
    )


def _early_starts(
    ring: Ring, slots: Int32[Array, "early_slots"], followed_turns: Int32[Array, ""]
) -> Bool[Array, "early_slots lanes"]:
    """Valid starts among the oldest turns, where a stack is whole only if its episode began late enough."""
    order, data = jnp.arange(len(slots), dtype=jnp.int32)[:, None], ring.data
    followed = _followed(data.terminated[slots], data.truncated[slots]) & (order < followed_turns)
    return followed & (data.turn[slots] <= order)


def _entries_where(
    chosen: Bool[Array, "slots lanes"], slots: Int32[Array, "slots"]
) -> Int32[Array, "slots_lanes"]:
    """The entries of the chosen ones, in order, and something after them."""
    entries = slots[:, None] * chosen.shape[1] + jnp.arange(chosen.shape[1], dtype=jnp.int32)
    return entries.ravel()[jnp.nonzero(chosen.ravel(), size=chosen.size, fill_value=0)[0]]


def entries_at(ring: Ring, starts: Starts, ranks: Int[Array, "batch"]) -> Int32[Array, "batch"]:
    """The valid starts of these ranks, 0 <= rank < starts.total."""
    candidates = ring.candidates
    later = _rows(candidates.entries, candidates.place(starts.later + ranks - starts.early_count))
    if len(starts.early) == 0:
        return later
    early = _rows(starts.early, jnp.minimum(ranks, len(starts.early) - 1))
    return jnp.where(ranks < starts.early_count, early, later)


def sample(
    key: PRNGKeyArray,
    ring: Ring,
    starts: Starts,
    agent: Int[AnyArray, ""] | int,
    window: Window,
    batch_size: int,
) -> Batch:
    """Transitions of one agent, uniform with replacement over all valid starts; there must be at least one."""
    return sample_by(words(key, batch_size), ring, starts, agent, window)


def words(key: PRNGKeyArray, batch_size: int) -> UInt32[Array, "batch"]:
    """The random bits of a `sample`. A scan that gets those of all its steps at once takes two thirds of the time."""
    return jax.random.bits(key, (batch_size,), jnp.uint32)


def sample_by(
    words: UInt32[Array, "batch"],
    ring: Ring,
    starts: Starts,
    agent: Int[AnyArray, ""] | int,
    window: Window,
) -> Batch:
    """What `sample` draws with these words. A rank is a word modulo the total: none is favoured by > total / 2^32."""
    ranks = words % jnp.maximum(starts.total, 1).astype(jnp.uint32)
    return gather(ring, agent, entries_at(ring, starts, ranks.astype(jnp.int32)), window)


def gather(
    ring: Ring, agent: Int[AnyArray, ""] | int, entries: Int32[Array, "batch"], window: Window
) -> Batch:
    """The agent's transitions that start at these valid entries."""
    data, (slots, lanes) = ring.data, ring.data.turn.shape
    path = (entries[:, None] + jnp.arange(window.n_step, dtype=jnp.int32) * lanes) % (slots * lanes)
    terminated, truncated = _rows(data.terminated, path, 2), _rows(data.truncated, path[:, 1:], 2)
    truncated = jnp.pad(
        truncated, ((0, 0), (1, 0))
    )  # that of a start decides nothing: alone it would be no start
    ended = (terminated | truncated).astype(jnp.int32)
    reached = jnp.cumsum(ended, axis=1) == ended  # no earlier turn of the path ended the episode
    paid = reached & _followed(terminated, truncated)
    terminal = jnp.any(reached & terminated, axis=1)
    steps = jnp.sum(paid, axis=1, dtype=jnp.int32)

    powers = jnp.asarray([window.discount**k for k in range(window.n_step + 1)], jnp.float32)
    rewards = _rows(data.rewards, _of_agent(data, agent, path), 3)
    # After a terminal turn there is nothing to see: its own stack stands in, without effect as the bootstrap is 0.
    turns_on = jnp.stack([jnp.zeros_like(steps), jnp.where(terminal, 0, steps)], axis=1)
    stacks = _stacks(ring, agent, entries[:, None], turns_on, window.frames)
    return Batch(
        stack=stacks[:, 0],
        action=_rows(data.actions, _of_agent(data, agent, entries), 3),
        returns=jnp.sum(jnp.where(paid, powers[:-1] * rewards, 0.0), axis=1),
        bootstrap=jnp.where(terminal, 0.0, powers[steps]),
        next_stack=stacks[:, 1],
    )


def _stacks(
    ring: Ring,
    agent: Int[AnyArray, ""] | int,
    entries: Int32[Array, "batch 1"],
    turns_on: Int32[Array, "batch stacks"],
    frames: int,
) -> Shaped[Array, "batch stacks inputs"]:
    """Stacks of the turns that come `turns_on` turns after the entries in the same episode, in a single gather."""
    data, back = ring.data, jnp.arange(1 - frames, 1, dtype=jnp.int32)
    away = turns_on[:, :, None] + back
    path = (entries[:, :, None] + away * data.turn.shape[1]) % data.turn.size
    rows, begun = _of_agent(data, agent, path), _rows(data.turn, entries, 2)[:, :, None] + away >= 0

    def found() -> Array:
        return jnp.where(begun[..., None], _rows(data.frames, rows, 3), 0)

    def blank() -> Array:
        return jnp.zeros((*rows.shape, data.frames.shape[-1]), data.frames.dtype)

    if frames == 1:
        return _rows(data.frames, rows, 3).reshape(*turns_on.shape, -1)
    # On a CPU XLA would find the place of each number of a flat stack by divisions, and take ten times as long.
    # It cannot look through a branch; this one is always taken.
    stacks = lax.platform_dependent(
        cpu=lambda: lax.cond(ring.head >= 0, found, blank), default=found
    )
    return stacks.reshape(*turns_on.shape, -1)


def _of_agent(
    data: Transitions, agent: Int[AnyArray, ""] | int, entries: Int32[Array, "*any"]
) -> Int32[Array, "*any"]:
    """Rows of the columns that belong to an agent, whose axes are slot, agent, lane."""
    _, agents, lanes = data.actions.shape
    return entries + (entries // lanes * (agents - 1) + agent) * lanes


def _rows(column: AnyArray, rows: Int32[Array, "*any"], axes: int = 1) -> Shaped[Array, "..."]:
    """Rows of a column whose first axes count as one; they exist, so nothing checks them."""
    flat = jnp.reshape(column, (-1, *column.shape[axes:]))
    return flat.at[rows].get(mode="promise_in_bounds")
