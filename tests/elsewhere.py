"""The device `meta`, which holds no values: whatever would wait for a GPU raises there, on any
machine.
"""

from typing import Any

import pytest
import torch
from torch import Generator, Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

without_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")


class Elsewhere(Generator):
    """Replaces a generator on a device that holds no values."""

    def __new__(cls, *_: Any, **__: Any) -> "Elsewhere":
        return super().__new__(cls)

    @property
    def device(self) -> torch.device:
        return torch.device("meta")


class MadeOnTheCpu(TorchDispatchMode):
    """Records operations whose result is a tensor on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[str] = []

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        results = operation(*args, **(kwargs or {}))
        if any(isinstance(leaf, Tensor) and leaf.is_cpu for leaf in tree_leaves(results)):
            self.operations.append(str(operation))
        return results
