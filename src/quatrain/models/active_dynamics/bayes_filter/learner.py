"""transitions -> beliefs about states and field weights: the learners of family bayes_filter."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from quatrain.envs.vector_field.fields import region_grid
from quatrain.envs.vector_field.world import Emission, Transition, control_effect
from quatrain.frameworks.torch import single_threaded
from quatrain.models.active_dynamics.bayes_filter import filter as bayes
from quatrain.models.active_dynamics.bayes_filter.filter import (
    Belief,
    Channels,
    KalmanFilter,
    LearnedChannels,
)
from quatrain.models.active_dynamics.bayes_filter.innovation import FrozenFit, frozen_innovation
from quatrain.models.active_dynamics.collect import Dataset, HeldOut, Rollouts, emission_of
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.decoder_identification import identify_decoder
from quatrain.models.active_dynamics.family import (
    AffineAlignment,
    FieldPosterior,
    FieldValue,
    Moments,
    PosteriorMoments,
    Surrogate,
    Weights,
)
from quatrain.models.active_dynamics.network import (
    Rbf,
    make_rbf,
    prior_weight_variance,
    region_products,
)
from quatrain.replay.windows import WindowRing


@dataclass
class BayesFilterLearner:
    """Learns by an extended Kalman filter; `observe` changes the belief in place.

    weight_variance: s_w² of the prior. control: B of u = B a.
    """

    config: ActiveDynamicsConfig
    emission: Emission
    filter: KalmanFilter
    belief: Belief
    decoder: LearnedChannels | None
    weight_variance: float
    region: Float[Tensor, "feature feature"]
    control: Float[Tensor, "d action"]

    REMEDY = "lower active_dynamics.env.dt or active_dynamics.network.rbf.prior_field_sd"

    @classmethod
    def init(
        cls, config: ActiveDynamicsConfig, dataset: Dataset, seed: np.random.SeedSequence
    ) -> "BayesFilterLearner":
        """Returns the prior after the first observation; nothing is drawn.

        A linear decoder is identified from the warm-up.
        """
        decoder = None
        if config.network.decoder == "linear":
            decoder = identify_channels(config, dataset.train, ~dataset.train.truncated)
        return cls.from_rollouts(config, dataset.train, emission_of(config, dataset), decoder)

    @classmethod
    def from_rollouts(
        cls,
        config: ActiveDynamicsConfig,
        rollouts: Rollouts,
        emission: Emission,
        decoder: LearnedChannels | None,
    ) -> "BayesFilterLearner":
        """Returns the prior after the first observation of rollouts."""
        learner = cls.prior(config, emission, decoder)
        y = torch.tensor(rollouts.observations[:, 0]).repeat(len(config.train.arms), 1)
        learner.filter.correct(learner.belief, y.double())
        return learner

    @classmethod
    def from_state(
        cls, config: ActiveDynamicsConfig, dataset: Dataset, saved: Any
    ) -> "BayesFilterLearner":
        learner = cls.prior(config, emission_of(config, dataset), saved.decoder)
        learner.belief = Belief(*(part.clone() for part in saved.params))
        return learner

    @classmethod
    def prior(
        cls, config: ActiveDynamicsConfig, emission: Emission, decoder: LearnedChannels | None
    ) -> "BayesFilterLearner":
        """Returns learners before any observation. emission: the true channels, to align with."""
        channels: Channels = emission if decoder is None else decoder
        if decoder is None and emission.noise == "gaussian":
            assumed = torch.full_like(emission.bias, config.network.bayes_filter.noise_sd**2)
            channels = emission._replace(noise_variance=assumed)
        rbf = make_rbf(config.network.rbf, config.env.d).to(torch.float64)
        noise = config.network.bayes_filter.process_noise
        grid = region_grid(config.env.region_radius, config.env.d)
        sd = config.network.rbf.prior_field_sd
        weight_variance = prior_weight_variance(rbf, grid.double(), sd)
        return cls(
            config=config,
            emission=emission,
            filter=KalmanFilter(rbf, channels.double(), config.env.dt, noise),
            belief=bayes.prior(rbf, config.learners, weight_variance),
            decoder=decoder,
            weight_variance=weight_variance,
            region=region_products(rbf.to(torch.float32).features(grid)),
            control=control_effect(config.env),
        )

    def to_state(self) -> dict[str, Any]:
        return {
            "params": Belief(*(part.clone() for part in self.belief)),
            "decoder": self.decoder,
            "family_state": None,
        }

    @property
    def weights(self) -> Weights:
        return {"weight": bayes.weights(self.filter.d, self.belief).float()}

    def observe(self, transition: Transition) -> Float[Tensor, " learner"]:
        """Predicts and corrects the beliefs in place.

        Returns: the innovation's negative log likelihood per channel.
        """
        u = (transition.action @ self.control.T).double()
        self.filter.predict(self.belief, u)
        nll = self.filter.correct(self.belief, transition.observation.double())
        start = transition.start.double()
        self.filter.restart(self.belief, transition.truncated, start)
        return nll

    def improve(self, replay: WindowRing) -> None:
        """Does nothing: the filter learns in `observe`."""

    @property
    def last_update_metrics(self) -> dict[str, Float[Tensor, " learner"]]:
        return {}

    def can_plan(self, learners: slice) -> Bool[Tensor, " learner"]:
        """Returns True: states are those of known channels, or aligned by the warm-up."""
        return torch.ones(len(self.belief.mean[learners]), dtype=torch.bool)

    @single_threaded(if_small=True)
    def surrogate(self, learners: slice) -> Surrogate:
        d = self.filter.d
        belief = Belief(*(part[learners] for part in self.belief))
        precision = self._precision(learners)
        state_variance = torch.linalg.pinv(precision, hermitian=True).diagonal(dim1=1, dim2=2)
        step_variance = self.filter.process_noise * self.filter.dt + state_variance.mean(1)
        full_covariance = None
        if self.config.train.acquisition.needs_joint_covariance:
            full_covariance = belief.covariance[:, d:, d:].float()
        return Surrogate(
            state=belief.mean[:, :d].float(),
            control=self.control,
            dt=self.filter.dt,
            region_radius=self.config.env.region_radius,
            **_mean_field(self.filter.rbf, bayes.weights(d, belief)),
            members=None,
            covariance=bayes.weight_blocks(d, belief).mean(1).float(),
            full_covariance=full_covariance,
            region=self.region,
            step_variance=step_variance.float(),
            precision=precision.float(),
        )

    def _precision(self, learners: slice) -> Float64[Tensor, "learner d d"]:
        channels = self.filter.emission
        if isinstance(channels, LearnedChannels):
            channels = LearnedChannels(*(part[learners] for part in channels))
        d = self.filter.d
        state = self.belief.mean[learners, :d]
        return channels.precision(state).expand(len(state), d, d)

    def drift(
        self, weights: Weights, x: Float[Tensor, "learner point d"]
    ) -> Float[Tensor, "learner point d"]:
        """Computes W φ(x)."""
        weight = weights["weight"]
        return self.filter.rbf.to(weight.dtype).features(x.to(weight.dtype)) @ weight.mT

    def moments(self, x: Float[Tensor, "learner point d"]) -> Moments:
        """Computes W φ(x) and φᵀ P_ww,ii φ."""
        features = self.filter.rbf.features(x.double())
        blocks = bayes.weight_blocks(self.filter.d, self.belief)
        variance = torch.einsum("rpc,ridc,rpd->rpi", features, blocks, features)
        return Moments(features @ bayes.weights(self.filter.d, self.belief).mT, variance)

    def alignment(self, weights: Weights, held_out: HeldOut) -> AffineAlignment:
        """Equates observations by true and learned channels: x = C⁺ (Ĉ z + b̂ - b)."""
        if self.decoder is None:
            return AffineAlignment.identity(self.config.learners, self.filter.d)
        inverse = torch.linalg.pinv(self.emission.weight.double())
        offset = (self.decoder.bias - self.emission.bias) @ inverse.T
        return AffineAlignment(inverse @ self.decoder.weight, offset)

    def evaluate(self, held_out: HeldOut, seed: int) -> dict[str, Float[Tensor, " learner"]]:
        """Computes the innovation of a filter of states on held-out rollouts (`FrozenFit`)."""
        return self.innovation(held_out.rollouts)._asdict()

    def innovation(self, rollouts: Rollouts) -> FrozenFit:
        weights = {name: value.double() for name, value in self.weights.items()}
        u = torch.tensor(rollouts.actions).double() @ self.control.double().T
        drift = partial(self.drift, weights)
        return frozen_innovation(self.filter, drift, rollouts, u, self.config.learners)

    def information(self) -> Float[Tensor, " learner"]:
        """Computes ½[log det P_ww(prior) - log det P_ww]; NaN if P_ww is not positive definite."""
        d = self.filter.d
        root, failed = torch.linalg.cholesky_ex(self.belief.covariance[:, d:, d:])
        count = self.belief.mean.shape[1] - d
        before = count * torch.tensor(self.weight_variance).double().log()
        after = 2 * root.diagonal(dim1=1, dim2=2).log().sum(1)
        return ((before - after) / 2).masked_fill(failed > 0, torch.nan)

    def export_posterior(self, learner: int) -> FieldPosterior:
        return FieldPosterior(
            {"weight": bayes.weights(self.filter.d, self.belief)[learner]},
            bayes.weight_blocks(self.filter.d, self.belief)[learner],
        )

    @classmethod
    def posterior_template(cls, config: ActiveDynamicsConfig) -> FieldPosterior:
        d = config.env.d
        size = make_rbf(config.network.rbf, d).size
        return FieldPosterior(
            {"weight": torch.zeros(d, size).double()}, torch.zeros(d, size, size).double()
        )

    @classmethod
    def posterior_moments(
        cls, config: ActiveDynamicsConfig, posterior: FieldPosterior
    ) -> PosteriorMoments:
        """Returns what computes W φ(z) and φᵀ P_ww,ii φ."""
        rbf = make_rbf(config.network.rbf, config.env.d).to(torch.float64)
        weight = posterior.weights["weight"].mT

        def moments(z: Float64[Tensor, "1 point d"]) -> Moments:
            features = rbf.features(z)
            variance = ((features @ posterior.covariance) * features).sum(-1)
            return Moments(features @ weight, variance.mT[None])

        return moments


def _mean_field(
    rbf: Rbf, weights: Float64[Tensor, "learner d feature"]
) -> dict[str, Callable[[Tensor], Any]]:
    """Returns the field and its Jacobian as functions of states, in single precision."""
    rbf = rbf.to(torch.float32)
    weight = weights.float()

    def field(x: Tensor) -> FieldValue:
        features = rbf.features(x)
        return FieldValue(features @ weight.mT, features)

    return {
        "field": field,
        "jacobian": lambda x: weight[:, None] @ rbf.with_derivatives(x).derivatives,
    }


def identify_channels(
    config: ActiveDynamicsConfig, rollouts: Rollouts, intact: Bool[np.ndarray, "rollout time"]
) -> LearnedChannels:
    """Identifies the channels of each rollout; the arms of a replicate share them.

    intact: transitions that count in the regression (`identify_decoder`).
    """
    y = torch.tensor(rollouts.observations[:, :-1]).double()
    next_y = torch.tensor(rollouts.next_observations).double()
    u = torch.tensor(rollouts.actions).double() @ control_effect(config.env).double().T
    decoders = [
        identify_decoder(*columns, config.env.dt)
        for columns in zip(y, next_y, u, torch.tensor(intact), strict=True)
    ]
    replicates = map(torch.stack, zip(*decoders, strict=True))
    return LearnedChannels(*(torch.cat([part] * len(config.train.arms)) for part in replicates))
