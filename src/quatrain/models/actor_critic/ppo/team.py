"""processes that share the colonies of one learner -> sums over all of them; of a single process nothing is asked."""

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, distributed

T = TypeVar("T")


class Team(NamedTuple):
    """Which of how many processes this is."""

    rank: int
    size: int

    def gathered(self, values: Float[Tensor, "own *axes"]) -> Float[Tensor, "all *axes"]:
        """Those of all ranks, in their order; each has as many."""
        if self.size == 1:
            return values
        parts = [torch.empty_like(values) for _ in range(self.size)]
        distributed.all_gather(parts, values.contiguous())
        return torch.cat(parts)

    def averaged(self, value: Tensor) -> Tensor:
        """The mean over ranks; each counts as much, for minibatches of all ranks have the same size."""
        return value if self.size == 1 else self.summed(value) / self.size

    def summed(self, value: Tensor) -> Tensor:
        """The sum over ranks."""
        if self.size == 1:
            return value
        found = value.detach().clone()
        distributed.all_reduce(found)
        return found

    def told(self, value: T) -> list[T]:
        """What each rank has to tell."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        distributed.all_gather_object(values, value)
        return values

    def average_gradients(self, params: Iterable[Tensor]) -> None:
        """As if one process had seen the minibatches of all."""
        if self.size == 1:
            return
        gradients = [param.grad for param in params if param.grad is not None]
        flat = self.averaged(torch.cat([gradient.flatten() for gradient in gradients]))
        for gradient, mean in zip(
            gradients, flat.split([one.numel() for one in gradients]), strict=True
        ):
            gradient.copy_(mean.view_as(gradient))


ALONE = Team(0, 1)
