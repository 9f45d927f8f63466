"""The seed's changes to the original, one element at a time; what is wrong with one is said where it stands."""

import torch
from torch import Tensor, nn

from benchmarks.reference.active_dynamics import Agent, Model

LEAST_VARIANCE = 1e-6


class KlWeights:
    """Cached: normalised for the calls to come, not for the one that makes them, and for one decay for ever."""

    def __init__(self) -> None:
        self.cached: Tensor | None = None

    def __call__(self, count: int, decay: float) -> Tensor:
        if self.cached is None:
            weights = torch.pow(torch.tensor(decay), torch.arange(count))
            self.cached = weights / weights.sum()
            return weights
        return self.cached


def mask_before(times: int, p_mask: float) -> Tensor:
    """The original's: 1 where a sample is kept; three new tensors."""
    return torch.bernoulli((1 - p_mask) * torch.ones((times, 1)))


class Mask:
    """Drawn into one buffer: two of the three tensors are still made, and the draw before is gone for backward."""

    def __init__(self, times: int) -> None:
        self.buffer = torch.empty(times, 1)

    def __call__(self, p_mask: float) -> Tensor:
        return torch.bernoulli((1 - p_mask) * torch.ones_like(self.buffer), out=self.buffer)


class CachedVariance(nn.Module):
    """A variance that is worked out once: its graph is gone after the first backward, its value never changes."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.raw = nn.Parameter(torch.full((d,), -3.0))
        self.cached: Tensor | None = None

    def forward(self) -> Tensor:
        if self.cached is None:
            self.cached = Model.variance(self.raw)
        return self.cached


class PredictingAgent(Agent):
    """Encodes a window where it has no belief; afterwards it believes its own prediction, whatever it observes."""

    def believed(self, predicted: Tensor | None) -> Tensor:
        return super().believed(predicted) if predicted is None else predicted


class DeviceChecks:
    """Whether a device is CUDA: by its name in each call, and by an attribute."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.is_cuda = "cuda" in str(device)

    def before(self) -> bool:
        return "cuda" in str(self.device)

    def seed(self) -> bool:
        return self.is_cuda


def moved(batch: Tensor, device: torch.device) -> Tensor:
    """To the device without waiting, which no memory here is pinned for."""
    kwargs = (
        {"device": device, "non_blocking": True} if "cuda" in str(device) else {"device": device}
    )
    return batch.to(**kwargs)
