"""stacked observations -> actions, a batch -> a gradient step, the slow way: eager PyTorch

Written from the descriptions of the original program, with all the work that it wastes: every act
draws its own quantiles, the next states pass through the online network with a graph that nobody
uses, and the backward pass runs through the target network. The loss is the mean over the online
quantiles, where the paper and the project have the sum: 1/Q of it, clipped at 1.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from quatrain.models.iqn.config import IqnConfig, Network

SIGMA = 0.017
ACTIONS = 4


class Batch(NamedTuple):
    """Holds NumPy arrays: stacks (batch, inputs), the rest (batch,); no transition ends a world."""

    stack: Any
    action: Any
    reward: Any
    next_stack: Any


class NoisyLinear(nn.Linear):
    """Computes x W + b with W = mu + sigma * epsilon, drawn in every forward pass of training."""

    def __init__(self, inputs: int, outputs: int, generator: torch.Generator) -> None:
        super().__init__(inputs, outputs)
        self.generator, bound = generator, (3 / inputs) ** 0.5
        for param in (self.weight, self.bias):
            nn.init.uniform_(param, -bound, bound, generator)
        self.weight_sigma = nn.Parameter(torch.full_like(self.weight, SIGMA))
        self.bias_sigma = nn.Parameter(torch.full_like(self.bias, SIGMA))

    def forward(self, values: Tensor) -> Tensor:
        if not self.training:
            return functional.linear(values, self.weight, self.bias)
        weight_epsilon = torch.randn(self.weight.shape, generator=self.generator)
        bias_epsilon = torch.randn(self.bias.shape, generator=self.generator)
        weight = self.weight + self.weight_sigma * weight_epsilon
        return functional.linear(values, weight, self.bias + self.bias_sigma * bias_epsilon)


class Iqn(nn.Module):
    """Computes Z of every action."""

    def __init__(self, inputs: int, config: Network, generator: torch.Generator) -> None:
        super().__init__()
        hidden, cosines = config.hidden, config.cosines
        noisy = partial(NoisyLinear, generator=generator)
        layer = noisy if config.noisy == "independent" else nn.Linear
        self.hidden = nn.Linear(inputs, hidden)
        self.cosine = nn.Linear(cosines, hidden)
        self.feature = layer(hidden, hidden)
        self.advantage = layer(hidden, ACTIONS)
        self.value = layer(hidden, 1)
        self.frequencies = torch.pi * torch.arange(1, cosines + 1, dtype=torch.float32)

    def forward(self, stack: Tensor, taus: Tensor) -> Tensor:
        """Computes values: (batch, inputs), (batch, quantiles) -> (batch, quantiles, actions)."""
        batch, quantiles = taus.shape
        hidden = torch.relu(self.hidden(stack))
        cosine = torch.relu(self.cosine(torch.cos(taus.reshape(-1, 1) * self.frequencies)))
        product = hidden.unsqueeze(1) * cosine.view(batch, quantiles, -1)
        feature = torch.relu(self.feature(product.view(batch * quantiles, -1)))
        advantage = self.advantage(feature)
        values = self.value(feature) + advantage - advantage.mean(1, keepdim=True)
        return values.view(batch, quantiles, ACTIONS)


class Agent:
    """Holds an agent's two networks and optimiser; `act` and `learn` change it."""

    def __init__(self, config: IqnConfig, generator: torch.Generator) -> None:
        self.config, self.generator = config.train, generator
        network = config.inputs, config.network, generator
        self.online, self.target = Iqn(*network), Iqn(*network)
        self.target.load_state_dict(self.online.state_dict())
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=self.config.learning_rate)

    def act(self, stack: np.ndarray) -> int:
        """Returns the greedy action of a stack (1, inputs), by random quantiles, without noise."""
        observed = torch.from_numpy(stack).float()
        self.online.eval()
        with torch.no_grad():
            values = self.online(observed, self._draw(1, self.config.acting.quantiles)).mean(1)
        self.online.train()
        return int(torch.argmax(values, dim=1)[0].item())

    def learn(self, batch: Batch) -> float:
        """Takes one gradient step; returns its loss."""
        self.optimizer.zero_grad()
        size, quantiles = len(batch.action), self.config.loss.quantiles
        taus = [self._draw(size, quantiles) for _ in range(3)]
        loss = loss_of(self.online, self.target, batch, taus, self.config.loss.discount)
        loss.backward()
        # The project's loss is the sum over quantiles.
        limit = self.config.max_grad_norm / quantiles
        nn.utils.clip_grad_norm_(self.online.parameters(), limit)
        self.optimizer.step()
        rate = self.config.target.rate
        for kept, new in zip(self.target.parameters(), self.online.parameters(), strict=True):
            kept.data.copy_(rate * new.data + (1 - rate) * kept.data)
        return float(loss.item())

    def _draw(self, batch: int, quantiles: int) -> Tensor:
        return torch.rand(batch, quantiles, generator=self.generator)


def loss_of(
    online: Iqn, target: Iqn, batch: Batch, taus: Sequence[Tensor], discount: float
) -> Tensor:
    """Computes the quantile Huber loss, averaged over samples and both kinds of quantiles.

    taus: (batch, quantiles) each, to select the next action, of the target, and of the online
    network.
    """
    tensors = Batch(*(torch.from_numpy(column).float() for column in batch))
    stack, action, reward, next_stack = tensors._replace(action=tensors.action.long())
    select_taus, target_taus, online_taus = taus
    best = online(next_stack, select_taus).mean(1).argmax(1)
    next_values = of_action(target(next_stack, target_taus), best)
    expected = reward[:, None] + discount * next_values
    errors = expected[:, None, :] - of_action(online(stack, online_taus), action)[:, :, None]
    return quantile_huber(errors, online_taus)


def of_action(values: Tensor, action: Tensor) -> Tensor:
    """Selects values: (batch, quantiles, actions), (batch,) -> (batch, quantiles)."""
    selected = action[:, None, None].expand(-1, values.shape[1], 1)
    return values.gather(2, selected).squeeze(2)


def quantile_huber(errors: Tensor, taus: Tensor) -> Tensor:
    """Computes the mean of |tau - 1{u < 0}| H_1(u) over errors (batch, online, target)."""
    size = errors.abs()
    huber = torch.where(size <= 1, 0.5 * errors.pow(2), size - 0.5)
    below = (errors.detach() < 0).float()
    return ((taus[:, :, None] - below).abs() * huber).mean()
