"""Transitions as the original stores them, a dictionary each; and the seed's copies."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

Transition = Mapping[str, Any]
"""Tensors by name, and other values of a transition."""


class Rollout:
    """Stores all transitions, a dictionary each."""

    def __init__(self) -> None:
        self.transitions: list[dict[str, Any]] = []

    def add(self, transition: Transition) -> None:
        self.transitions.append({name: _detached(value) for name, value in transition.items()})


class RecentRollout:
    """Stores the latest transitions in a tensor per name; each new one shifts the whole tensor."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.data: dict[str, Any] = {}

    def add(self, transition: Transition) -> None:
        for name, value in transition.items():
            if not isinstance(value, Tensor):
                self.data[name] = value
            elif name not in self.data:
                self.data[name] = _detached(value)[None].clone()
            elif len(self.data[name]) < self.length:
                self.data[name] = torch.cat([self.data[name], _detached(value)[None]])
            else:
                self.data[name] = torch.roll(self.data[name], -1, 0)
                self.data[name][-1] = _detached(value)

    def copy(self) -> "RecentRollout":
        """Clones all tensors, then detaches them."""
        copied = type(self)(self.length)
        for name, value in self.data.items():
            copied.data[name] = value.clone().detach() if isinstance(value, Tensor) else value
        return copied


class SeedRollout(RecentRollout):
    """Copies after a check for gradients, with a pool that nothing is ever taken from."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.pool: dict[tuple[int, ...], Tensor] = {}

    def copy(self) -> "SeedRollout":
        """Copies tensors only. Stored values are detached: the first branch is never taken."""
        copied = type(self)(self.length)
        for name, value in self.data.items():
            if isinstance(value, Tensor) and value.requires_grad:
                copied.data[name] = value.detach().clone()
            elif isinstance(value, Tensor):
                with torch.no_grad():
                    copied.data[name] = value.clone()
        return copied


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value
