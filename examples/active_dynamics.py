"""Learns a user-defined field by planned and by random actions.

Run: python examples/active_dynamics.py
"""

import torch
from torch import Tensor

import quatrain
from quatrain.envs.vector_field.kinds import register_field


@register_field("pendulum")
def pendulum(x: Tensor) -> Tensor:
    """Computes the field of a damped pendulum: x1 is half its angle, x2 the speed of x1."""
    x1, x2 = x.unbind(-1)
    return torch.stack([x2, -torch.sin(2 * x1) - 0.2 * x2], -1)


result = quatrain.fit(
    "active_dynamics",
    env={"field": {"kind": "pendulum"}},
    train={"arms": ["active", "random"], "transitions": 400},
    threads=1,
)
for name, score in result.scores.items():
    print(f"{name:32s} {score:.4f}")
