"""Generators and numbers that tests of PyTorch code share."""

import torch
from torch import Generator, Tensor


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def wave(*shape: int, start: float) -> Tensor:
    """Returns numbers from -1 to 1 that no generator of random numbers has to repeat."""
    place = torch.arange(torch.Size(shape).numel(), dtype=torch.float64)
    return (start + 1.7 * place + 0.37 * place.square()).sin().float().view(shape)
