"""networks of all rows at work: what they make of a transition, what a planner sees of them, what they know."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor

from quatrain.envs.vector_field.fields import region_grid
from quatrain.envs.vector_field.observation import Emission
from quatrain.models.active_dynamics import losses
from quatrain.models.active_dynamics.collect import Dataset, HeldOut, Rollouts, emission_of
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.decoder_identification import aligned
from quatrain.models.active_dynamics.learner import Gauge, Moments, Seen, Weights
from quatrain.models.active_dynamics.seq_vae import elbo, planning, trainer
from quatrain.models.active_dynamics.seq_vae.encoder import Belief
from quatrain.models.active_dynamics.seq_vae.network import SeqVae
from quatrain.models.active_dynamics.seq_vae.planning import learner_fields
from quatrain.models.active_dynamics.seq_vae.trainer import SeqVaeState, SeqVaeTrainer
from quatrain.models.active_dynamics.surrogate import Surrogate
from quatrain.replay.windows import WindowRing, Windows

NOTED = (*losses.ELBO_TERMS, "elbo_exact", "beta", "grad_norm", "loss")
ROLLOUTS_AT_ONCE = 32


@dataclass
class VaeRows:
    """Rows at work; `observe` and `improve` change the trainers in place."""

    config: ActiveDynamicsConfig
    emission: Emission
    trainers: list[SeqVaeTrainer]
    noted: dict[str, Float[Tensor, " row"]]
    region: Float[Tensor, "point d"]

    REMEDY = "lower active_dynamics.train.seq_vae.learning_rate or max_grad_norm"

    @classmethod
    def fresh(
        cls, config: ActiveDynamicsConfig, dataset: Dataset, seed: np.random.SeedSequence
    ) -> "VaeRows":
        """Untrained; the rows of a replicate begin alike in all arms."""
        emission = emission_of(config, dataset)
        seeds = [int(number) for number in seed.generate_state(config.seeds)] * len(
            config.train.arms
        )
        rows = [trainer.init_state(config, emission, own) for own in seeds]
        return cls._at_work(
            config, emission, rows, {name: torch.zeros(config.rows) for name in NOTED}
        )

    @classmethod
    def restored(cls, config: ActiveDynamicsConfig, dataset: Dataset, saved: Any) -> "VaeRows":
        """Where a learner was; of it nothing is changed."""
        rows = [
            own._replace(params=params)
            for params, own in zip(saved.params, saved.further[0], strict=True)
        ]
        return cls._at_work(config, emission_of(config, dataset), rows, dict(saved.further[1]))

    @classmethod
    def _at_work(
        cls,
        config: ActiveDynamicsConfig,
        emission: Emission,
        rows: Sequence[SeqVaeState],
        noted: dict[str, Tensor],
    ) -> "VaeRows":
        region = region_grid(config.env.region_radius, config.env.d)
        return cls(
            config,
            emission,
            [SeqVaeTrainer.from_state(config, emission, row) for row in rows],
            noted,
            region,
        )

    @property
    def networks(self) -> list[SeqVae]:
        return [worker.network for worker in self.trainers]

    @property
    def weights(self) -> Weights:
        """What a checkpoint keeps."""
        named = [dict(network.named_parameters()) for network in self.networks]
        return {name: torch.stack([own[name].detach() for own in named]) for name in named[0]}

    def state(self) -> dict[str, Any]:
        """Parts of a learner."""
        rows = [worker.to_state() for worker in self.trainers]
        others = tuple(row._replace(params={}) for row in rows)
        return {
            "params": tuple(row.params for row in rows),
            "decoder": None,
            "further": (others, dict(self.noted)),
        }

    @torch.no_grad()
    def observe(self, seen: Seen) -> Float[Tensor, " row"]:
        """Encode. Returns the innovation's negative log likelihood per channel, of what was predicted before."""
        told = []
        for row, worker in enumerate(self.trainers):
            before = Belief(*(part[None] for part in worker.belief))
            told.append(
                innovation(
                    worker.network, before, seen.control[row, None], seen.observation[row, None]
                )[0]
            )
            worker.observe(seen.observation[row], seen.action[row])
            worker.restart(seen.truncated[row])
        return torch.stack(told)

    def improve(self, replay: WindowRing) -> None:
        """Gradient steps, once there are enough windows."""
        found = [worker.learn(replay, row) for row, worker in enumerate(self.trainers)]
        for name in NOTED:
            latest = [
                own.get(name, old)
                for own, old in zip(found, self.noted[name].unbind(0), strict=True)
            ]
            self.noted[name] = torch.stack(
                [torch.as_tensor(value).detach().float() for value in latest]
            )

    @property
    def told(self) -> dict[str, Float[Tensor, " row"]]:
        """Of the last gradient step; 0 before the first."""
        return dict(self.noted)

    def surrogate(self, rows: slice) -> Surrogate:
        """What a planner sees of some rows."""
        return planning.make_surrogate(self.config, self.trainers[rows], self.region)

    @torch.no_grad()
    def drift(
        self, weights: Weights, x: Float[Tensor, "row point d"]
    ) -> Float[Tensor, "row point d"]:
        """The mean field of some checkpoint's networks."""
        return learner_fields(self.networks_with(weights)).mean_and_features(x.float()).value

    @torch.no_grad()
    def moments(self, x: Float[Tensor, "row point d"]) -> Moments:
        """The mean field; its variance is that of the last layer's weights, or of an ensemble's members."""
        fields = learner_fields(self.networks)
        felt = fields.mean_and_features(x.float())
        if self.trainers[0].network.members > 1:
            return Moments(
                felt.value.double(), fields.member_values(x.float()).var(2, correction=0).double()
            )
        covariance = torch.stack([worker.posterior.covariance for worker in self.trainers])
        variance = ((felt.features @ covariance) * felt.features).sum(-1, keepdim=True)
        return Moments(felt.value.double(), variance.expand_as(felt.value).double())

    def networks_with(self, weights: Weights) -> list[SeqVae]:
        """As they were at a checkpoint."""
        named = [
            {name: value[row] for name, value in weights.items()}
            for row in range(len(self.trainers))
        ]
        networks = deepcopy(self.networks)
        for network, params in zip(networks, named, strict=True):
            network.load_state_dict(params)
        return networks

    @torch.no_grad()
    def gauge(self, weights: Weights, held_out: HeldOut) -> Gauge:
        """None of known channels; of others least squares of held-out states on what the encoder takes them for."""
        d, rows = self.config.env.d, self.config.rows
        if self.config.network.decoder == "known":
            return Gauge(torch.eye(d).double().expand(rows, d, d), torch.zeros(rows, d).double())
        states = torch.tensor(held_out.rollouts.next_states).flatten(0, 1)
        found = [
            aligned(encoded(network, held_out.rollouts).mean.flatten(0, 1), states)
            for network in self.networks_with(weights)
        ]
        return Gauge(*(torch.stack(parts) for parts in zip(*found, strict=True)))

    def information(self) -> Float[Tensor, " row"]:
        """d/2 [log det Σ(prior) - log det Σ]; 0 of ensembles, which have no posterior of weights."""
        found = []
        for worker in self.trainers:
            covariance = worker.posterior.covariance.double()
            before = len(covariance) * torch.tensor(worker.network.prior_variance).double().log()
            found.append(
                self.config.env.d * (before - torch.linalg.slogdet(covariance).logabsdet) / 2
            )
        return torch.stack(found)

    @torch.no_grad()
    def judged(self, held_out: HeldOut, seed: int) -> dict[str, Float[Tensor, " row"]]:
        """What the encoder's beliefs predict of held-out observations, and the bound on their evidence."""
        found = [
            _judged(self.config, network, held_out.rollouts, seed) for network in self.networks
        ]
        return {name: torch.stack([own[name] for own in found]) for name in found[0]}


def innovation(
    network: SeqVae,
    belief: Belief,
    control: Float[Tensor, "batch d"],
    y: Float[Tensor, "batch obs"],
) -> Float[Tensor, " batch"]:
    """-log N(y - h(x); 0, H P Hᵀ + R) per channel, where x and P = F diag(v) Fᵀ + s dt are predicted of a belief."""
    fields, dt = learner_fields([network]), network.dt
    x = belief.mean[None]
    moved = torch.eye(x.shape[-1]) + dt * fields.jacobian(x)[0]
    expected = belief.mean + dt * (fields.mean_and_features(x).value[0] + control)
    spread = (moved * belief.variance[:, None]) @ moved.mT + torch.diag(network.step_variance)
    channels = network.decoder.channels()
    residual, variance = y - channels.mean(expected), channels.variance(expected)
    pull, precision = channels.information_vector(y, expected), channels.precision(expected)
    return losses.innovation_nll(residual, variance, pull, precision, spread) / y.shape[1]


def encoded(network: SeqVae, rollouts: Rollouts) -> Belief:
    """Beliefs about the states that held-out transitions led to: [rollout, time, d]."""
    inputs = _columns(rollouts)
    ended, hidden, found = (
        torch.tensor(rollouts.truncated),
        network.encoder.initial_hidden(len(rollouts.actions)),
        [],
    )
    for given, over in zip(torch.cat(inputs, -1).unbind(0), ended.unbind(1), strict=True):
        found.append(network.encoder.step(given, hidden))
        hidden = torch.where(over[:, None], 0.0, found[-1])
    return network.encoder.belief(torch.stack(found, 1))


def _columns(
    rollouts: Rollouts,
) -> tuple[Float[Tensor, "time rollout obs"], Float[Tensor, "time rollout action"]]:
    observations, actions = (
        torch.tensor(column) for column in (rollouts.next_observations, rollouts.actions)
    )
    return observations.transpose(0, 1), actions.transpose(0, 1)


def _judged(
    config: ActiveDynamicsConfig, network: SeqVae, rollouts: Rollouts, seed: int
) -> dict[str, Float[Tensor, ""]]:
    """Of one row, per transition and channel."""
    (y, action), d = _columns(rollouts), config.env.d
    ended, known = torch.tensor(rollouts.truncated).T, encoded(network, rollouts)
    first = Belief(*(part.expand(1, y.shape[1], d) for part in network.initial_belief))
    new = torch.cat([torch.ones_like(ended[:1]), ended[:-1]])[..., None]
    before = []
    for of_first, of_known in zip(first, known, strict=True):
        later = torch.cat([of_first, of_known.transpose(0, 1)[:-1]])
        before.append(torch.where(new, of_first, later).flatten(0, 1))
    control = (action @ network.control.T).flatten(0, 1)
    nll = innovation(network, Belief(*before), control, y.flatten(0, 1)).mean()
    return {"innovation_nll": nll, "elbo": _bound(config, network, rollouts, seed)}


def _bound(
    config: ActiveDynamicsConfig, network: SeqVae, rollouts: Rollouts, seed: int
) -> Float[Tensor, ""]:
    """Of the first episode of each rollout."""
    draws = Generator(torch.get_default_device()).manual_seed(seed)
    y, action = _columns(rollouts)
    over = torch.tensor(rollouts.truncated).T.long()
    lasts = ((over.cumsum(0) - over) == 0).float()
    bounds = []
    for part in torch.arange(y.shape[1]).split(ROLLOUTS_AT_ONCE):
        windows = Windows(y[:, part], action[:, part], torch.zeros_like(part))
        scene = elbo.encode_windows(network, windows, 0)
        drawn = elbo.draw(network.members, config.evaluate.elbo_samples, 1, scene, draws)
        bounds.append(elbo.evidence_bound(network, scene, drawn, lasts[:, part]))
    return torch.cat(bounds).sum() / (lasts.sum() * y.shape[2])
