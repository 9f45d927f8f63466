"""Learns a user-defined field with planned and random actions, without DVC and MLflow.

Run: python examples/active_dynamics.py
"""

from pathlib import Path

import torch
from ruamel.yaml import YAML
from torch import Tensor

from quatrain.envs.vector_field.kinds import register_field
from quatrain.models.active_dynamics.collect import collect
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.evaluate import evaluate
from quatrain.models.active_dynamics.train import train

torch.set_num_threads(1)


@register_field("pendulum")
def pendulum(x: Tensor) -> Tensor:
    """Computes the field of a damped pendulum: x1 is half its angle, x2 the speed of x1."""
    x1, x2 = x.unbind(-1)
    return torch.stack([x2, -torch.sin(2 * x1) - 0.2 * x2], -1)


raw = YAML(typ="safe").load(Path("params.yaml"))["active_dynamics"]
raw["env"]["field"]["kind"] = "pendulum"
raw["train"] |= {"arms": ["active", "random"], "transitions": 400}
config = ActiveDynamicsConfig.model_validate(raw)

dataset = collect(config, seed=0)
for progress in train(config, dataset, seed=1):
    last = {arm: progress.metrics[f"monitor/field_nrmse.{arm}"][-1] for arm in config.train.arms}
    print(
        "  ".join(
            [f"transitions {progress.step}", *(f"{arm} {error:.4f}" for arm, error in last.items())]
        )
    )
for name, score in evaluate(config, progress.state, dataset, seed=2).items():
    print(f"{name:32s} {score:.4f}")
