"""Learn a table of action values in grid worlds of this package, in a training loop of your own.

Usage: python examples/own_loop.py
"""

import gymnasium
import numpy as np

import quatrain.envs.adapters  # noqa: F401  registers the ids

MAP = """\
S...X...
.X..X.X.
.X....X.
.XXXX.X.
......XG
"""
ENVS, STEPS, LIMIT = 32, 3000, 100
RATE, DISCOUNT, EXPLORED = 0.2, 0.95, 0.1

envs = gymnasium.make_vec(
    "quatrain/Grid-v0", num_envs=ENVS, layout=MAP, start="layout", max_episode_steps=LIMIT
)
rng = np.random.default_rng(0)
_, info = envs.reset(seed=0)
states = info["state"]
values = np.zeros((sum(MAP.count(cell) for cell in "SG."), 4))
lengths, elapsed = [], np.zeros(ENVS, int)
for _ in range(STEPS):
    ties = rng.random((ENVS, 4)) * 1e-9
    best = (values[states] + ties).argmax(1)
    actions = np.where(rng.random(ENVS) < EXPLORED, rng.integers(4, size=ENVS), best)
    _, rewards, terminated, truncated, info = envs.step(actions)
    ended = terminated | truncated
    # An ended world has begun its next episode: where it ended is in final_info.
    last = info["final_info"]["state"] if ended.any() else info["state"]
    following = np.where(ended, last, info["state"])
    targets = rewards + DISCOUNT * ~terminated * values[following].max(1)
    values[states, actions] += RATE * (targets - values[states, actions])
    states, elapsed = info["state"], elapsed + 1
    lengths += elapsed[ended].tolist()
    elapsed[ended] = 0

print(f"{'episodes':24s} {len(lengths)}")
print(f"{'steps of the first 50':24s} {np.mean(lengths[:50]):.1f}")
print(f"{'steps of the last 50':24s} {np.mean(lengths[-50:]):.1f}")
