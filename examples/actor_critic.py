"""Lets colonies learn to cross a plate of one's own: python examples/actor_critic.py"""

import numpy as np

import quatrain

plate = {"name": "three levels", "numbers": np.repeat([1.0, 4.0, 12.0], 200).tolist()}
result = quatrain.fit(
    "actor_critic",
    collect={"plates": "user", "plates_file": plate, "n_train": 1, "n_held_out": 1, "n_outside": 0},
    train={"transitions": 100_000},
    threads=1,
)
for name, score in result.scores.items():
    print(f"{name:28s} {score:.4f}")
