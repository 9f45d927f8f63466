"""what is saved of learners, whatever their environments"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from quatrain.frameworks.torch import adam_state
from quatrain.models.actor_critic.network import Network

# The return of weights before their first evaluation: below any other, and finite as files need it.
NOT_EVALUATED = torch.finfo(torch.float32).min


class Best(NamedTuple):
    """Holds the weights of highest return in a periodic evaluation, with which the policy is
    evaluated and served; without such evaluations the last weights.

    validation_success: None where episodes have no success.
    """

    params: dict[str, Tensor]
    validation_return: Float[Tensor, ""]
    validation_success: Float[Tensor, ""] | None
    iteration: Int64[Tensor, ""]

    @property
    def was_validated(self) -> bool:
        return float(self.validation_return) > NOT_EVALUATED


class SeedState(NamedTuple):
    """Holds everything that changes in one seed's learner, and the scale of observations that its
    weights expect, if there is one.

    envs: what changes beside the network: running episodes and generators.
    """

    params: dict[str, Tensor]
    best: Best
    scale: Any
    optimizer: adam_state.AdamState
    envs: Any
    iterations: Int64[Tensor, ""]
    updates: Int64[Tensor, ""]


class State(NamedTuple):
    """Holds everything that changes while learning: each field has one part per seed."""

    params: tuple[dict[str, Tensor], ...]
    best: tuple[Best, ...]
    scale: tuple[Any, ...]
    optimizer: tuple[adam_state.AdamState, ...]
    envs: tuple[Any, ...]
    iterations: tuple[Tensor, ...]
    updates: tuple[Tensor, ...]

    @classmethod
    def from_seeds(cls, seeds: Sequence[SeedState]) -> "State":
        return cls(*zip(*seeds, strict=True))

    @property
    def seeds(self) -> list[SeedState]:
        return [SeedState(*parts) for parts in zip(*self, strict=True)]


def first_state(network: Network, success: float | None, scale: Any, envs: Any) -> SeedState:
    """Returns a state before the first iteration.

    success: before the first evaluation; None where episodes have none.
    """
    params = dict(network.state_dict())
    learnt = {name: params[name] for name, _ in network.named_parameters()}
    return SeedState(
        params=params,
        best=Best(
            params=params,
            validation_return=torch.tensor(NOT_EVALUATED),
            validation_success=None if success is None else torch.tensor(success),
            iteration=torch.tensor(0),
        ),
        scale=scale,
        optimizer=adam_state.init_state(learnt),
        envs=envs,
        iterations=torch.tensor(0),
        updates=torch.tensor(0),
    )
