"""what Adam knows of the parameters of a network <-> tensors by name, as a learner keeps them."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import Optimizer

KINDS = ("exp_avg", "exp_avg_sq")


class AdamState(NamedTuple):
    """Adam's, of each parameter; zeros before its first step, and of optimisers that keep none."""

    exp_avg: dict[str, Tensor]
    exp_avg_sq: dict[str, Tensor]
    steps: Float[Tensor, ""]


def init_state(params: dict[str, Tensor]) -> AdamState:
    """Before the first step."""
    average, square = (
        {name: torch.zeros_like(param) for name, param in params.items()} for _ in KINDS
    )
    return AdamState(average, square, torch.zeros(()))


def load_state(optimizer: Optimizer, network: nn.Module, moments: AdamState) -> None:
    """Adam goes on from there; of the moments nothing is changed."""
    for name, param in network.named_parameters():
        own = {kind: getattr(moments, kind)[name].clone() for kind in KINDS}
        optimizer.state[param] = own | {"step": moments.steps.clone()}


def get_state(optimizer: Optimizer, network: nn.Module) -> AdamState:
    """As they are now, in tensors that stay so."""
    named = dict(network.named_parameters())
    state = {name: optimizer.state.get(param, {}) for name, param in named.items()}
    average, square = (
        {
            name: one[kind].clone() if kind in one else torch.zeros_like(named[name])
            for name, one in state.items()
        }
        for kind in KINDS
    )
    steps = next(iter(state.values())).get("step", torch.zeros(()))
    return AdamState(average, square, steps.clone())
