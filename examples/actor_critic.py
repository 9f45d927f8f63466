"""Let colonies learn to cross a plate of one's own, without DVC and MLflow: python
examples/actor_critic.py
"""

from pathlib import Path

import numpy as np
import torch
from ruamel.yaml import YAML

from quatrain.models.actor_critic.collect import collect
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.evaluate import evaluate
from quatrain.models.actor_critic.train import train

torch.set_num_threads(1)
raw = YAML(typ="safe").load(Path("params.yaml"))["actor_critic"]
plate = {"name": "three levels", "numbers": np.repeat([1.0, 4.0, 12.0], 200).tolist()}
raw["collect"] |= {
    "plates": "user",
    "plates_file": plate,
    "n_train": 1,
    "n_held_out": 1,
    "n_outside": 0,
}
raw["train"] |= {"transitions": 100_000}
config = ActorCriticConfig.model_validate(raw)

dataset = collect(config, seed=0)
for progress in train(config, dataset, seed=1):
    last = {
        name: progress.metrics[name][-1]
        for name in ("transitions", "return", "success", "nodes_mean")
    }
    print("  ".join(f"{name} {value:.6g}" for name, value in last.items()))
for name, score in evaluate(config, progress.state, dataset, seed=2).items():
    print(f"{name:28s} {score:.4f}")
