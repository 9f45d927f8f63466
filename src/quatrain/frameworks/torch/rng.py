"""a seed, or the saved state of a generator -> a torch generator on torch's default device."""

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Generator, Tensor


def generator_from_seed(seed: np.random.SeedSequence) -> Generator:
    return Generator(device=torch.get_default_device()).manual_seed(
        int(seed.generate_state(1, np.uint64)[0] >> 1)
    )


def generator_from_state(state: UInt8[Tensor, " state"]) -> Generator:
    """Returns a generator that continues from the state, which is copied."""
    generator = Generator(device=torch.get_default_device())
    generator.set_state(state.cpu())
    return generator
