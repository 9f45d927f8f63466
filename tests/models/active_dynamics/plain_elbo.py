"""The evidence bound in plain loops over members, samples, horizons and times, by window."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Normal, Poisson, kl_divergence
from torch.nn.functional import softplus

from quatrain.models.active_dynamics.seq_vae import elbo
from quatrain.models.active_dynamics.seq_vae.elbo import Draws, EncodedWindows
from quatrain.models.active_dynamics.seq_vae.network import SeqVae
from quatrain.replay.windows import Windows


class Case(NamedTuple):
    """Holds a network, a batch with its burn-in, and the random numbers of a bound."""

    network: SeqVae
    windows: Windows
    draws: Draws
    burn_in: int

    @property
    def encoded(self) -> EncodedWindows:
        """Returns the batch as the project encodes it."""
        return elbo.encode_windows(self.network, self.windows, self.burn_in)


def variance_of(raw: Tensor) -> Tensor:
    return softplus(raw) + 1e-6


def through(weights: list[Tensor], biases: list[Tensor], x: Tensor) -> Tensor:
    """Applies layers with tanh between them."""
    for weight, bias in list(zip(weights, biases, strict=True))[:-1]:
        x = torch.tanh(weight @ x + bias[:, 0])
    return weights[-1] @ x + biases[-1][:, 0]


def beliefs(
    network: SeqVae, observations: Tensor, actions: Tensor, burn_in: int
) -> list[tuple[Tensor, Tensor]]:
    """Returns mean and variance of each time after the burn-in."""
    encoder, heads = network.encoder, network.encoder.heads
    hidden, result = encoder.initial_hidden(1), []
    for time, entry in enumerate(torch.cat([observations, actions], 1)):
        hidden = encoder.cell(entry[None], hidden)
        if time < burn_in:
            hidden = hidden.detach()
            continue
        mean, raw = (
            through([w[i] for w in heads.weights], [b[i] for b in heads.biases], hidden[0])
            for i in (0, 1)
        )
        result.append((mean, variance_of(raw)))
    return result


def field(network: SeqVae, member: int, x: Tensor) -> Tensor:
    dynamics = network.dynamics
    if dynamics.rbf is not None:
        centres = torch.cartesian_prod(*[dynamics.rbf.axis] * len(x))
        squares = (x - centres).square().sum(1)
        return dynamics.weight[0] @ torch.exp(-squares / (2 * dynamics.rbf.length**2))
    layers = dynamics.layers
    return through([w[member] for w in layers.weights], [b[member] for b in layers.biases], x)


def log_prob(network: SeqVae, y: Tensor, x: Tensor) -> Tensor:
    channels = network.decoder.channels()
    if network.decoder.noise == "poisson":
        return Poisson(channels.mean(x)).log_prob(y).sum()
    return Normal(channels.mean(x), channels.variance(x).sqrt()).log_prob(y).sum()


def kl(mean_q: Tensor, variance_q: Tensor, mean_p: Tensor, variance_p: Tensor) -> Tensor:
    return kl_divergence(Normal(mean_q, variance_q.sqrt()), Normal(mean_p, variance_p.sqrt())).sum()


def plain_terms(case: Case, weights: list[float], window: int) -> tuple[Tensor, Tensor, Tensor]:
    """Computes ell, kl_first and kl_steps of one window. weights: of horizons."""
    network, windows, draws, burn_in = case
    y, actions = (part[:, window] for part in windows[:2])
    mean, variance = zip(*beliefs(network, y, actions, burn_in), strict=True)
    y, pushes = y[burn_in:], actions[burn_in:] @ network.control.T * network.dt
    noise, times = variance_of(network.raw_noise) * network.dt, len(y)
    members, _, samples = draws.posterior.shape[:3]
    ell, kl_steps = [torch.zeros(members, dtype=y.dtype) for _ in range(2)]

    def after(member: int, x: Tensor, time: int) -> Tensor:
        """Returns the mean of the step that leads to a time."""
        return x + field(network, member, x) * network.dt + pushes[time]

    for m in range(members):
        for s in range(samples):
            z = [
                mean[t] + variance[t].sqrt() * draws.posterior[m, :, s, t, window]
                for t in range(times)
            ]
            starts = list(z)
            for t in range(1, times):
                if draws.keep_mask is not None and not draws.keep_mask[t, window]:
                    starts[t] = (
                        after(m, z[t - 1], t)
                        + noise.sqrt() * draws.replacement[m, :, s, t - 1, window]
                    )
            ell[m] += sum(log_prob(network, y[t], starts[t]) for t in range(times)) / samples
            for k, weight in enumerate(weights, start=1):
                for t in range(times - k):
                    state = starts[t]
                    for j in range(1, k):
                        state = (
                            after(m, state, t + j)
                            + noise.sqrt() * draws.steps[j - 1, m, :, s, t, window]
                        )
                    if draws.keep_mask is None or draws.keep_mask[t + k, window]:
                        result = kl(mean[t + k], variance[t + k], after(m, state, t + k), noise)
                        kl_steps[m] += weight * result / samples
    first = kl(mean[0], variance[0], network.first_mean, variance_of(network.raw_first_variance))
    return ell, first, kl_steps
