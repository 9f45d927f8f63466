"""Transitions as the original keeps them: a dictionary each, the latest by rolling; and the seed's copies of them."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

Transition = Mapping[str, Any]
"""Tensors by name, and whatever else there is to tell of a transition."""


class Rollout:
    """All transitions, a dictionary each."""

    def __init__(self) -> None:
        self.transitions: list[dict[str, Any]] = []

    def add(self, transition: Transition) -> None:
        self.transitions.append({name: _detached(value) for name, value in transition.items()})

    def last(self, length: int) -> dict[str, Tensor]:
        """The latest transitions, put together anew: [length, ...] of each tensor."""
        recent = self.transitions[-length:]
        names = [name for name, value in recent[0].items() if isinstance(value, Tensor)]
        return {name: torch.stack([transition[name] for transition in recent]) for name in names}


class RecentRollout:
    """The latest transitions in one tensor a name: all of it is moved by one place for each of them."""

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
        """Cloned without regard to gradients."""
        copied = type(self)(self.length)
        for name, value in self.data.items():
            copied.data[name] = value.clone().detach() if isinstance(value, Tensor) else value
        return copied


class SeedRollout(RecentRollout):
    """The seed's: copies that ask for gradients first, and a pool that nothing is ever taken from."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.pool: dict[tuple[int, ...], Tensor] = {}

    def copy(self) -> "SeedRollout":
        """What is kept was detached when it came, so that the first branch is never taken; only tensors are copied."""
        copied = type(self)(self.length)
        for name, value in self.data.items():
            if not isinstance(value, Tensor):
                continue
            if value.requires_grad:
                copied.data[name] = value.detach().clone()
            else:
                with torch.no_grad():
                    copied.data[name] = value.clone()
        return copied


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value
