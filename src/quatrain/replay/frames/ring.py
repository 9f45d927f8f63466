"""turns of many envs -> ring of the newest turns

All envs advance in lock step, so one head serves them all. An entry is one turn of one env; its
number is `slot * envs + env`, so the env's next turn is `envs` entries further. A frame is stored
once; stacks and n-step returns are computed when sampled. All functions are pure. Inside a
jitted scan that carries the ring, XLA updates it in place.

A truncated episode has one turn more, which only holds its final observation: there its last
transitions bootstrap. An env whose episode terminated needs none.
"""

from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float32, Int8, Int16, Int32, Shaped

AnyArray = np.ndarray | Array


class Transitions(NamedTuple):
    """Holds turns in time order, as NumPy or JAX arrays; the last three columns are per env.

    Axis seed is there where several learners have a column each. final: the turn holds the final
    observation of an episode that did not terminate; its action and reward have no meaning.
    """

    frames: Shaped[AnyArray, "*seed turn agent env frame"]  # observed before the action
    actions: Int8[AnyArray, "*seed turn agent env"]
    rewards: Float32[AnyArray, "*seed turn agent env"]
    terminated: Bool[AnyArray, "*seed turn env"]  # at the end of the turn; then not final
    final: Bool[AnyArray, "*seed turn env"]
    turn: Int16[AnyArray, "*seed turn env"]  # within the episode, from 0


class Candidates(NamedTuple):
    """Holds the stored entries that are transitions (not final), in order.

    Candidate number i is at `entries[i % size]`; there are at most size = slots * envs.
    Numbers are kept modulo 2 * size, so that differences (at most size) never overflow.
    """

    entries: Int32[Array, "size"]
    before: Int32[Array, "slot"]  # number of the first candidate in this slot or a later one
    end: Int32[Array, ""]  # number of the next candidate

    def place(self, number: Int32[Array, "*any"]) -> Int32[Array, "*any"]:
        return number % len(self.entries)

    def modulo(self, number: Int32[Array, "*any"]) -> Int32[Array, "*any"]:
        return number % (2 * len(self.entries))


class FrameRing(NamedTuple):
    """Holds the newest turns: `data` has slots in place of turns; `head` is written next."""

    data: Transitions
    head: Int32[Array, ""]
    written: Int32[Array, ""]  # turns written since the start
    candidates: Candidates


def init(capacity: int, template: Transitions) -> FrameRing:
    """Returns an empty ring of `capacity` turns with the template's sizes and dtypes."""
    columns = [jnp.zeros((capacity, *column.shape[1:]), column.dtype) for column in template]
    data = Transitions(*columns)
    zero = jnp.zeros((), jnp.int32)
    return FrameRing(
        data,
        head=zero,
        written=zero,
        candidates=Candidates(
            entries=jnp.zeros(data.turn.size, jnp.int32),
            before=jnp.zeros(capacity, jnp.int32),
            end=zero,
        ),
    )


def from_transitions(capacity: int, transitions: Transitions) -> FrameRing:
    """Returns a ring of `capacity` turns that begins with these, at most as many."""
    return write(init(capacity, transitions), transitions)


def write(ring: FrameRing, block: Transitions) -> FrameRing:
    """Returns the ring with the block in place of its oldest turns.

    A block never wraps around: its length must divide the capacity and all earlier writes.
    """
    turns = len(block.turn)
    return FrameRing(
        data=Transitions(*map(partial(_write_slots, head=ring.head), ring.data, block)),
        head=(ring.head + turns) % len(ring.data.turn),
        written=ring.written + turns,
        candidates=_append_candidates(ring.candidates, block, ring.head),
    )


def _write_slots(
    column: Shaped[AnyArray, "slot ..."], rows: Shaped[AnyArray, "turn ..."], head: Int32[Array, ""]
) -> Shaped[Array, "slot ..."]:
    return lax.dynamic_update_slice_in_dim(column, jnp.asarray(rows), head, axis=0)


def _append_candidates(
    candidates: Candidates, block: Transitions, head: Int32[Array, ""]
) -> Candidates:
    # Overwritten candidates drop out, as `before` moves past them.
    envs = block.turn.shape[1]
    eligible = ~jnp.asarray(block.final).ravel()
    numbers = candidates.end + jnp.cumsum(eligible, dtype=jnp.int32) - eligible
    entries = head * envs + jnp.arange(len(eligible), dtype=jnp.int32)
    places = jnp.where(eligible, candidates.place(numbers), len(candidates.entries))
    return Candidates(
        entries=candidates.entries.at[places].set(entries, mode="drop", unique_indices=True),
        before=_write_slots(candidates.before, candidates.modulo(numbers[::envs]), head),
        end=candidates.modulo(candidates.end + eligible.sum(dtype=jnp.int32)),
    )
