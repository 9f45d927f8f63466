"""turns of one agent -> random transitions with stacked frames: a plain NumPy ring

Written from the seed's description: frames are float32 rows, an episode is preceded by blank rows,
a stack is a fancy index of the rows before and at the turn. Corrected so that it draws from the law
of `quatrain.replay.frames` with n_step = 1: the rows between episodes are really blank, and only
turns whose successor was observed are drawn, with replacement.
"""

import numpy as np

from benchmarks.reference.iqn import Batch


class NumpyRing:
    """Holds rows of frames; `row` is written next."""

    def __init__(self, capacity: int, frame: int, n_frames: int) -> None:
        self.capacity, self.n_frames, self.row = capacity, n_frames, 0
        self.states = np.zeros((capacity, frame), np.float32)
        self.actions = np.zeros(capacity, np.int64)
        self.rewards = np.zeros(capacity, np.float32)
        self.drawable = np.zeros(capacity, bool)

    def begin_episode(self) -> None:
        for _ in range(self.n_frames - 1):
            self._put(np.zeros_like(self.states[0]), 0, 0.0, drawable=False)

    def add(self, state: np.ndarray, action: int, reward: float, truncated: bool) -> None:
        self._put(state, action, reward, drawable=not truncated)

    def _put(self, state: np.ndarray, action: int, reward: float, drawable: bool) -> None:
        self.states[self.row] = state
        self.actions[self.row] = action
        self.rewards[self.row] = reward
        self.drawable[self.row] = drawable
        self.row = (self.row + 1) % self.capacity

    def latest(self) -> np.ndarray:
        """Returns the frames before the next one, oldest first."""
        return self.states[np.arange(self.row - self.n_frames + 1, self.row)]

    def starts(self) -> np.ndarray:
        """Returns the first rows of the valid windows of n_frames + 1 rows."""
        rows = np.flatnonzero(self.drawable)
        age = (self.row - 1 - rows) % self.capacity
        whole = (age >= 1) & (age + self.n_frames - 1 < self.capacity)
        inside = (rows >= self.n_frames - 1) & (rows + 1 < self.capacity)
        return rows[whole & inside] - self.n_frames + 1

    def sample(self, rng: np.random.Generator, starts: np.ndarray, batch_size: int) -> Batch:
        """Samples flat stacks, oldest frame first."""
        indices = rng.choice(starts, batch_size)[:, np.newaxis] + np.arange(self.n_frames)
        return Batch(
            self.states[indices].reshape(batch_size, -1),
            self.actions[indices[:, -1]],
            self.rewards[indices[:, -1]],
            self.states[indices + 1].reshape(batch_size, -1),
        )
