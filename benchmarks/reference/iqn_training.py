"""a world, agents -> agents that have learned, the slow way: turn by turn

The original's schedule: each agent makes one gradient step an episode, the target network creeps
after every step and is copied every 200 episodes besides, epsilon loses a thousandth an episode.
"""

from typing import Any

import numpy as np

from benchmarks.reference.iqn import ACTIONS
from benchmarks.reference.iqn_ring import NumpyRing
from benchmarks.reference.iqn_world import ObjectWorld

COPY_EVERY = 200
CAPACITY = 1024


class Society:
    """Holds a world, and each agent's network and replay."""

    def __init__(
        self,
        world: ObjectWorld,
        agents: list[Any],
        rings: list[NumpyRing],
        rng: np.random.Generator,
        batch: int,
    ) -> None:
        self.world, self.agents, self.rings = world, agents, rings
        self.rng, self.batch = rng, batch
        self.epsilon, self.episodes = 1.0, 0

    def episode(self) -> float:
        """Plays an episode and updates each agent once; returns the mean return of an agent."""
        if self.episodes % COPY_EVERY == 0:
            for agent in self.agents:
                agent.copy_to_target()
        earned = self.play()
        self.learn()
        self.epsilon *= 0.999
        self.episodes += 1
        return earned / len(self.agents)

    def play(self) -> float:
        """Plays an episode; returns the sum of all rewards."""
        self.world.reset()
        for ring in self.rings:
            ring.begin_episode()
        earned, last = 0.0, self.world.rules.max_turns - 1
        for turn in range(last + 1):
            self.world.begin_turn()
            for agent, ring in enumerate(self.rings):
                frame = self.world.observe(agent)
                action = self.choose(agent, frame)
                reward = self.world.act(agent, action)
                ring.add(frame, action, reward, turn == last)
                earned += reward
            self.world.end_turn()
        return earned

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
