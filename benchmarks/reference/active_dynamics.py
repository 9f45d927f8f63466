"""The original's way of believing: each step encodes a window of the latest transitions anew

Encoder and dynamics are the caller's. What a document proposes is here as it works in that program.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

Transition = Mapping[str, Tensor]
Encode = Callable[[Tensor, Tensor], Tensor]
"""Observations and actions [time, ...] -> the mean of the belief after the last."""


class RecentRollout:
    """Stores the latest transitions in a tensor per name; each new one shifts the whole tensor."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.data: dict[str, Tensor] = {}

    def add(self, transition: Transition) -> None:
        for name, value in transition.items():
            if name not in self.data:
                self.data[name] = value.detach()[None].clone()
            elif len(self.data[name]) < self.length:
                self.data[name] = torch.cat([self.data[name], value.detach()[None]])
            else:
                self.data[name] = torch.roll(self.data[name], -1, 0)
                self.data[name][-1] = value.detach()

    def copy(self) -> "RecentRollout":
        """Clones all tensors, then detaches them."""
        copied = type(self)(self.length)
        copied.data = {name: value.clone().detach() for name, value in self.data.items()}
        return copied


class ProposedRollout(RecentRollout):
    """Copies after a check for gradients. Stored values are detached: it is never true."""

    def copy(self) -> "ProposedRollout":
        copied = type(self)(self.length)
        for name, value in self.data.items():
            if value.requires_grad:
                copied.data[name] = value.detach().clone()
            else:
                with torch.no_grad():
                    copied.data[name] = value.clone()
        return copied


class Agent:
    """Keeps a window of transitions, encodes it in each step, and predicts the next state."""

    def __init__(
        self, encode: Encode, predict: Callable[[Tensor, Tensor], Tensor], recent: RecentRollout
    ) -> None:
        self.encode, self.predict, self.recent = encode, predict, recent
        self.belief: Tensor | None = None
        self.predicted: Tensor | None = None

    @torch.no_grad()
    def step(self, observation: Tensor, action: Tensor) -> Tensor:
        """Adds an action and the observation it led to; returns the mean of the belief."""
        self.recent.add({"observation": observation, "action": action, "reward": torch.zeros(())})
        if self.belief is not None:
            self.predicted = self.predict(self.belief, action)
        self.belief = self.believed()
        return self.belief

    def believed(self) -> Tensor:
        recent = self.recent.copy().data
        return self.encode(recent["observation"], recent["action"])


class ProposedAgent(Agent):
    """Encodes the first window only; later beliefs are its predictions, without observations."""

    def believed(self) -> Tensor:
        return super().believed() if self.predicted is None else self.predicted
