"""transitions of one learner -> its belief, and gradient steps on windows of its replay

The weights that the field is linear in have a posterior of regression on beliefs about the states
of a run, with the features φ of the last layer (and a constant 1 where it has a bias):

    Σ⁻¹ = I/s_w² + Σ_i φ(μ_i) φ(μ_i)ᵀ / q        q = mean(s dt + 2v) / dt²

The targets (x_{i+1} - x_i)/dt are uncertain because of the noise of a step and because both states
are.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64, UInt8
from torch import Generator, Tensor, nn
from torch.optim import SGD, Adam, Optimizer

from quatrain.envs.vector_field.fields import region_grid
from quatrain.envs.vector_field.world import Emission
from quatrain.frameworks.torch import (
    AdamState,
    adam_state,
    generator_from_seed,
    generator_from_state,
    init_adam,
    load_adam,
    single_threaded,
)
from quatrain.models.active_dynamics import losses
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.seq_vae import elbo
from quatrain.models.active_dynamics.seq_vae.encoder import Belief
from quatrain.models.active_dynamics.seq_vae.gauge import Effect, change_coordinates, measure_effect
from quatrain.models.active_dynamics.seq_vae.network import SeqVae, init_network
from quatrain.replay import windows
from quatrain.replay.windows import View, WindowRing, Windows

# Transitions between full recomputations of the posterior; in between, each transition adds its own
# feature.
REFRESH_EVERY = 50
# Parts of the state that are replaced, never changed in place.
VALUES = ("hidden", "belief", "posterior", "effect", "bootstrap")


class Posterior(NamedTuple):
    """Σ, shared by the weights of all outputs, and step_variance = q dt².

    The covariance of an ensemble has no features: the spread of its members takes its place.
    """

    covariance: Float[Tensor, "feature feature"]
    step_variance: Float[Tensor, ""]


class SeqVaeState(NamedTuple):
    """Everything that changes in one learner, and its bootstrap.

    effect: of actions on encoded states, last measured. bootstrap: how often each member of an
    ensemble uses each window.
    batch_rng, elbo_rng: states of the generators of batches, and of samples and masks.
    updates: gradient steps so far, on the CPU.
    """

    params: dict[str, Tensor]
    optimizer: AdamState
    hidden: Float[Tensor, "1 hidden"]
    belief: Belief
    posterior: Posterior
    effect: Effect
    bootstrap: Float[Tensor, "start member"]
    batch_rng: UInt8[Tensor, " state"]
    elbo_rng: UInt8[Tensor, " state"]
    updates: Int64[Tensor, ""]


@torch.no_grad()
def init_state(config: ActiveDynamicsConfig, emission: Emission, seed: int) -> SeqVaeState:
    """Returns the state before the first transition. It depends on the seed alone."""
    network_seed, batch_seed, elbo_seed, bootstrap_seed = np.random.SeedSequence(seed).spawn(4)
    network = init_network(config, emission, int(network_seed.generate_state(1)[0]))
    params = copy_params(network)
    hidden = network.encoder.initial_hidden(1)
    belief = network.encoder.belief(hidden)
    features = network.dynamics.mean_and_features(belief.mean[None]).features.shape[2]
    prior = network.prior_variance * torch.eye(features)
    return SeqVaeState(
        params=params,
        optimizer=init_adam(params),
        hidden=hidden,
        belief=Belief(*(part.clone() for part in network.initial_belief)),
        posterior=Posterior(prior, step_variance(network, belief)),
        effect=Effect.unknown(*network.control.shape),
        bootstrap=draw_bootstrap(config, generator_from_seed(bootstrap_seed)),
        batch_rng=generator_from_seed(batch_seed).get_state(),
        elbo_rng=generator_from_seed(elbo_seed).get_state(),
        updates=torch.tensor(0, device="cpu"),
    )


def draw_bootstrap(config: ActiveDynamicsConfig, rng: Generator) -> Float[Tensor, "start member"]:
    """Draws how often each member uses the window that begins with a transition.

    Poisson(1) for an ensemble; else 1.
    """
    members = config.network.seq_vae.members
    ones = torch.ones(config.train.transitions, members)
    return torch.poisson(ones, rng) if members > 1 else ones


def copy_params(network: SeqVae) -> dict[str, Tensor]:
    return {name: param.detach().clone() for name, param in network.named_parameters()}


@torch.no_grad()
def encode_replay(network: SeqVae, transitions: View) -> Belief:
    """Encodes the states that the transitions of one learner led to: [time, d]."""
    inputs = torch.cat([transitions.observations, transitions.actions], -1)
    belief = network.encoder.encode_episodes(inputs[:, None], transitions.truncated[:, None])
    return Belief(belief.mean[:, 0], belief.variance[:, 0])


def step_variance(network: SeqVae, belief: Belief) -> Float[Tensor, ""]:
    """Computes mean(s dt + 2v)."""
    return network.step_variance.mean() + 2 * belief.variance.mean()


@torch.no_grad()
def recompute(network: SeqVae, belief: Belief) -> Posterior:
    """Computes the posterior given the beliefs [time, d] about all states of the replay.

    The covariance is NaN if the precision matrix is not positive definite.
    """
    variance = step_variance(network, belief)
    features = network.dynamics.mean_and_features(belief.mean[None]).features[0].double()
    precision = features.T @ features * (network.dt**2 / variance.double())
    precision.diagonal().add_(1 / network.prior_variance)
    root, failed = torch.linalg.cholesky_ex(precision)
    covariance = torch.cholesky_inverse(root).masked_fill(failed > 0, torch.nan)
    return Posterior(covariance.to(variance.dtype), variance)


@torch.no_grad()
def add_state(network: SeqVae, posterior: Posterior, mean: Float[Tensor, " d"]) -> Posterior:
    """Returns the posterior given one more state; q stays as it is."""
    covariance, variance = posterior
    feature = network.dynamics.mean_and_features(mean[None, None]).features[0, 0]
    projected = covariance @ feature
    noise = variance / network.dt**2 + feature @ projected
    return Posterior(torch.addr(covariance, projected, projected / noise, alpha=-1), variance)


class Objective(NamedTuple):
    loss: Float[Tensor, ""]
    metrics: dict[str, Tensor]


def _make_optimizer(config: ActiveDynamicsConfig, network: SeqVae, moments: AdamState) -> Optimizer:
    """Returns the optimiser of the whole run. Adam continues from these moments."""
    train = config.train.seq_vae
    kind: type[SGD | Adam] = SGD if train.optimizer == "sgd" else Adam
    optimizer = kind(
        network.parameters(), lr=train.learning_rate, weight_decay=train.weight_decay, fused=True
    )
    if kind is Adam:
        load_adam(optimizer, network, moments)
    return optimizer


@dataclass
class SeqVaeTrainer:
    """Trains one learner; `observe`, `restart`, `learn` and `update` change it in place."""

    config: ActiveDynamicsConfig
    network: SeqVae
    optimizer: Optimizer
    hidden: Float[Tensor, "1 hidden"]
    belief: Belief
    posterior: Posterior
    effect: Effect
    bootstrap: Float[Tensor, "start member"]
    batch_rng: Generator
    elbo_rng: Generator
    updates: int

    @classmethod
    def from_state(
        cls, config: ActiveDynamicsConfig, emission: Emission, state: SeqVaeState
    ) -> "SeqVaeTrainer":
        """Returns a trainer that continues from the state, which is not modified."""
        network = init_network(config, emission, 0)
        network.load_state_dict(state.params)
        return cls(
            config=config,
            network=network,
            optimizer=_make_optimizer(config, network, state.optimizer),
            **{name: getattr(state, name) for name in VALUES},
            batch_rng=generator_from_state(state.batch_rng),
            elbo_rng=generator_from_state(state.elbo_rng),
            updates=int(state.updates),
        )

    def to_state(self) -> SeqVaeState:
        """Returns the current state, in tensors that later training does not modify."""
        return SeqVaeState(
            params=copy_params(self.network),
            optimizer=adam_state(self.optimizer, self.network),
            **{name: getattr(self, name) for name in VALUES},
            batch_rng=self.batch_rng.get_state(),
            elbo_rng=self.elbo_rng.get_state(),
            updates=torch.tensor(self.updates, device="cpu"),
        )

    @torch.no_grad()
    def observe(
        self, observation: Float[Tensor, " obs"], action: Float[Tensor, " action"]
    ) -> Belief:
        """Returns the belief about the state after a transition, given the whole episode.

        The hidden state of the encoder carries the episode's earlier transitions.
        """
        encoder = self.network.encoder
        self.hidden = encoder.cell(torch.cat([observation, action])[None], self.hidden)
        self.belief = encoder.belief(self.hidden[0])
        self.posterior = add_state(self.network, self.posterior, self.belief.mean)
        return self.belief

    @torch.no_grad()
    def restart(self, ended: Bool[Tensor, ""]) -> None:
        """Resets the belief and the hidden state if the episode has ended.

        On a GPU nothing is read back.
        """
        if ended.is_cpu and not ended:
            return
        initial = self.network.initial_belief
        self.hidden = self.hidden * ~ended
        self.belief = Belief(
            torch.where(ended, initial.mean, self.belief.mean),
            torch.where(ended, initial.variance, self.belief.variance),
        )

    def has_enough_windows(self, ring: WindowRing, env: int) -> bool:
        """Returns whether updates can begin. After the first one the replay is no longer asked."""
        return (
            self.updates > 0
            or int(windows.window_counts(ring)[env]) >= self.config.train.seq_vae.min_windows
        )

    @single_threaded(if_small=True)
    def learn(self, ring: WindowRing, env: int) -> dict[str, Tensor]:
        """Takes gradient steps on windows of the replay, and renews the posterior when it is due.

        Returns the metrics of the last step; {} while there are fewer than `min_windows` windows.
        """
        train = self.config.train.seq_vae
        metrics: dict[str, Tensor] = {}
        if self.has_enough_windows(ring, env):
            for _ in range(train.updates):
                batch = windows.sample(ring, env, train.batch_size, train.length, self.batch_rng)
                metrics = self.update(batch, ring.stored)
        if int(ring.written) % REFRESH_EVERY == 0:
            stored = windows.window(ring, env, int(ring.written) - ring.stored, ring.stored)
            self.refresh(stored)
        return metrics

    def refresh(self, transitions: View) -> None:
        """Measures the effect of actions on encoded states, and renews the posterior.

        Learned coordinates are changed to those in which actions have their known effect, where
        that differs clearly and is measured well.
        """
        limits = self.config.train.seq_vae
        encoded = self._measure_effect(transitions)
        transform = self.effect.transform(self.network.control)
        if (
            self.config.network.decoder != "known"
            and self.updates > 0
            and 2 * self.effect.misalignment(self.network.control) > limits.max_misalignment
            and transform.error < limits.alignment_error
        ):
            # The moments of Adam are those of gradients in the coordinates before.
            grid = region_grid(self.config.network.rbf.range, self.config.env.d)
            change_coordinates(self.network, transform, grid)
            self.belief = transform.moved(self.belief)
            self.optimizer.state.clear()
            encoded = self._measure_effect(transitions)
        self.posterior = recompute(self.network, encoded)

    def _measure_effect(self, transitions: View) -> Belief:
        """Updates `effect`; returns the beliefs about the states that it was measured on."""
        encoded = encode_replay(self.network, transitions)
        self.effect = measure_effect(
            encoded.mean, transitions.actions, transitions.truncated, self.network.dt
        )
        return encoded

    @property
    def misalignment(self) -> Float64[Tensor, ""]:
        """Returns how much the effect of actions on encoded states differs from the known one."""
        return self.effect.misalignment(self.network.control)

    @property
    def can_plan(self) -> Bool[Tensor, ""]:
        """Returns whether actions have their known effect on states.

        With a known decoder they do. Learned coordinates are right if the misalignment is below its
        limit by two standard errors.
        """
        if self.config.network.decoder == "known":
            return torch.tensor(True)
        bound = self.misalignment + 2 * self.effect.uncertainty(self.network.control)
        return bound < self.config.train.seq_vae.max_misalignment

    def update(self, batch: Windows, transitions: int) -> dict[str, Tensor]:
        """Takes a step along the clipped gradient. transitions: in the replay."""
        loss, metrics = self.objective(batch, transitions)
        self.optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(
            self.optimizer.param_groups[0]["params"],
            self.config.train.seq_vae.max_grad_norm or torch.inf,
            foreach=True,
        )
        self.optimizer.step()
        self.updates += 1
        return metrics | {"grad_norm": norm}

    def objective(self, batch: Windows, transitions: int) -> Objective:
        """Computes the loss of a batch as a mean over members and windows.

        Each window has the weight that the bootstrap gives it for a member.
        """
        network = self.network
        train = self.config.train.seq_vae
        beta = losses.beta_at(train, self.updates)
        encoded = elbo.encode_windows(network, batch, train.burn_in)
        draws = elbo.draw(network.members, train.samples, train.horizons, encoded, self.elbo_rng)
        if train.mask > 0 and beta > 0:
            draws = elbo.add_mask(draws, train.mask, self.elbo_rng)
        elbo_terms = elbo.compute_terms(network, encoded, draws, network.horizon_mask_weights)
        uses = self.bootstrap.index_select(0, batch.starts % len(self.bootstrap)).T
        names = losses.TERMS["seq_vae"]
        terms = {name: (uses * getattr(elbo_terms, name)).mean() for name in names[:-1]}
        terms["weight_prior"] = network.weight_prior()
        weights = losses.weights(train.window, transitions, beta)
        assert terms.keys() == weights.keys() == set(names)
        loss = torch.stack([weights[name] * terms[name] for name in names]).sum()
        is_masked = draws.keep_mask is not None
        exact = elbo.evidence_bound(network, encoded, draws) if is_masked else elbo_terms.bound
        metrics = normalize_terms(self.config, terms | {"elbo_exact": exact.mean()}, transitions)
        return Objective(loss, metrics | {"beta": torch.tensor(beta), "loss": loss.detach()})


def normalize_terms(
    config: ActiveDynamicsConfig, terms: dict[str, Tensor], transitions: int
) -> dict[str, Tensor]:
    """Returns likelihoods per time and channel, KL terms per time and dimension, in nats.

    The prior of the weights is given per transition in the replay. The result has no gradient.
    """
    by_channel = config.train.seq_vae.window * config.env.observation.channels
    by_dimension = config.train.seq_vae.window * config.env.d
    units = {
        "ell": by_channel,
        "kl_first": by_dimension,
        "kl_steps": by_dimension,
        "weight_prior": transitions,
        "elbo_exact": by_channel,
    }
    return {name: term.detach() / units[name] for name, term in terms.items()}
