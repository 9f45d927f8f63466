"""processes that share the environments of a learner -> sums, means and lists over all of them."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, distributed

from quatrain.errors import RankLost
from quatrain.frameworks.torch import packing

T = TypeVar("T")
SOURCE = re.compile(r"^\[\S+\] ")
"""The place in torch's code with which its messages begin."""


class ProcessGroup(NamedTuple):
    """Holds this process's rank and the number of processes; with a single one, nothing is
    communicated.

    Raises:
        RankLost: in every method, another rank has ended.
    """

    rank: int
    size: int

    def all_gather(self, values: Float[Tensor, "local *axes"]) -> Float[Tensor, "all *axes"]:
        """Returns the values of all ranks, concatenated in the order of ranks; all have the same
        shape.
        """
        if self.size == 1:
            return values
        parts = [torch.empty_like(values) for _ in range(self.size)]
        with _explained():
            distributed.all_gather(parts, values.contiguous())
        return torch.cat(parts)

    def all_reduce_mean(self, value: Tensor) -> Tensor:
        """Returns the mean over ranks, unweighted: minibatches of all ranks have the same size."""
        return value if self.size == 1 else self.all_reduce_sum(value) / self.size

    def all_reduce_sum(self, value: Tensor) -> Tensor:
        if self.size == 1:
            return value
        total = value.detach().clone()
        with _explained():
            distributed.all_reduce(total)
        return total

    def all_gather_object(self, value: T) -> list[T]:
        """Returns the values of all ranks, which may be any objects that pickle."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        with _explained():
            distributed.all_gather_object(values, value)
        return values

    def all_gather_tensors(self, tree: T) -> list[T]:
        """Returns the trees of tensors of all ranks, equal in structure and shapes, where this
        rank's tensors are.
        """
        if self.size == 1:
            return [tree]
        of_ranks = self.all_gather_object(packing.to_arrays(tree))
        return [packing.from_arrays(tree, arrays) for arrays in of_ranks]

    def broadcast_tensors(self, tree: T) -> T:
        """Returns the tree of rank 0, where this rank's tensors are."""
        if self.size == 1:
            return tree
        return packing.from_arrays(tree, self.broadcast_object(packing.to_arrays(tree)))

    def broadcast_object(self, value: T) -> T:
        """Returns the value of rank 0, which may be any object that pickles."""
        if self.size == 1:
            return value
        values = [value]
        with _explained():
            distributed.broadcast_object_list(values)
        return values[0]

    def average_gradients(self, params: Iterable[Tensor]) -> None:
        """Replaces gradients in place by their means over ranks."""
        if self.size == 1:
            return
        gradients = [param.grad for param in params if param.grad is not None]
        flat = self.all_reduce_mean(torch.cat([gradient.flatten() for gradient in gradients]))
        for gradient, mean in zip(
            gradients,
            flat.split([gradient.numel() for gradient in gradients]),
            strict=True,
        ):
            gradient.copy_(mean.view_as(gradient))


@contextmanager
def _explained() -> Iterator[None]:
    """Replaces torch's message about a closed connection, or about one that is silent."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        reason = SOURCE.sub("", str(error)).partition(". ")[0]
        raise RankLost(
            f"actor_critic: another rank has ended or hangs, and its output says why ({reason})"
        ) from None


SINGLE_PROCESS = ProcessGroup(rank=0, size=1)
