"""a world, agents -> agents that have learned, the slow way: turn by turn, with a plain NumPy ring

The original's schedule: each agent makes one gradient step an episode, the target network creeps
after every step and is copied every 200 episodes besides, epsilon loses a thousandth an episode.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.reference.iqn import ACTIONS, Batch
from benchmarks.reference.iqn_world import ObjectWorld

COPY_EVERY = 200
CAPACITY = 1024


class NumpyRing:
    """Holds the turns of one agent in rows of frames; `row` is written next.

    Written from the seed's description: an episode is preceded by blank rows, a stack is a fancy
    index of the rows before and at the turn. Corrected so that it draws from the law of
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
            self._put(np.zeros_like(self.states[0]), 0, 0.0, drawable=False)

    def add(self, state: np.ndarray, action: int, reward: float, final: bool) -> None:
        self._put(state, action, reward, drawable=not final)

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


@dataclass
class Society:
    """Holds a world, and each agent's network and replay."""

    world: ObjectWorld
    agents: list[Any]
    rings: list[NumpyRing]
    rng: np.random.Generator
    batch: int
    epsilon: float = 1.0
    episodes: int = 0

    def episode(self) -> None:
        """Plays an episode and updates each agent once."""
        if self.episodes % COPY_EVERY == 0:
            for agent in self.agents:
                agent.copy_to_target()
        self.play()
        self.learn()
        self.epsilon *= 0.999
        self.episodes += 1

    def play(self) -> None:
        self.world.reset()
        for ring in self.rings:
            ring.begin_episode()
        last = self.world.rules.max_turns
        for turn in range(last + 1):
            self.world.begin_turn()
            for agent, ring in enumerate(self.rings):
                frame = self.world.observe(agent)
                action = self.choose(agent, frame)
                reward = self.world.act(agent, action)
                ring.add(frame, action, reward, turn == last)
            self.world.end_turn()

    def choose(self, agent: int, frame: np.ndarray) -> int:
        """Selects an action by the last frames; at random with probability epsilon."""
        stack = np.vstack((self.rings[agent].latest(), frame)).reshape(1, -1)
        if self.rng.random() < self.epsilon:
            return int(self.rng.integers(ACTIONS))
        return int(self.agents[agent].act(stack))

    def learn(self) -> None:
        """Takes a gradient step of each agent whose replay holds a batch."""
        for agent, ring in zip(self.agents, self.rings, strict=True):
            if ring.drawable.sum() >= self.batch:
                agent.learn(ring.sample(self.rng, ring.starts(), self.batch))
