"""windows of transitions -> the terms of the evidence bound; the formulas stand in `losses`

Axes: member of an ensemble, dimension, sample, time, batch. All horizons have the length of the first: what they
predict beyond the window is compared with zeros, and does not count.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor
from torch.nn.functional import pad

from quatrain.models.active_dynamics import losses
from quatrain.models.active_dynamics.seq_vae.dynamics import Law
from quatrain.models.active_dynamics.seq_vae.network import SeqVae
from quatrain.replay.windows import Windows


class Draws(NamedTuple):
    """The random numbers of a bound, standard normal but for `kept`: b, and None where no sample is masked.

    replaced: of the steps that take the place of masked samples, as many as transitions between times.
    """

    posterior: Float[Tensor, "member d sample time batch"]
    steps: Float[Tensor, "horizon_m1 member d sample time_m1 batch"]
    kept: Bool[Tensor, "time batch"] | None
    replaced: Float[Tensor, "member d sample time_m1 batch"] | None


class Scene(NamedTuple):
    """What is scored: a window without its burn-in. pushes: u dt, of the transition that led to each time.

    mean, variance: of the encoder's beliefs.
    """

    observations: Float[Tensor, "obs time batch"]
    pushes: Float[Tensor, "d time batch"]
    mean: Float[Tensor, "d time batch"]
    variance: Float[Tensor, "d time batch"]


class Scored(NamedTuple):
    """Terms of each member and window. kl_one: the KL of single steps, not weighed, without a gradient."""

    ell: Float[Tensor, "member batch"]
    kl_first: Float[Tensor, " batch"]
    kl_steps: Float[Tensor, "member batch"]
    kl_one: Float[Tensor, "member batch"]

    @property
    def bound(self) -> Float[Tensor, "member batch"]:
        """The exact one, if nothing is masked."""
        return self.ell - self.kl_first - self.kl_one


def draw(members: int, samples: int, horizons: int, scene: Scene, generator: Generator) -> Draws:
    """Without masks."""
    d, times, batch = scene.mean.shape
    posterior, steps = _normal(
        [
            (members, d, samples, times, batch),
            (horizons - 1, members, d, samples, times - 1, batch),
        ],
        scene.mean,
        generator,
    )
    return Draws(posterior, steps, None, None)


def masked(draws: Draws, share: float, generator: Generator) -> Draws:
    """With this share of the samples masked, but never a window's first."""
    members, d, samples, times, batch = draws.posterior.shape
    kept = torch.rand(times, batch, generator=generator, device=draws.posterior.device) >= share
    kept[0] = True
    (replaced,) = _normal([(members, d, samples, times - 1, batch)], draws.posterior, generator)
    return draws._replace(kept=kept, replaced=replaced)


def _normal(shapes: list[tuple[int, ...]], like: Tensor, generator: Generator) -> list[Tensor]:
    """In one draw."""
    counts = [math.prod(shape) for shape in shapes]
    drawn = torch.randn(sum(counts), generator=generator, device=like.device, dtype=like.dtype)
    return [part.view(shape) for part, shape in zip(drawn.split(counts), shapes, strict=True)]


def encode(network: SeqVae, windows: Windows, burn_in: int) -> Scene:
    """Beliefs about all times but the first `burn_in`, which only set the encoder's state."""
    inputs = torch.cat([windows.observations, windows.actions], 2)
    hidden = network.encoder.first(inputs.shape[1])
    if burn_in:
        with torch.no_grad():
            hidden = network.encoder(inputs[:burn_in], hidden)[-1]
    track = network.encoder.over_time(network.encoder(inputs[burn_in:], hidden))
    observations, actions = (part[burn_in:].movedim(2, 0).contiguous() for part in windows[:2])
    pushes = (network.control * network.dt) @ actions.flatten(1)
    return Scene(observations, pushes.view(track.mean.shape), *track)


def score(
    network: SeqVae, scene: Scene, draws: Draws, counted: Float[Tensor, "horizon time_m1"]
) -> Scored:
    """The terms. counted: how much each KL does, by horizon and time it starts from."""
    law, first = network.law(), network.first
    z = torch.addcmul(scene.mean[:, None], scene.variance.sqrt()[:, None], draws.posterior)
    weights = counted[:, None, :, None]
    if draws.kept is not None and draws.replaced is not None:
        z = torch.where(draws.kept, z, predicted(law, z, scene.pushes, draws.replaced))
        weights = weights * ahead(draws.kept[None].to(z.dtype), len(counted))
    divergence = divergences(scene, rolled(law, z, scene.pushes, draws.steps), law.variance)
    return Scored(
        ell=network.decoder.log_prob(scene.observations, z).mean(1).sum(1),
        kl_first=losses.kl(scene.mean[:, 0].T, scene.variance[:, 0].T, *first),
        kl_steps=(weights * divergence).sum((0, 2)),
        kl_one=divergence[0].detach().sum(1),
    )


def rolled(
    law: Law,
    z: Float[Tensor, "member d sample time batch"],
    pushes: Float[Tensor, "d time batch"],
    normal: Float[Tensor, "horizon_m1 member d sample time_m1 batch"],
) -> Float[Tensor, "horizon member d sample time_m1 batch"]:
    """Means of the last of 1, 2, ... steps from each time but the last, the steps before it drawn."""
    starts, horizons = z[..., :-1, :], len(normal) + 1
    samples = starts.shape[2]
    of_steps = (
        ahead(pushes, horizons)[:, :, None].expand(-1, -1, samples, -1, -1).flatten(2).unbind(0)
    )
    noise = law.noise(normal.flatten(3)).unbind(0)
    state, means = starts.flatten(2), list[Tensor]()
    for k in range(horizons):
        means.append(law.mean(state, of_steps[k]))
        if k + 1 < horizons:
            state = means[-1] + noise[k]
    return torch.stack(means).view(horizons, *starts.shape)


def predicted(
    law: Law,
    z: Float[Tensor, "member d sample time batch"],
    pushes: Float[Tensor, "d time batch"],
    normal: Float[Tensor, "member d sample time_m1 batch"],
) -> Float[Tensor, "member d sample time batch"]:
    """A step drawn from each time before; zeros at the first."""
    (mean,) = rolled(law, z, pushes, normal[None][:0])
    return pad(mean + law.noise(normal.flatten(2)).view(mean.shape), (0, 0, 1, 0))


def divergences(
    scene: Scene,
    means: Float[Tensor, "horizon member d sample time_m1 batch"],
    variance: Float[Tensor, " d"],
) -> Float[Tensor, "horizon member time_m1 batch"]:
    """KL from the belief at t + k to what is predicted for it from t, by horizon k and t; means over samples."""
    horizons, by_dimension = len(means), variance[:, None, None]
    ratio = scene.variance / by_dimension
    spreads = (ratio - ratio.log() - 1).sum(0, keepdim=True)
    targets = ahead(scene.mean, horizons)[:, None, :, None]
    squares = ((targets - means).square().mean(3) / by_dimension).sum(2)
    return 0.5 * (squares + ahead(spreads, horizons))


def ahead(
    values: Float[Tensor, "d time batch"], horizons: int
) -> Float[Tensor, "horizon d time_m1 batch"]:
    """Of each horizon k and time t what stands at t + k, or zeros beyond the window; a view of padded memory."""
    return pad(values, (0, 0, 0, horizons - 1))[:, 1:].unfold(1, horizons, 1).movedim(3, 0)


@torch.no_grad()
def evidence_bound(
    network: SeqVae, scene: Scene, draws: Draws, lasts: Float[Tensor, "time batch"] | None = None
) -> Float[Tensor, " batch"]:
    """The exact bound, nats, whatever the draws mask; mean over members. lasts: 1, and 0 once an episode has ended."""
    law, first = network.law(), network.first
    z = torch.addcmul(scene.mean[:, None], scene.variance.sqrt()[:, None], draws.posterior)
    divergence = divergences(scene, rolled(law, z, scene.pushes, draws.steps[:0]), law.variance)[0]
    ell = network.decoder.log_prob(scene.observations, z).mean(1)
    if lasts is not None:
        ell, divergence = ell * lasts, divergence * lasts[1:]
    return (ell.sum(1) - divergence.sum(1)).mean(0) - losses.kl(
        scene.mean[:, 0].T, scene.variance[:, 0].T, *first
    )
