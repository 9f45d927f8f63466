"""Step CartPole with random actions and draw batches from a ring in your own training loop.

Usage: python examples/own_loop.py
"""

from typing import NamedTuple

import gymnasium
import numpy as np

from quatrain.replay.transitions import HostRing

STEPS = 5000
CAPACITY = 2000
BATCH = 256


class Transition(NamedTuple):
    """Holds one transition, or many with a leading axis."""

    obs: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    next_obs: np.ndarray
    terminated: np.ndarray


env = gymnasium.make("CartPole-v1")
rng = np.random.default_rng(0)
blank = np.zeros(4, np.float32)
ring = HostRing(CAPACITY, Transition(blank, np.int8(0), np.float32(0), blank, np.bool_(False)))

obs, _ = env.reset(seed=0)
batches = 0
for step in range(STEPS):
    action = int(rng.integers(2))
    next_obs, reward, terminated, truncated, _ = env.step(action)
    ring.add(Transition(obs, action, reward, next_obs, terminated))
    obs = env.reset()[0] if terminated or truncated else next_obs
    if len(ring) >= BATCH and step % 4 == 0:
        batch = ring.sample(rng, BATCH)  # a learner's update goes here
        batches += 1

print(f"{'transitions held':24s} {len(ring)}")
print(f"{'batches':24s} {batches}")
print(f"{'share that fell':24s} {batch.terminated.mean():.4f}")
