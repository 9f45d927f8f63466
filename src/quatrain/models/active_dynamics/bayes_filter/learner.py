"""beliefs of all rows at work: what they make of a transition, what a planner sees of them, what they know."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from quatrain.envs.vector_field.fields import region_grid
from quatrain.envs.vector_field.observation import Emission
from quatrain.frameworks.torch import threads
from quatrain.models.active_dynamics.bayes_filter import filter as beliefs
from quatrain.models.active_dynamics.bayes_filter.channels import Channels, LearnedChannels
from quatrain.models.active_dynamics.bayes_filter.filter import Belief, Filter
from quatrain.models.active_dynamics.collect import Dataset, HeldOut, Rollouts, emission_of
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.decoder_identification import WarmUp, learned_decoder
from quatrain.models.active_dynamics.learner import Gauge, Moments, Seen, Weights
from quatrain.models.active_dynamics.network import make_rbf, prior_weight_variance, region_products
from quatrain.models.active_dynamics.surrogate import Felt, Surrogate, asks_for_all
from quatrain.replay.windows import WindowRing


def weight_variance(config: ActiveDynamicsConfig, given: Filter) -> float:
    """s_w² of the prior."""
    grid = region_grid(config.env.region_radius, config.env.d).double()
    return prior_weight_variance(given.rbf, grid, config.network.rbf.prior_field_sd)


@dataclass
class FilterRows:
    """Rows at work; `observe` changes the belief in place."""

    config: ActiveDynamicsConfig
    emission: Emission
    given: Filter
    belief: Belief
    decoder: LearnedChannels | None
    region: Float[Tensor, "feature feature"]

    REMEDY = "lower active_dynamics.env.dt or active_dynamics.network.rbf.prior_field_sd"

    @classmethod
    def fresh(
        cls, config: ActiveDynamicsConfig, dataset: Dataset, seed: np.random.SeedSequence
    ) -> "FilterRows":
        """At the common start, with the channels given or learned from the warm-up; nothing is drawn."""
        learned = config.network.decoder == "linear"
        decoder = learned_channels(config, dataset) if learned else None
        made = cls._at_work(config, dataset, decoder)
        y = torch.tensor(dataset.train.observations[:, 0]).repeat(len(config.train.arms), 1)
        beliefs.correct(made.given, made.belief, y.double())
        return made

    @classmethod
    def restored(cls, config: ActiveDynamicsConfig, dataset: Dataset, saved: Any) -> "FilterRows":
        """Where a learner was; of it nothing is changed."""
        made = cls._at_work(config, dataset, saved.decoder)
        made.belief = Belief(*(part.clone() for part in saved.params))
        return made

    @classmethod
    def _at_work(
        cls, config: ActiveDynamicsConfig, dataset: Dataset, decoder: LearnedChannels | None
    ) -> "FilterRows":
        emission = emission_of(config, dataset)
        channels: Channels = emission if decoder is None else decoder
        rbf = make_rbf(config.network.rbf, config.env.d).to(torch.float64)
        given = Filter(rbf, channels.double(), config.env.dt, config.env.process_noise)
        features = rbf.to(torch.float32).features(
            region_grid(config.env.region_radius, config.env.d)
        )
        belief = beliefs.prior(rbf, config.rows, weight_variance(config, given))
        return cls(config, emission, given, belief, decoder, region_products(features))

    def state(self) -> dict[str, Any]:
        """Parts of a learner."""
        params = Belief(*(part.clone() for part in self.belief))
        return {"params": params, "decoder": self.decoder, "further": None}

    @property
    def weights(self) -> Weights:
        """What a checkpoint keeps."""
        return {"weight": beliefs.weights(self.given.d, self.belief).float()}

    def observe(self, seen: Seen) -> Float[Tensor, " row"]:
        """Predict and correct. Returns the innovation's negative log likelihood per channel."""
        beliefs.predict(self.given, self.belief, seen.control.double())
        nll = beliefs.correct(self.given, self.belief, seen.observation.double())
        beliefs.begin(self.given, self.belief, seen.truncated, seen.begun.double())
        return nll

    def improve(self, replay: WindowRing) -> None:
        """Nothing is left to do: a filter has learned all when it has seen."""

    @property
    def told(self) -> dict[str, Float[Tensor, " row"]]:
        """Nothing."""
        return {}

    @threads.single_threaded(if_small=True)
    def surrogate(self, rows: slice) -> Surrogate:
        """What a planner sees of some rows."""
        d, rbf = self.given.d, self.given.rbf.to(torch.float32)
        belief = Belief(*(part[rows] for part in self.belief))
        state, held = belief.mean[:, :d], beliefs.weights(d, belief).float()
        joint = asks_for_all(self.config.train.acquisition)
        precision = self._channels_of(rows).precision(state).expand(len(state), d, d)
        unseen = torch.linalg.pinv(precision, hermitian=True).diagonal(dim1=1, dim2=2).mean(1)

        def field(x: Tensor) -> Felt:
            features = rbf.features(x)
            return Felt(features @ held.mT, features)

        return Surrogate(
            state=state.float(),
            control=effect_of(self.config).float(),
            dt=self.given.dt,
            region_radius=self.config.env.region_radius,
            field=field,
            jacobian=lambda x: held[:, None] @ rbf.with_derivatives(x).derivatives,
            members=None,
            covariance=beliefs.weight_blocks(d, belief).mean(1).float(),
            full_covariance=belief.covariance[:, d:, d:].float() if joint else None,
            region=self.region,
            step_variance=(self.given.process_noise * self.given.dt + unseen).float(),
            precision=precision.float(),
        )

    def _channels_of(self, rows: slice) -> Channels:
        seen = self.given.emission
        return (
            LearnedChannels(*(part[rows] for part in seen))
            if isinstance(seen, LearnedChannels)
            else seen
        )

    def drift(
        self, weights: Weights, x: Float[Tensor, "row point d"]
    ) -> Float[Tensor, "row point d"]:
        """W φ(x)."""
        held = weights["weight"]
        return self.given.rbf.to(held.dtype).features(x.to(held.dtype)) @ held.mT

    def moments(self, x: Float[Tensor, "row point d"]) -> Moments:
        """W φ(x), and φᵀ P_ww,ii φ."""
        features = self.given.rbf.features(x.double())
        blocks = beliefs.weight_blocks(self.given.d, self.belief)
        variance = torch.einsum("rpc,ridc,rpd->rpi", features, blocks, features)
        return Moments(features @ beliefs.weights(self.given.d, self.belief).mT, variance)

    def gauge(self, weights: Weights, held_out: HeldOut) -> Gauge:
        """True and learned channels see the same: x = C⁺ (Ĉ z + b̂ - b)."""
        d, rows = self.given.d, self.config.rows
        if self.decoder is None:
            return Gauge(torch.eye(d).double().expand(rows, d, d), torch.zeros(rows, d).double())
        inverse = torch.linalg.pinv(self.emission.weight.double())
        return Gauge(
            inverse @ self.decoder.weight, (self.decoder.bias - self.emission.bias) @ inverse.T
        )

    def judged(self, held_out: HeldOut, seed: int) -> dict[str, Float[Tensor, " row"]]:
        """The filter of states on held-out rollouts, with weights as they are."""
        drift = partial(self.drift, {name: value.double() for name, value in self.weights.items()})
        u = torch.tensor(held_out.rollouts.actions).double() @ effect_of(self.config).T
        return {
            "innovation_nll": frozen_innovation(
                self.given, drift, held_out.rollouts, u, self.config.rows
            )
        }

    def information(self) -> Float[Tensor, " row"]:
        """½[log det P_ww(prior) - log det P_ww], in nats; NaN where P_ww is not positive definite."""
        d = self.given.d
        root, failed = torch.linalg.cholesky_ex(self.belief.covariance[:, d:, d:])
        weights = self.belief.mean.shape[1] - d
        before = weights * torch.tensor(weight_variance(self.config, self.given)).double().log()
        after = 2 * root.diagonal(dim1=1, dim2=2).log().sum(1)
        return ((before - after) / 2).masked_fill(failed > 0, torch.nan)


def effect_of(config: ActiveDynamicsConfig) -> Float[Tensor, "d action"]:
    """B, in double precision."""
    control = config.env.control
    return torch.eye(config.env.d).double() if control is None else torch.tensor(control).double()


def learned_channels(config: ActiveDynamicsConfig, dataset: Dataset) -> LearnedChannels:
    """Of each replicate, from its warm-up; the arms of a replicate share them."""
    train, effect = dataset.train, effect_of(config)
    columns = [
        torch.tensor(column).double()
        for column in (train.observations, train.next_observations, train.actions)
    ]
    found = []
    for y, next_y, action, truncated in zip(*columns, torch.tensor(train.truncated), strict=True):
        seen = WarmUp(y[:-1], next_y, action @ effect.T, ~truncated)
        found.append(learned_decoder(seen, config.env.dt))
    arms = len(config.train.arms)
    return LearnedChannels(
        *(
            torch.stack(parts).repeat(arms, *[1] * parts[0].ndim)
            for parts in zip(*found, strict=True)
        )
    )


def frozen_innovation(
    given: Filter,
    drift: Callable[[Tensor], Tensor],
    rollouts: Rollouts,
    u: Float[Tensor, "rollout time d"],
    rows: int,
) -> Float[Tensor, " row"]:
    """-log likelihood per channel of held-out observations by a filter of states alone; `drift` stays as it is.

    drift: velocities [row, rollout, d] at states of that shape, in double precision. u: by actions.
    """
    count, times = u.shape[:2]
    given = given._replace(emission=_for_each(given.emission, count))
    belief, told = beliefs.start(given.d, rows * count), []

    def at(column: np.ndarray, time: int) -> Float64[Tensor, "row_rollout obs"]:
        """Of all rows; not of all times at once, which would take gigabytes."""
        return torch.tensor(column[:, time]).double().repeat(rows, 1)

    def flowing(x: Tensor) -> Tensor:
        return drift(x.unflatten(0, (rows, count))).flatten(0, 1)

    beliefs.correct(given, belief, at(rollouts.observations, 0))
    for time in range(times):
        beliefs.predict_state(given, belief, flowing, u[:, time].repeat(rows, 1))
        told.append(beliefs.correct(given, belief, at(rollouts.next_observations, time)))
        ended = torch.tensor(rollouts.truncated[:, time]).repeat(rows)
        beliefs.begin(given, belief, ended, at(rollouts.observations, time + 1))
    return torch.stack(told).mean(0).unflatten(0, (rows, count)).mean(1)


def _for_each(channels: Channels, rollouts: int) -> Channels:
    """Of each row as many as there are rollouts."""
    if isinstance(channels, Emission):
        return channels
    return LearnedChannels(*(part.repeat_interleave(rollouts, 0) for part in channels))
