"""a seed, or the state that a learner keeps of it -> torch's random numbers from there on."""

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Generator, Tensor


def generator_from_seed(seed: np.random.SeedSequence) -> Generator:
    """At its beginning, on torch's default device."""
    made = Generator(device=torch.get_default_device())
    return made.manual_seed(int(seed.generate_state(1, np.uint64)[0] >> 1))


def generator_from_state(state: UInt8[Tensor, " state"]) -> Generator:
    """Where it was, on torch's default device; of the state nothing is changed."""
    made = Generator(device=torch.get_default_device())
    made.set_state(state.cpu())
    return made
