"""The original's sequential VAE, with network and loss of the project in their plainest form.

Each step of an agent encodes a window of observations anew; each training step creates a loader and
an optimiser, and scores horizons one after another.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

LEAST_VARIANCE = 1e-6


class Shape(NamedTuple):
    """Holds sizes of the network. centres: of RBFs on each axis; 0 for an MLP."""

    obs: int
    action: int
    d: int
    hidden: int
    head: int
    dynamics_hidden: int = 64
    centres: int = 0
    span: float = 2.0
    length: float = 0.6
    dt: float = 0.1


class Gaussian(NamedTuple):
    """Holds mean and variance of each time."""

    mean: Tensor
    variance: Tensor


class Window(NamedTuple):
    """Holds consecutive transitions [window, time, ...]: action t leads to observation t."""

    observations: Tensor
    actions: Tensor


class Encoder(nn.Module):
    """Maps observations and the actions that led to them to beliefs about each state."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gru = nn.GRU(shape.obs + shape.action, shape.hidden, batch_first=True)
        heads = (_mlp(shape.hidden, shape.head, shape.d) for _ in range(2))
        self.mean, self.raw_variance = heads

    def forward(self, window: Window) -> Gaussian:
        result, _ = self.gru(torch.cat(window, -1))
        return Gaussian(self.mean(result), Model.variance(self.raw_variance(result)))


class Rbf(nn.Module):
    """Maps states to velocities by RBFs; computes the distances to all centres in each call."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        axis = torch.linspace(-shape.span, shape.span, shape.centres)
        self.register_buffer("centres", torch.cartesian_prod(*[axis] * shape.d))
        self.length = shape.length
        self.weight = nn.Parameter(torch.zeros(shape.d, shape.centres**shape.d))

    def forward(self, x: Tensor) -> Tensor:
        squared = (x[..., None, :] - self.centres).square().sum(-1)
        return torch.exp(-squared / (2 * self.length**2)) @ self.weight.T


class Model(nn.Module):
    """Holds encoder, dynamics, linear decoder, their variances, and the first state's belief."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.encoder = Encoder(shape)
        mlp = _mlp(shape.d, shape.dynamics_hidden, shape.d)
        self.field = Rbf(shape) if shape.centres else mlp
        self.raw_noise = nn.Parameter(torch.full((shape.d,), -3.0))
        self.decoder = nn.Linear(shape.d, shape.obs)
        self.raw_observation_variance = nn.Parameter(torch.zeros(shape.obs))
        self.first_mean = nn.Parameter(torch.zeros(shape.d))
        self.raw_first_variance = nn.Parameter(torch.zeros(shape.d))

    def predicted(self, x: Tensor, u: Tensor) -> Gaussian:
        """Predicts the next state."""
        return Gaussian(x + (self.field(x) + u) * self.shape.dt, self.step_variance)

    @property
    def step_variance(self) -> Tensor:
        return self.variance(self.raw_noise) * self.shape.dt

    @staticmethod
    def variance(raw: Tensor) -> Tensor:
        return nn.functional.softplus(raw) + LEAST_VARIANCE


def _mlp(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, outputs))


# Acting: transitions are stored as dictionaries.

Transition = Mapping[str, Any]
"""Tensors by name, and other values of a transition."""


class RecentRollout:
    """Stores the latest transitions in a tensor per name; each new one shifts the whole tensor."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.data: dict[str, Any] = {}

    def add(self, transition: Transition) -> None:
        for name, value in transition.items():
            if not isinstance(value, Tensor):
                self.data[name] = value
            elif name not in self.data:
                self.data[name] = detached(value)[None].clone()
            elif len(self.data[name]) < self.length:
                self.data[name] = torch.cat([self.data[name], detached(value)[None]])
            else:
                self.data[name] = torch.roll(self.data[name], -1, 0)
                self.data[name][-1] = detached(value)

    def copy(self) -> "RecentRollout":
        """Clones all tensors, then detaches them."""
        copied = type(self)(self.length)
        for name, value in self.data.items():
            copied.data[name] = value.clone().detach() if isinstance(value, Tensor) else value
        return copied


def detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


class Agent:
    """Keeps a window of transitions, encodes it in each step, and predicts the next state."""

    def __init__(
        self,
        encode: Callable[[Window], Gaussian],
        predict: Callable[[Tensor, Tensor], Gaussian],
        recent: RecentRollout,
    ) -> None:
        self.encode, self.predict, self.recent = encode, predict, recent
        self.belief: Tensor | None = None

    @torch.no_grad()
    def step(self, observation: Tensor, action: Tensor) -> Tensor:
        """Adds an action and the observation it led to; returns the mean of the belief."""
        self.recent.add({"observation": observation, "action": action, "reward": torch.zeros(())})
        predicted = None if self.belief is None else self.predict(self.belief, action).mean
        self.belief = self.believed(predicted)
        return self.belief

    def believed(self, predicted: Tensor | None) -> Tensor:  # noqa: ARG002  the seed's believes it
        recent = self.recent.copy().data
        return self.encode(Window(recent["observation"][None], recent["action"][None])).mean[0, -1]


# Learning.


class Settings(NamedTuple):
    """Holds settings of a gradient step."""

    samples: int = 5
    horizons: int = 5
    decay: float = 0.8
    beta: float = 1.0
    learning_rate: float = 3e-3
    max_grad_norm: float = 10.0


class Terms(NamedTuple):
    """Holds the loss terms: means over windows, sums over time."""

    ell: Tensor
    kl_first: Tensor
    kl_steps: Tensor


Draw = Callable[..., Tensor]
"""Draws standard normal numbers of a shape."""


def kl(q: Gaussian, p: Gaussian) -> Tensor:
    """Computes the KL of diagonal Gaussians, summed over dimensions."""
    ratio = q.variance / p.variance
    each = -ratio.log() + (q.mean - p.mean).square() / p.variance + ratio - 1
    return 0.5 * each.sum(-1)


def horizon_weights(count: int, decay: float) -> Tensor:
    """Returns normalised weights, computed from Python numbers in each call."""
    weights = torch.tensor([decay**k for k in range(count)])
    return weights / weights.sum()


def terms(
    model: Model, window: Window, settings: Settings, draw: Draw, weights: Tensor | None = None
) -> Terms:
    """Computes the terms, one horizon after another, each with one transition fewer."""
    q = model.encoder(window)
    z = q.mean + q.variance.sqrt() * draw(settings.samples, *q.mean.shape)
    mean, variance = model.decoder(z), model.variance(model.raw_observation_variance)
    error = (window.observations - mean).square() / variance
    ell = -0.5 * (error + variance.log() + math.log(2 * math.pi)).sum((-2, -1)).mean()
    first = Gaussian(model.first_mean, model.variance(model.raw_first_variance))
    kl_first = kl(Gaussian(q.mean[:, 0], q.variance[:, 0]), first).mean()
    weights = horizon_weights(settings.horizons, settings.decay) if weights is None else weights
    kl_steps = torch.zeros(())
    for horizon, weight in enumerate(weights[: z.shape[-2] - 1], 1):
        predicted = model.predicted(z[..., :-1, :], window.actions[:, horizon:])
        divergence = kl(Gaussian(q.mean[:, horizon:], q.variance[:, horizon:]), predicted)
        kl_steps = kl_steps + weight * divergence.sum(-1).mean()
        if horizon < len(weights):
            z = predicted.mean + predicted.variance.sqrt() * draw(*predicted.mean.shape)
    return Terms(ell, kl_first, kl_steps)


def loss(result: Terms, settings: Settings, times: int) -> Tensor:
    return -(result.ell - settings.beta * (result.kl_first + result.kl_steps)) / times


def train_step(model: Model, window: Window, settings: Settings, draw: Draw) -> dict[str, float]:
    """Takes a step on one window. Each step has a new loader and a new Adam without moments."""
    optimiser = torch.optim.Adam(model.parameters(), lr=settings.learning_rate)
    reported: dict[str, float] = {}
    for each in DataLoader(TensorDataset(*window), batch_size=1, shuffle=True):
        result = terms(model, Window(*each), settings, draw)
        total = loss(result, settings, window.actions.shape[1])
        optimiser.zero_grad()
        total.backward()
        nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
        optimiser.step()
        reported = {name: term.item() for name, term in result._asdict().items()}
        reported["loss"] = total.item()
    return reported
