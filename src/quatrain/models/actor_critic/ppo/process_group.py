"""processes that share the environments of a learner -> sums, means and lists over all of them."""

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, distributed

T = TypeVar("T")


class ProcessGroup(NamedTuple):
    """Holds this process's rank and the number of processes; with a single one, nothing is
    communicated.
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
        distributed.all_gather(parts, values.contiguous())
        return torch.cat(parts)

    def all_reduce_mean(self, value: Tensor) -> Tensor:
        """Returns the mean over ranks, unweighted: minibatches of all ranks have the same size."""
        return value if self.size == 1 else self.all_reduce_sum(value) / self.size

    def all_reduce_sum(self, value: Tensor) -> Tensor:
        if self.size == 1:
            return value
        total = value.detach().clone()
        distributed.all_reduce(total)
        return total

    def all_gather_object(self, value: T) -> list[T]:
        """Returns the values of all ranks, which may be any objects that pickle."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        distributed.all_gather_object(values, value)
        return values

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


SINGLE_PROCESS = ProcessGroup(rank=0, size=1)
