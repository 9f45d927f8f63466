"""network, held-out rollouts -> encoded states, likelihood of innovations and evidence bound"""

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from quatrain.models.active_dynamics import losses
from quatrain.models.active_dynamics.collect import Rollouts
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.seq_vae import elbo
from quatrain.models.active_dynamics.seq_vae.encoder import Belief
from quatrain.models.active_dynamics.seq_vae.network import SeqVae
from quatrain.replay.windows import Windows

ROLLOUTS_AT_ONCE = 32


def encoded(network: SeqVae, rollouts: Rollouts) -> Belief:
    """Encodes the states that held-out transitions led to: [time, rollout, d]."""
    ended = torch.tensor(rollouts.truncated).T
    return network.encoder.encode_episodes(torch.cat(_columns(rollouts), -1), ended)


def _columns(
    rollouts: Rollouts,
) -> tuple[Float[Tensor, "time rollout obs"], Float[Tensor, "time rollout action"]]:
    observations = torch.tensor(rollouts.next_observations)
    return observations.transpose(0, 1), torch.tensor(rollouts.actions).transpose(0, 1)


def predicted_innovation_nll(
    network: SeqVae,
    belief: Belief,
    control: Float[Tensor, "batch d"],
    y: Float[Tensor, "batch obs"],
) -> Float[Tensor, " batch"]:
    """Computes -log N(y - h(x); 0, H P Hᵀ + R) per channel, one transition after the belief.

    The predicted state x has the covariance P = F diag(v) Fᵀ + s dt, where v is the belief's
    variance.
    """
    x = belief.mean[None]
    drift = network.dynamics.mean_and_features(x).value[0]
    expected = belief.mean + network.dt * (drift + control)
    step = torch.eye(x.shape[-1]) + network.dt * network.dynamics.jacobian(x)[0]
    covariance = (step * belief.variance[:, None]) @ step.mT + torch.diag(network.step_variance)
    return losses.innovation_nll(network.decoder.channels(), expected, covariance, y)


def held_out_nll(network: SeqVae, rollouts: Rollouts) -> Float[Tensor, ""]:
    """Computes the innovations' negative log likelihood per channel, a mean over transitions."""
    y, action = _columns(rollouts)
    ended = torch.tensor(rollouts.truncated).T
    starts = torch.cat([torch.ones_like(ended[:1]), ended[:-1]])[..., None]
    parts = []
    for first, encodings in zip(network.initial_belief, encoded(network, rollouts), strict=True):
        first = first.expand(1, y.shape[1], first.shape[-1])
        previous = torch.cat([first, encodings[:-1]])
        parts.append(torch.where(starts, first, previous).flatten(0, 1))
    control = (action @ network.control.T).flatten(0, 1)
    nll = predicted_innovation_nll(network, Belief(*parts), control, y.flatten(0, 1))
    return nll.mean()


def held_out_bound(
    config: ActiveDynamicsConfig, network: SeqVae, rollouts: Rollouts, seed: int
) -> Float[Tensor, ""]:
    """Computes the bound over the first episode of each rollout."""
    generator = Generator(torch.get_default_device()).manual_seed(seed)
    y, action = _columns(rollouts)
    ended = torch.tensor(rollouts.truncated).T.long()
    in_first = ((ended.cumsum(0) - ended) == 0).float()
    bounds = []
    for part in torch.arange(y.shape[1]).split(ROLLOUTS_AT_ONCE):
        windows = Windows(y[:, part], action[:, part], torch.zeros_like(part))
        scene = elbo.encode_windows(network, windows, 0)
        draws = elbo.draw(network.members, config.evaluate.elbo_samples, 1, scene, generator)
        bounds.append(elbo.evidence_bound(network, scene, draws, in_first[:, part]))
    return torch.cat(bounds).sum() / (in_first.sum() * y.shape[2])
