"""the state of Adam for a network <-> tensors by parameter name, as a learner stores them."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import Optimizer

MOMENTS = ("exp_avg", "exp_avg_sq")


class AdamState(NamedTuple):
    """Holds the moments of each parameter; zeros before the first step, and for optimizers without
    moments.
    """

    exp_avg: dict[str, Tensor]
    exp_avg_sq: dict[str, Tensor]
    steps: Float[Tensor, ""]


def init_state(params: dict[str, Tensor]) -> AdamState:
    average, square = (
        {name: torch.zeros_like(param) for name, param in params.items()} for _ in MOMENTS
    )
    return AdamState(average, square, torch.zeros(()))


def load_state(optimizer: Optimizer, network: nn.Module, state: AdamState) -> None:
    for name, param in network.named_parameters():
        moments = {key: getattr(state, key)[name].clone() for key in MOMENTS}
        optimizer.state[param] = moments | {"step": state.steps.clone()}


def get_state(optimizer: Optimizer, network: nn.Module) -> AdamState:
    """Returns a copy of the state of the optimizer."""
    params = dict(network.named_parameters())
    states = {name: optimizer.state.get(param, {}) for name, param in params.items()}
    average, square = (
        {
            name: state.get(key, torch.zeros_like(params[name])).clone()
            for name, state in states.items()
        }
        for key in MOMENTS
    )
    return AdamState(
        average, square, next(iter(states.values())).get("step", torch.zeros(())).clone()
    )
