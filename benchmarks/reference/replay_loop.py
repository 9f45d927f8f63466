"""rows of walks -> random pairs, the slow way: the trajectory's end is searched at every sample

Written from the descriptions of the original (`sample_searching`) and of two proposals: one's code,
called vectorised, also loops (`sample_with_snippet`); the other sorts a table of flag positions
that is filled when a row is added (`sample_with_terminal_table`).

Corrected so that all sample the law of `quatrain.replay.episodes`: a start on a flagged slot is
drawn again, the first flag from the start on ends the trajectory, a row ends with a flag, the table
grows if a row has more than 100 flags, and the lag is at least 1 and never passes the end.

Rows must be full and hold equally many transitions; the discount lies strictly between 0 and 1.
"""

import numpy as np

Pairs = tuple[np.ndarray, np.ndarray]


class RowBuffer:
    """Holds rows of `episode_length` slots: trajectories back to back, flagged at their ends."""

    def __init__(self, max_episodes: int, episode_length: int) -> None:
        self.obs = np.zeros((max_episodes, episode_length), np.int32)
        self.terminals = np.zeros((max_episodes, episode_length), np.int32)
        self.terminal_indices = np.full((max_episodes, 100), -1, np.int32)
        self.episodes = 0

    def add_episode(self, obs: np.ndarray, terminals: np.ndarray) -> None:
        row = self.episodes
        self.obs[row], self.terminals[row] = obs, terminals
        self.terminals[row, -1] = 1
        positions = np.flatnonzero(self.terminals[row])
        missing = len(positions) - self.terminal_indices.shape[1]
        if missing > 0:
            columns = (0, 0), (0, missing)
            self.terminal_indices = np.pad(self.terminal_indices, columns, constant_values=-1)
        self.terminal_indices[row, : len(positions)] = positions
        self.episodes += 1

    def draw_starts(self, rng: np.random.Generator, batch_size: int) -> Pairs:
        episode = rng.integers(self.episodes, size=batch_size)
        start = rng.integers(self.obs.shape[1] - 1, size=batch_size)
        while (flagged := self.terminals[episode, start] == 1).any():
            episode[flagged] = rng.integers(self.episodes, size=flagged.sum())
            start[flagged] = rng.integers(self.obs.shape[1] - 1, size=flagged.sum())
        return episode, start


def sample_searching(
    rng: np.random.Generator, buffer: RowBuffer, batch_size: int, discount: float
) -> Pairs:
    """Samples pairs (state, later state); a Python loop searches each trajectory's end."""
    episode, start = buffer.draw_starts(rng, batch_size)
    horizons = np.zeros(batch_size, np.int32)
    for i in range(batch_size):
        terminals = buffer.terminals[episode[i], start[i] :]
        horizons[i] = np.where(terminals == 1)[0][0]
    return _pairs(rng, buffer, episode, start, horizons, discount)


def sample_with_snippet(
    rng: np.random.Generator, buffer: RowBuffer, batch_size: int, discount: float
) -> Pairs:
    """Samples the same pairs with the proposal's loop; without a flag the row's end is the end."""
    episode, start = buffer.draw_starts(rng, batch_size)
    transition_ranges = np.full(batch_size, buffer.obs.shape[1])
    max_durations = np.zeros(batch_size, dtype=np.int32)
    for i in range(batch_size):
        start_idx, ep_length = start[i], transition_ranges[i]
        terminals = buffer.terminals[episode[i], start_idx:ep_length]
        terminal_positions = np.where(terminals == 1)[0]
        ends = len(terminal_positions) > 0
        max_durations[i] = terminal_positions[0] if ends else ep_length - start_idx - 1
    return _pairs(rng, buffer, episode, start, max_durations, discount)


def sample_with_terminal_table(
    rng: np.random.Generator, buffer: RowBuffer, batch_size: int, discount: float
) -> Pairs:
    """Samples the same pairs; the end is the smallest later entry in the row of the table."""
    episode, start = buffer.draw_starts(rng, batch_size)
    terminals = buffer.terminal_indices[episode]
    valid = (terminals >= start[:, None]) & (terminals >= 0)
    distance = np.where(valid, terminals - start[:, None], 999_999)
    horizons = np.sort(distance, axis=1)[:, 0]
    return _pairs(rng, buffer, episode, start, horizons, discount)


def _pairs(
    rng: np.random.Generator,
    buffer: RowBuffer,
    episode: np.ndarray,
    start: np.ndarray,
    horizons: np.ndarray,
    discount: float,
) -> Pairs:
    uniforms = rng.random(len(start))
    lags = 1 + np.floor(np.log(1 - (1 - discount**horizons) * uniforms) / np.log(discount))
    later = start + np.minimum(lags.astype(np.int32), horizons)
    return buffer.obs[episode, start], buffer.obs[episode, later]
