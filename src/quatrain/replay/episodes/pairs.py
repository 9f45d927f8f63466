"""episodes -> W: the exact probability of each (state, later state) that the sampler draws.

W = 1/N sum_t sum_{k <= m_t} P(k | m_t) e_{s_t} e_{s_{t+k}}^T. Long trajectories have too many pairs
to add one by one (5e8 for 1000 walks of 1000 steps), but P(k | m) is g^(k-1) times a factor of m.
So each trajectory is cut into blocks. The pairs inside a block are added lag by lag. All pairs that
start in one block and end in a later one are one matrix product: the visits of the block,
discounted towards its end, times the visits after it, discounted from its end.
"""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int

from quatrain.errors import DataError
from quatrain.replay.episodes.lags import horizon_scale, longest_lag
from quatrain.replay.episodes.trajectories import Episodes

SLOTS_AT_ONCE = 1 << 16  # the pairs of one lag then stay in the processor's cache
TABLE_CELLS_AT_ONCE = 1 << 22  # 32 MiB of float64


class _Blocks(NamedTuple):
    """Holds pieces of consecutive slots of one trajectory, in slot order.

    All have the same length, except the last ones of their trajectories.
    """

    first: Int[np.ndarray, "blocks"]
    length: Int[np.ndarray, "blocks"]
    continues: Bool[np.ndarray, "blocks"]  # the trajectory has another block after this one


def pair_matrix(
    episodes: Episodes, states: int, discounts: tuple[float, ...]
) -> Float64[np.ndarray, "states states"]:
    """Computes W for the sampler's discounts; the entries add up to 1.

    Raises:
        DataError: the replay is empty, or holds a state that does not exist.
    """
    episodes = Episodes(*map(np.asarray, episodes))
    transitions = len(episodes.starts)
    if transitions == 0:
        raise DataError("No pair to count: the replay holds no transition; collect again.")
    if episodes.state.max() >= states:
        raise DataError(
            f"The replay holds state {episodes.state.max()}, but the matrix is for {states} "
            "states: the data were collected on another layout. Collect again on this one."
        )
    # Both parts cost about the same at this block length (measured for 10^2 to 10^3 states).
    size = max(64, states // 7)
    blocks = _split(episodes, size)
    times = Counter(discounts)  # a discount that is listed twice is drawn twice as often
    pairs = _within_blocks(episodes, blocks, states, times, SLOTS_AT_ONCE // size)
    for discount, count in times.items():
        powers = discount ** np.arange(size + 1.0)
        pairs += count * _across_blocks(episodes, blocks, states, discount, powers)
    return pairs / (transitions * len(discounts))


def _split(episodes: Episodes, size: int) -> _Blocks:
    ends = np.flatnonzero(episodes.horizon == 0) + 1
    lengths = np.diff(ends, prepend=0)
    position = np.arange(len(episodes.horizon)) - np.repeat(ends - lengths, lengths)
    first = np.flatnonzero(position % size == 0)
    length = np.diff(first, append=len(position))
    return _Blocks(first, length, continues=episodes.horizon[first + length - 1] > 0)


def _within_blocks(
    episodes: Episodes,
    blocks: _Blocks,
    states: int,
    times: Mapping[float, int],
    blocks_at_once: int,
) -> Float64[np.ndarray, "states states"]:
    """Returns the unnormalised sum over the pairs inside blocks and over the discounts."""
    side = states + 1  # blocks are padded with an extra state, which is dropped at the end
    total = np.zeros(side * side)
    for indices in _chunks(np.argsort(blocks.length, kind="stable"), max(1, blocks_at_once)):
        _add_pairs(total, episodes, _Blocks(*(column[indices] for column in blocks)), states, times)
    return total.reshape(side, side)[:states, :states]


def _add_pairs(
    total: Float64[np.ndarray, "cells"],
    episodes: Episodes,
    blocks: _Blocks,
    states: int,
    times: Mapping[float, int],
) -> None:
    """Adds the pairs inside blocks to `total`, in place; cell = start * (states + 1) + end."""
    width = int(blocks.length.max())
    # Time is the leading axis: the states k steps later are one contiguous piece.
    time = np.arange(width)[:, None]
    slots = np.minimum(blocks.first + time, len(episodes.state) - 1)
    state = np.where(time < blocks.length, episodes.state[slots], states).ravel().astype(np.intp)
    start_cell = state * (states + 1)
    scale = np.stack([horizon_scale(episodes.horizon[slots], g).ravel() for g in times])
    for lag in range(1, longest_lag(width - 1, tuple(times)) + 1):
        pairs = (width - lag) * len(blocks.first)
        np.add.at(
            total,
            start_cell[:pairs] + state[-pairs:],
            np.array([count * g ** (lag - 1) for g, count in times.items()]) @ scale[:, :pairs],
        )


def _across_blocks(
    episodes: Episodes,
    blocks: _Blocks,
    states: int,
    discount: float,
    powers: Float64[np.ndarray, "powers"],
) -> Float64[np.ndarray, "states states"]:
    """Returns the unnormalised sum over the pairs that end in a later block than they start in."""
    total = np.zeros((states, states))
    next_visits = np.zeros(states)  # from the start of the block after, to the trajectory's end
    in_long_trajectories = np.flatnonzero(blocks.continues | np.roll(blocks.continues, 1))
    for indices in reversed(_chunks(in_long_trajectories, max(1, TABLE_CELLS_AT_ONCE // states))):
        selected = _Blocks(*(column[indices] for column in blocks))
        to_end, from_start = _count_visits(episodes, selected, states, discount, powers)
        later = np.zeros_like(from_start)
        for index in reversed(range(len(indices))):
            if selected.continues[index]:
                later[index] = next_visits
            next_visits = from_start[index] + powers[-1] * later[index]
        total += to_end.T @ later
    return total


def _count_visits(
    episodes: Episodes,
    blocks: _Blocks,
    states: int,
    discount: float,
    powers: Float64[np.ndarray, "powers"],
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the visits (block, state), discounted towards the block's end and from its start.

    Those towards the end are multiplied by the scale of the horizon.
    """
    count = len(blocks.length)
    block = np.repeat(np.arange(count), blocks.length)
    position = np.arange(len(block)) - (np.cumsum(blocks.length) - blocks.length)[block]
    slots = blocks.first[block] + position
    cell = block * states + episodes.state[slots]
    scale = horizon_scale(episodes.horizon[slots], discount)
    to_end = np.bincount(cell, scale * powers[len(powers) - 2 - position], count * states)
    from_start = np.bincount(cell, powers[position], count * states)
    return to_end.reshape(-1, states), from_start.reshape(-1, states)


def _chunks(indices: Int[np.ndarray, "indices"], size: int) -> list[np.ndarray]:
    return np.split(indices, np.arange(size, len(indices), size))
