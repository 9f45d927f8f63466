"""a world, agents -> agents that have learned, the slow way: turn by turn, with a plain NumPy ring

The original's schedule: each agent makes one gradient step an episode, and the target network
creeps after every step.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.reference.iqn import Batch
from benchmarks.reference.iqn_world import ObjectWorld

CAPACITY = 1024


class NumpyRing:
    """Holds the turns of one agent in rows of frames; `row` is written next.

    Written from the document's description: blank rows precede an episode, a stack is a fancy index
    of the rows before and at the turn. Corrected so that it draws from the law of
    `quatrain.replay.frames` with n_step = 1: the rows between episodes are really blank, an episode
    ends with its final observation, and only turns before it are drawn, with replacement.
    """

    def __init__(self, capacity: int, frame: int, n_frames: int) -> None:
        self.capacity, self.n_frames, self.row = capacity, n_frames, 0
        self.states = np.zeros((capacity, frame), np.float32)
        self.actions = np.zeros(capacity, np.int64)
        self.rewards = np.zeros(capacity, np.float32)
        self.drawable = np.zeros(capacity, bool)

    def begin_episode(self) -> None:
        for _ in range(self.n_frames - 1):
            self.add(np.zeros_like(self.states[0]), 0, 0.0, final=True)

    def add(self, state: np.ndarray, action: int, reward: float, final: bool) -> None:
        """Stores a turn, which is drawn unless it is final."""
        self.states[self.row] = state
        self.actions[self.row] = action
        self.rewards[self.row] = reward
        self.drawable[self.row] = not final
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


def episode(
    world: ObjectWorld,
    agents: Sequence[Any],
    rings: Sequence[NumpyRing],
    rng: np.random.Generator,
    batch: int,
) -> None:
    """Plays an episode without exploring, and takes a gradient step of each agent."""
    world.reset()
    for ring in rings:
        ring.begin_episode()
    last = world.rules.max_turns
    for turn in range(last + 1):
        world.begin_turn()
        for number, (agent, ring) in enumerate(zip(agents, rings, strict=True)):
            frame = world.observe(number)
            action = agent.act(np.vstack((ring.latest(), frame)).reshape(1, -1))
            ring.add(frame, action, world.act(number, action), turn == last)
        world.end_turn()
    for agent, ring in zip(agents, rings, strict=True):
        agent.learn(ring.sample(rng, ring.starts(), batch))
