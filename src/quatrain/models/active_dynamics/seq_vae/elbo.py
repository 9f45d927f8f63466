"""windows of transitions -> the terms of the evidence lower bound; `losses` has the formulas

Axes: member of an ensemble, dimension, sample, time, batch. All horizons are as long as the first:
predictions beyond the window are compared with zeros and have weight 0.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor
from torch.nn.functional import pad

from quatrain.models.active_dynamics import losses
from quatrain.models.active_dynamics.seq_vae.network import SeqVae, TransitionModel
from quatrain.replay.windows import Windows


class Draws(NamedTuple):
    """Holds the random numbers of a bound, standard normal except for the mask.

    posterior: of the samples. steps: of the steps before the last one of each horizon.
    keep_mask: b, False where a sample is masked; None without masking. replacement: of the steps
    that replace masked samples, one per transition between two times; None without masking.
    """

    posterior: Float[Tensor, "member d sample time batch"]
    steps: Float[Tensor, "horizon_m1 member d sample time_m1 batch"]
    keep_mask: Bool[Tensor, "time batch"] | None = None
    replacement: Float[Tensor, "member d sample time_m1 batch"] | None = None


class EncodedWindows(NamedTuple):
    """Holds windows without their burn-in, and the encoder's beliefs as mean and variance.

    control_dt: u dt, of the transition that led to each time.
    """

    observations: Float[Tensor, "obs time batch"]
    control_dt: Float[Tensor, "d time batch"]
    mean: Float[Tensor, "d time batch"]
    variance: Float[Tensor, "d time batch"]


class ElboTerms(NamedTuple):
    """Holds the terms of each member and window.

    kl_single_steps: the KL of all single steps, unweighted and without a gradient.
    """

    ell: Float[Tensor, "member batch"]
    kl_first: Float[Tensor, " batch"]
    kl_steps: Float[Tensor, "member batch"]
    kl_single_steps: Float[Tensor, "member batch"]

    @property
    @torch.no_grad()
    def bound(self) -> Float[Tensor, "member batch"]:
        """Returns the exact bound, provided that nothing is masked."""
        return self.ell - self.kl_first - self.kl_single_steps


def draw(
    members: int, samples: int, horizons: int, encoded: EncodedWindows, generator: Generator
) -> Draws:
    """Returns the random numbers of a bound without masks."""
    d, times, batch = encoded.mean.shape
    shapes = [
        (members, d, samples, times, batch),
        (horizons - 1, members, d, samples, times - 1, batch),
    ]
    return Draws(*_standard_normal(shapes, encoded.mean, generator))


def add_mask(draws: Draws, share: float, generator: Generator) -> Draws:
    """Returns draws in which this share of the samples is masked, never a window's first."""
    *lead, times, batch = draws.posterior.shape
    device = draws.posterior.device
    keep_mask = torch.rand(times, batch, generator=generator, device=device) >= share
    keep_mask[0] = True
    shape = (*lead, times - 1, batch)
    (replacement,) = _standard_normal([shape], draws.posterior, generator)
    return draws._replace(keep_mask=keep_mask, replacement=replacement)


def _standard_normal(
    shapes: list[tuple[int, ...]], like: Tensor, generator: Generator
) -> list[Tensor]:
    counts = [math.prod(shape) for shape in shapes]
    numbers = torch.randn(sum(counts), generator=generator, device=like.device, dtype=like.dtype)
    return [part.view(shape) for part, shape in zip(numbers.split(counts), shapes, strict=True)]


def encode_windows(network: SeqVae, windows: Windows, burn_in: int) -> EncodedWindows:
    """Computes beliefs about all times after the first `burn_in`.

    The burn-in only sets the encoder's hidden state and gets no gradient.
    """
    inputs = torch.cat([windows.observations, windows.actions], 2)
    hidden = network.encoder.initial_hidden(inputs.shape[1])
    if burn_in:
        with torch.no_grad():
            hidden = network.encoder(inputs[:burn_in], hidden)[-1]
    mean, variance = network.encoder.belief_sequence(network.encoder(inputs[burn_in:], hidden))
    observations, actions = (part[burn_in:].movedim(2, 0).contiguous() for part in windows[:2])
    control_dt = (network.control * network.dt) @ actions.flatten(1)
    return EncodedWindows(observations, control_dt.view(mean.shape), mean, variance)


def compute_terms(
    network: SeqVae,
    encoded: EncodedWindows,
    draws: Draws,
    kl_weights: Float[Tensor, "horizon time_m1"],
) -> ElboTerms:
    """Computes the terms of the bound. kl_weights: of each KL, by horizon and start time."""
    model = network.transition_model()
    z = _posterior_samples(encoded, draws)
    weights = kl_weights[:, None, :, None]
    if draws.keep_mask is not None and draws.replacement is not None:
        (mean,) = rollout_means(model, z, encoded.control_dt, draws.replacement[None][:0])
        noise = model.noise(draws.replacement.flatten(2)).view(mean.shape)
        z = torch.where(draws.keep_mask, z, pad(mean + noise, (0, 0, 1, 0)))
        weights = weights * shift_by_horizon(draws.keep_mask[None].to(z.dtype), len(kl_weights))
    means = rollout_means(model, z, encoded.control_dt, draws.steps)
    divergences = step_divergences(encoded, means, model.variance)
    return ElboTerms(
        ell=network.decoder.log_prob(encoded.observations, z).mean(1).sum(1),
        kl_first=_kl_first(network, encoded),
        kl_steps=(weights * divergences).sum((0, 2)),
        kl_single_steps=divergences[0].detach().sum(1),
    )


@torch.no_grad()
def evidence_bound(
    network: SeqVae,
    encoded: EncodedWindows,
    draws: Draws,
    in_episode: Float[Tensor, "time batch"] | None = None,
) -> Float[Tensor, " batch"]:
    """Computes the exact bound in nats, as a mean over members. Ignores the mask of the draws.

    in_episode: 1 until the window's first episode ends, then 0.
    """
    model = network.transition_model()
    z = _posterior_samples(encoded, draws)
    means = rollout_means(model, z, encoded.control_dt, draws.steps[:0])
    divergences = step_divergences(encoded, means, model.variance)[0]
    ell = network.decoder.log_prob(encoded.observations, z).mean(1)
    if in_episode is not None:
        ell = ell * in_episode
        divergences = divergences * in_episode[1:]
    return (ell.sum(1) - divergences.sum(1)).mean(0) - _kl_first(network, encoded)


def _posterior_samples(
    encoded: EncodedWindows, draws: Draws
) -> Float[Tensor, "member d sample time batch"]:
    """Returns μ + √v ε."""
    return torch.addcmul(encoded.mean[:, None], encoded.variance.sqrt()[:, None], draws.posterior)


def _kl_first(network: SeqVae, encoded: EncodedWindows) -> Float[Tensor, " batch"]:
    return losses.kl(encoded.mean[:, 0].T, encoded.variance[:, 0].T, *network.initial_belief)


def rollout_means(
    model: TransitionModel,
    z: Float[Tensor, "member d sample time batch"],
    control_dt: Float[Tensor, "d time batch"],
    normal: Float[Tensor, "horizon_m1 member d sample time_m1 batch"],
) -> Float[Tensor, "horizon member d sample time_m1 batch"]:
    """Returns the means of the last of 1, 2, ... steps from each time except the last.

    The steps before the last one are drawn, with the standard normal numbers `normal`.
    """
    starts = z[..., :-1, :]
    control_by_horizon = shift_by_horizon(control_dt, len(normal) + 1)[:, :, None]
    control = control_by_horizon.expand(-1, -1, starts.shape[2], -1, -1).flatten(2).unbind(0)
    means = [model.mean(starts.flatten(2), control[0])]
    noise = model.noise(normal.flatten(3)).unbind(0)
    for step_noise, step_control in zip(noise, control[1:], strict=True):
        means.append(model.mean(means[-1] + step_noise, step_control))
    return torch.stack(means).view(-1, *starts.shape)


def step_divergences(
    encoded: EncodedWindows,
    means: Float[Tensor, "horizon member d sample time_m1 batch"],
    variance: Float[Tensor, " d"],
) -> Float[Tensor, "horizon member time_m1 batch"]:
    """Computes the KL from the belief at t + k to its prediction from t, by horizon k and t.

    Averages over samples.
    """
    predicted_variance = variance[:, None, None]
    ratio = encoded.variance / predicted_variance
    by_variance = (ratio - ratio.log() - 1).sum(0, keepdim=True)
    targets = shift_by_horizon(encoded.mean, len(means))[:, None, :, None]
    by_mean = ((targets - means).square().mean(3) / predicted_variance).sum(2)
    return 0.5 * (by_mean + shift_by_horizon(by_variance, len(means)))


def shift_by_horizon(
    values: Float[Tensor, "d time batch"], horizons: int
) -> Float[Tensor, "horizon d time_m1 batch"]:
    """Returns the values at t + k for each horizon k and time t, with zeros beyond the window.

    The result is a view of padded memory.
    """
    return pad(values, (0, 0, 0, horizons - 1))[:, 1:].unfold(1, horizons, 1).movedim(3, 0)
