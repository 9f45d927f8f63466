"""transitions -> networks of encoder, dynamics and decoder: the learners of family seq_vae"""

from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from quatrain.envs.vector_field.fields import region_grid
from quatrain.envs.vector_field.world import Transition
from quatrain.frameworks.torch import seeded
from quatrain.models.active_dynamics import losses
from quatrain.models.active_dynamics.collect import Dataset, HeldOut, emission_of
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.decoder_identification import fit_affine
from quatrain.models.active_dynamics.family import (
    AffineAlignment,
    FieldPosterior,
    Moments,
    PosteriorMoments,
    Surrogate,
    Weights,
)
from quatrain.models.active_dynamics.seq_vae.encoder import Belief
from quatrain.models.active_dynamics.seq_vae.held_out import (
    encoded,
    held_out_bound,
    held_out_nll,
    predicted_innovation_nll,
)
from quatrain.models.active_dynamics.seq_vae.network import Dynamics, SeqVae, load_dynamics
from quatrain.models.active_dynamics.seq_vae.trainer import SeqVaeState, SeqVaeTrainer, init_state
from quatrain.replay.windows import WindowRing

METRICS = (*losses.TERMS["seq_vae"], "elbo_exact", "beta", "grad_norm", "loss")


@dataclass
class SeqVaeLearner:
    """Learns by gradient steps; `observe` and `improve` change the trainers in place."""

    config: ActiveDynamicsConfig
    trainers: list[SeqVaeTrainer]
    metrics: dict[str, Float[Tensor, " learner"]]
    region: Float[Tensor, "point d"]

    REMEDY = "lower active_dynamics.train.seq_vae.learning_rate or max_grad_norm"

    @classmethod
    def init(
        cls, config: ActiveDynamicsConfig, dataset: Dataset, seed: np.random.SeedSequence
    ) -> "SeqVaeLearner":
        """Returns untrained networks; a replicate has the same ones in all arms."""
        emission = emission_of(config, dataset)
        seeds = [int(number) for number in seed.generate_state(config.seeds)]
        states = [init_state(config, emission, number) for number in seeds]
        metrics = {name: torch.zeros(config.learners) for name in METRICS}
        return cls._from_states(config, dataset, states * len(config.train.arms), metrics)

    @classmethod
    def from_state(
        cls, config: ActiveDynamicsConfig, dataset: Dataset, saved: Any
    ) -> "SeqVaeLearner":
        others, metrics = saved.family_state
        states = [
            state._replace(params=params)
            for params, state in zip(saved.params, others, strict=True)
        ]
        return cls._from_states(config, dataset, states, dict(metrics))

    @classmethod
    def _from_states(
        cls,
        config: ActiveDynamicsConfig,
        dataset: Dataset,
        states: list[SeqVaeState],
        metrics: dict[str, Tensor],
    ) -> "SeqVaeLearner":
        emission = emission_of(config, dataset)
        trainers = [SeqVaeTrainer.from_state(config, emission, state) for state in states]
        region = region_grid(config.env.region_radius, config.env.d)
        return cls(config, trainers, metrics, region)

    def to_state(self) -> dict[str, Any]:
        states = [trainer.to_state() for trainer in self.trainers]
        return {
            "params": tuple(state.params for state in states),
            "decoder": None,
            "family_state": (
                tuple(state._replace(params={}) for state in states),
                dict(self.metrics),
            ),
        }

    @property
    def networks(self) -> list[SeqVae]:
        return [trainer.network for trainer in self.trainers]

    @property
    def weights(self) -> Weights:
        named = [dict(network.named_parameters()) for network in self.networks]
        return {name: torch.stack([params[name].detach() for params in named]) for name in named[0]}

    @torch.no_grad()
    def observe(self, transition: Transition) -> Float[Tensor, " learner"]:
        """Encodes an observation, in place.

        Returns: the innovation's negative log likelihood per channel, of the belief before.
        """
        u = transition.action @ self.networks[0].control.T
        nll: list[Tensor] = []
        for index, trainer in enumerate(self.trainers):
            y = transition.observation[index]
            belief = Belief(*(part[None] for part in trainer.belief))
            nll += predicted_innovation_nll(trainer.network, belief, u[index, None], y[None])
            trainer.observe(y, transition.action[index])
            trainer.restart(transition.truncated[index])
        return torch.stack(nll)

    def improve(self, replay: WindowRing) -> None:
        updates = [trainer.learn(replay, index) for index, trainer in enumerate(self.trainers)]
        for name, last in self.metrics.items():
            values = [
                metrics.get(name, value)
                for metrics, value in zip(updates, last.unbind(0), strict=True)
            ]
            self.metrics[name] = torch.stack(
                [torch.as_tensor(value).detach().float() for value in values]
            )

    @property
    def last_update_metrics(self) -> dict[str, Float[Tensor, " learner"]]:
        """Returns the metrics of the last gradient step, 0 before the first, and `misalignment`."""
        misalignment = torch.stack([trainer.misalignment for trainer in self.trainers]).float()
        return self.metrics | {"misalignment": misalignment}

    def can_plan(self, learners: slice) -> Bool[Tensor, " learner"]:
        return torch.stack([trainer.can_plan for trainer in self.trainers[learners]])

    @torch.no_grad()
    def surrogate(self, learners: slice) -> Surrogate:
        """Outputs have equal and independent posteriors; the members of an ensemble have none."""
        trainers = self.trainers[learners]
        network = trainers[0].network
        dynamics = self._dynamics({name: value[learners] for name, value in self.weights.items()})
        posteriors = zip(*(trainer.posterior for trainer in trainers), strict=True)
        covariance, step_variance = map(torch.stack, posteriors)
        region = dynamics.mean_and_features(self.region.expand(len(trainers), -1, -1)).features
        is_single = network.members == 1
        needs_joint = is_single and self.config.train.acquisition.needs_joint_covariance
        joint = [torch.block_diag(*[block] * self.config.env.d) for block in covariance]
        channels = [trainer.network.decoder.channels() for trainer in trainers]
        beliefs = [trainer.belief.mean for trainer in trainers]
        return Surrogate(
            state=torch.stack(beliefs),
            control=network.control,
            dt=self.config.env.dt,
            region_radius=self.config.env.region_radius,
            field=dynamics.mean_and_features,
            jacobian=dynamics.jacobian,
            members=None if is_single else dynamics.member_values,
            covariance=covariance if is_single else None,
            full_covariance=torch.stack(joint) if needs_joint else None,
            region=region.mT @ region / region.shape[1] if is_single else None,
            step_variance=step_variance,
            precision=torch.stack([c.precision(x) for c, x in zip(channels, beliefs, strict=True)]),
        )

    @torch.no_grad()
    def drift(
        self, weights: Weights, x: Float[Tensor, "learner point d"]
    ) -> Float[Tensor, "learner point d"]:
        return self._dynamics(weights).mean_and_features(x.float()).value

    @torch.no_grad()
    def moments(self, x: Float[Tensor, "learner point d"]) -> Moments:
        covariance = torch.stack([trainer.posterior.covariance for trainer in self.trainers])
        return _moments(self._dynamics(self.weights), covariance, x)

    def _dynamics(self, weights: Weights) -> Dynamics:
        prefix = "dynamics."
        names = [name for name in weights if name.startswith(prefix)]
        arrays = {name.removeprefix(prefix): weights[name] for name in names}
        return load_dynamics(self.config, arrays)

    def networks_with(self, weights: Weights) -> list[SeqVae]:
        """Returns copies of the networks with a checkpoint's weights."""
        networks = deepcopy(self.networks)
        for index, network in enumerate(networks):
            network.load_state_dict({name: value[index] for name, value in weights.items()})
        return networks

    @torch.no_grad()
    def alignment(self, weights: Weights, held_out: HeldOut) -> AffineAlignment:
        """Fits held-out states on the encoded ones; the identity with known channels."""
        if self.config.network.decoder == "known":
            return AffineAlignment.identity(self.config.learners, self.config.env.d)
        states = torch.tensor(held_out.rollouts.next_states).transpose(0, 1).flatten(0, 1)
        fits = [
            fit_affine(encoded(network, held_out.rollouts).mean.flatten(0, 1), states)
            for network in self.networks_with(weights)
        ]
        return AffineAlignment(*map(torch.stack, zip(*fits, strict=True)))

    def information(self) -> Float[Tensor, " learner"]:
        """Computes d/2 [log det Σ(prior) - log det Σ]; 0 for ensembles, which have no Σ."""
        gains = []
        for trainer in self.trainers:
            covariance = trainer.posterior.covariance.double()
            before = len(covariance) * torch.tensor(trainer.network.prior_variance).double().log()
            after = torch.linalg.slogdet(covariance).logabsdet
            gains.append(self.config.env.d * (before - after) / 2)
        return torch.stack(gains)

    @torch.no_grad()
    def evaluate(self, held_out: HeldOut, seed: int) -> dict[str, Float[Tensor, " learner"]]:
        """Computes `innovation_nll` and `elbo`, per transition and channel."""
        rollouts = held_out.rollouts
        nll = [held_out_nll(network, rollouts) for network in self.networks]
        bounds = [held_out_bound(self.config, network, rollouts, seed) for network in self.networks]
        return {"innovation_nll": torch.stack(nll), "elbo": torch.stack(bounds)}

    def export_posterior(self, learner: int) -> FieldPosterior:
        trainer = self.trainers[learner]
        weights: dict[str, Tensor] = dict(trainer.network.dynamics.named_parameters())
        return FieldPosterior(weights, trainer.posterior.covariance)

    @classmethod
    def posterior_template(cls, config: ActiveDynamicsConfig) -> FieldPosterior:
        dynamics = seeded(lambda: Dynamics(config), 0)
        features = dynamics.mean_and_features(torch.zeros(1, 1, config.env.d)).features.shape[2]
        return FieldPosterior(dynamics.state_dict(), torch.zeros(features, features))

    @classmethod
    def posterior_moments(
        cls, config: ActiveDynamicsConfig, posterior: FieldPosterior
    ) -> PosteriorMoments:
        weights = {name: value[None] for name, value in posterior.weights.items()}
        return partial(_moments, load_dynamics(config, weights), posterior.covariance)


def _moments(
    dynamics: Dynamics,
    covariance: Float[Tensor, "*learner feature feature"],
    x: Float[Tensor, "learner point d"],
) -> Moments:
    """Computes the variance by the last layer's weights, or by the members of an ensemble."""
    x = x.float()
    mean, features = dynamics.mean_and_features(x)
    if dynamics.members > 1:
        variance = dynamics.member_values(x).var(2, correction=0)
    else:
        variance = ((features @ covariance) * features).sum(-1, keepdim=True).expand_as(mean)
    return Moments(mean.double(), variance.double())
