"""The seed's changes to the original, one by one, with the error of each in its docstring."""

import torch
from torch import Tensor, nn

from benchmarks.reference.active_dynamics import Agent, Model, RecentRollout


class KlWeights:
    """Caches weights. The first call returns them unnormalised; a changed decay has no effect."""

    def __init__(self) -> None:
        self.cached: Tensor | None = None

    def __call__(self, count: int, decay: float) -> Tensor:
        if self.cached is None:
            weights = torch.pow(torch.tensor(decay), torch.arange(count))
            self.cached = weights / weights.sum()
            return weights
        return self.cached


def mask_before(times: int, p_mask: float) -> Tensor:
    """Returns the original's mask, 1 where a sample is kept; allocates three tensors."""
    return torch.bernoulli((1 - p_mask) * torch.ones((times, 1)))


class Mask:
    """Draws into one buffer. Two tensors are still allocated, and backward loses the last draw."""

    def __init__(self, times: int) -> None:
        self.buffer = torch.empty(times, 1)

    def __call__(self, p_mask: float) -> Tensor:
        return torch.bernoulli((1 - p_mask) * torch.ones_like(self.buffer), out=self.buffer)


class CachedVariance(nn.Module):
    """Computes a variance once. Its graph is freed by the first backward; it never changes."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.raw = nn.Parameter(torch.full((d,), -3.0))
        self.cached: Tensor | None = None

    def forward(self) -> Tensor:
        if self.cached is None:
            self.cached = Model.variance(self.raw)
        return self.cached


class PredictingAgent(Agent):
    """Encodes the first window only; later beliefs are its predictions, without observations."""

    def believed(self, predicted: Tensor | None) -> Tensor:
        return super().believed(predicted) if predicted is None else predicted


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
