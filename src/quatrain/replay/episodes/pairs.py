"""episodes -> W: the exact probability of every (state, later state) that the sampler can draw

W = 1/N sum_t sum_{k <= m_t} P(k | m_t) e_{s_t} e_{s_{t+k}}^T. Long trajectories have too many pairs to add
one by one (5e8 for 1000 walks of 1000 steps), but P(k | m) is g^(k-1) times a factor of m. So each trajectory
is cut into blocks: the pairs inside a block are added lag by lag, and all pairs that leave a block are one
matrix product of what it saw (discounted towards its end) and what comes after it (discounted from its end).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int

from quatrain.replay.episodes.lags import horizon_scale, longest_lag
from quatrain.replay.episodes.trajectories import Episodes, ReplayError

SLOTS_AT_ONCE = 1 << 16  # the pairs of one lag then stay in the processor's cache
TABLE_CELLS_AT_ONCE = 1 << 22  # 32 MiB of float64


class _Blocks(NamedTuple):
    """Pieces of at most `size` consecutive slots of one trajectory, in slot order."""

    first: Int[np.ndarray, "blocks"]
    length: Int[np.ndarray, "blocks"]
    goes_on: Bool[np.ndarray, "blocks"]  # the trajectory has a further block after this one
    size: int


def pair_matrix(
    episodes: Episodes, states: int, discounts: tuple[float, ...]
) -> Float64[np.ndarray, "states states"]:
    """W for host episodes and the sampler's discounts; the entries add up to 1.

    Raises:
        ReplayError: the replay is empty, or holds a state that does not exist.
    """
    episodes = Episodes(*map(np.asarray, episodes))
    transitions = len(episodes.starts)
    if transitions == 0:
        raise ReplayError(
            "No pair to count: the replay holds no transition. Collect or append a trajectory."
        )
    if episodes.state.max() >= states:
        raise ReplayError(
            f"The replay holds state {episodes.state.max()}, but the matrix is for {states} states: "
            "the data were collected on another layout. Collect again on this one."
        )
    # Both parts cost about the same at this block length (measured for 10^2 to 10^3 states).
    blocks = _cut(episodes, size=max(64, states // 7))
    pairs = _within_blocks(episodes, blocks, states, discounts)
    for discount in discounts:
        pairs += _across_blocks(episodes, blocks, states, discount)
    return pairs / (transitions * len(discounts))


def _cut(episodes: Episodes, size: int) -> _Blocks:
    ends = np.flatnonzero(episodes.horizon == 0) + 1
    lengths = np.diff(ends, prepend=0)
    position = np.arange(len(episodes.horizon)) - np.repeat(ends - lengths, lengths)
    first = np.flatnonzero(position % size == 0)
    length = np.diff(first, append=len(position))
    return _Blocks(first, length, episodes.horizon[first + length - 1] > 0, size)


def _within_blocks(
    episodes: Episodes, blocks: _Blocks, states: int, discounts: tuple[float, ...]
) -> Float64[np.ndarray, "states states"]:
    """Unnormalised sum over the pairs inside blocks and over the discounts."""
    side = states + 1  # blocks are padded with an extra state, which is dropped at the end
    total = np.zeros(side * side)
    by_length = np.argsort(blocks.length, kind="stable")
    for some in _chunks(by_length, max(1, SLOTS_AT_ONCE // blocks.size)):
        width, count = int(blocks.length[some].max()), len(some)
        # Time is the leading axis: the states k steps later are one contiguous piece.
        time = np.arange(width)[:, None]
        slots = np.minimum(blocks.first[some] + time, len(episodes.state) - 1)
        state = (
            np.where(time < blocks.length[some], episodes.state[slots], states)
            .ravel()
            .astype(np.intp)
        )
        row = state * side
        scale = np.stack([horizon_scale(episodes.horizon[slots], g).ravel() for g in discounts])
        for lag in range(1, longest_lag(width - 1, discounts) + 1):
            pairs = (width - lag) * count
            decay = np.array([g ** (lag - 1) for g in discounts])
            np.add.at(total, row[:pairs] + state[-pairs:], decay @ scale[:, :pairs])
    return total.reshape(side, side)[:states, :states]


def _across_blocks(
    episodes: Episodes, blocks: _Blocks, states: int, discount: float
) -> Float64[np.ndarray, "states states"]:
    """Unnormalised sum over the pairs that start in one block and end in a later one of their trajectory."""
    total = np.zeros((states, states))
    after = np.zeros(states)  # what follows the block at hand, discounted from its end
    powers = discount ** np.arange(blocks.size + 1.0)
    longer = np.flatnonzero(
        blocks.goes_on | np.roll(blocks.goes_on, 1)
    )  # in trajectories of several blocks
    for some in reversed(_chunks(longer, max(1, TABLE_CELLS_AT_ONCE // states))):
        slots, block = _slots(blocks, some)
        position = slots - blocks.first[some][block]
        cell, cells = block * states + episodes.state[slots], len(some) * states
        scale = horizon_scale(episodes.horizon[slots], discount)
        seen = np.bincount(cell, scale * powers[blocks.size - 1 - position], cells).reshape(
            -1, states
        )
        own = np.bincount(cell, powers[position], cells).reshape(-1, states)
        coming = np.zeros_like(own)
        for index in reversed(range(len(some))):
            if blocks.goes_on[some[index]]:
                coming[index] = after
            after = own[index] + powers[-1] * coming[index]
        total += seen.T @ coming
    return total


def _slots(blocks: _Blocks, some: Int[np.ndarray, "some"]) -> tuple[np.ndarray, np.ndarray]:
    """Every slot of some blocks, and which of them (0, 1, ...) it belongs to."""
    length = blocks.length[some]
    block = np.repeat(np.arange(len(some)), length)
    first_here = np.cumsum(length) - length
    return np.arange(len(block)) + (blocks.first[some] - first_here)[block], block


def _chunks(indices: Int[np.ndarray, "indices"], size: int) -> list[np.ndarray]:
    return np.split(indices, np.arange(size, len(indices), size))
