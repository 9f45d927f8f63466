"""a seed, or the saved state of a generator -> a torch generator on torch's default device, or a
module whose initial weights come from one.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Generator, Tensor, nn
from torch.overrides import TorchFunctionMode

Module = TypeVar("Module", bound=nn.Module)


def generator_from_seed(seed: np.random.SeedSequence) -> Generator:
    return Generator(device=torch.get_default_device()).manual_seed(
        int(seed.generate_state(1, np.uint64)[0] >> 1)
    )


def generator_from_state(state: UInt8[Tensor, " state"]) -> Generator:
    """Returns a generator that continues from the state, which is copied."""
    generator = Generator(device=torch.get_default_device())
    generator.set_state(state.cpu())
    return generator


def seeded(make: Callable[[], Module], seed: int) -> Module:
    """Returns a new module with the initial weights that it has after `torch.manual_seed(seed)`.

    torch's modules draw them from its global generator, which belongs to the caller and all
    threads; here they are drawn from one of their own.
    """
    with _DrawingFrom(Generator(device=torch.get_default_device()).manual_seed(seed)):
        return make()


class _DrawingFrom(TorchFunctionMode):
    """Gives a generator to all that draws, in the calling thread."""

    def __init__(self, generator: Generator) -> None:
        super().__init__()
        self._generator = generator

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        arguments = kwargs or {}
        # The functions of nn.init name it; the methods of tensors that they call leave it out.
        if "generator" in arguments or func in (Tensor.uniform_, Tensor.normal_):
            arguments = arguments | {"generator": self._generator}
        return func(*args, **arguments)
