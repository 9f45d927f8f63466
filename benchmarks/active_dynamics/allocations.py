"""work -> bytes that one call allocates: for tensors, and for Python objects at their peak"""

import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.harness import Measured

CALLS = 5


def allocated(work: Callable[[], object]) -> Measured:
    """Measures the least of several calls; calls differ only by what Python keeps cached."""
    work()
    return Measured(np.array([min(of_tensors(work) + of_python(work) for _ in range(CALLS))]))


def of_tensors(work: Callable[[], object]) -> float:
    """Sums all storages that operations allocate, freed ones included."""
    with _Asked() as result:
        work()
    return float(result.total)


def of_python(work: Callable[[], object]) -> float:
    """Measures the peak above the memory in use before the call."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        retained = work()
        result = tracemalloc.get_traced_memory()[1] - before
        del retained
    finally:
        tracemalloc.stop()
    return float(result)


class _Asked(TorchDispatchMode):
    """Adds up storages that are not those of an operation's inputs."""

    total = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        inputs = {
            _storage(each) for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)
        }
        for output in tree_leaves(result):
            if isinstance(output, Tensor) and _storage(output) not in inputs:
                self.total += output.untyped_storage().nbytes()
        return result


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
