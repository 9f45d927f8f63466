"""Explores a map by options along learned eigenvectors, beside a random walk.

Usage: python examples/eigenoptions.py

An eigenoption seeks the maximum or the minimum of an eigenvector, by rewards
phi(next state) - phi(state), and ends there: 'A Laplacian Framework for Option Discovery in
Reinforcement Learning' (2017). One decision of ten is an option, the others are single actions.
"""

import gymnasium
import numpy as np

import quatrain
import quatrain.envs.adapters  # registers the ids
from quatrain.envs.adapters.potential_reward import PotentialReward

MAP = """\
S...X....X....
....X....X....
..............
....X....X....
XX.XXX.XXXX.XX
....X....X....
....X.........
.........X....
....X....X....
X.XXXXX.XXX.XX
....X....X....
....X....X....
..............
....X....X....
"""
VECTORS, DISCOUNT = range(1, 8), 0.99
RUNS, STEPS, LIMIT = 20, 1000, 10_000

result = quatrain.fit(
    "allo",
    env={"layout": {"name": "nine rooms", "text": MAP}},
    network={"d": 8},
    train={"steps": 5000, "evaluate_every": 500},
)
env = gymnasium.make("quatrain/Grid-v0", layout=MAP, start="layout", max_episode_steps=LIMIT + 1)
moves = np.asarray(result.dataset.next_state)
phi = result.encoder(np.arange(len(moves)))


def option(potential: np.ndarray) -> np.ndarray:
    """Returns the best action in each state, by value iteration; -1 where the option ends."""
    rewards = potential[moves] - potential[:, None]
    values = np.zeros(len(moves))
    for _ in range(500):
        values = np.maximum((rewards + DISCOUNT * values[moves]).max(1), 0)
    action_values = rewards + DISCOUNT * values[moves]
    return np.where(action_values.max(1) > 1e-6, action_values.argmax(1), -1)


OPTIONS = [option(sign * phi[:, k]) for k in VECTORS for sign in (1, -1)]


def explore(seed: int, share: float) -> np.ndarray:
    """Returns the steps to each state, at most LIMIT; share: of the decisions that are options."""
    rng = np.random.default_rng(seed)
    _, info = env.reset(seed=seed)
    steps = np.full(len(moves), LIMIT)
    running = None
    for step in range(LIMIT):
        state = int(info["state"])
        steps[state] = min(step, steps[state])
        if running is None and rng.random() < share:
            running = OPTIONS[rng.integers(len(OPTIONS))]
        if running is not None and running[state] < 0:
            running = None
        action = rng.integers(4) if running is None else running[state]
        info = env.step(action)[-1]
    return steps


for name, share in (("random walk", 0.0), ("eigenoptions", 0.1)):
    steps = np.array([explore(seed, share) for seed in range(RUNS)])
    numbers = {
        f"states in {STEPS} steps": (steps < STEPS).sum(1),
        "steps to a state": steps.mean(1),
    }
    for what, values in numbers.items():
        half = 2.093 * values.std(ddof=1) / np.sqrt(RUNS)  # t(0.975, 19)
        print(f"{f'{name}: {what}':42s} {values.mean():.1f}")
        print(f"{f'{name}: {what}, half of 95 % interval':60s} {half:.1f}")

shaped = PotentialReward(env, result.encoder, component=1)
_, info = shaped.reset(seed=0)
state = info["state"]
_, reward, _, _, info = shaped.step(1)
print(f"{'reward of a step to the right':48s} {reward:.4f}")
print(f"{'the same by the table':48s} {phi[info['state'], 1] - phi[state, 1]:.4f}")
