"""one row's part of a learner <-> the network, optimiser and generators that work on it"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64, UInt8
from torch import Generator, Tensor, nn
from torch.optim import SGD, Adam, Optimizer

from quatrain.envs.vector_field.observation import Emission
from quatrain.frameworks.torch import adam_state, threads
from quatrain.frameworks.torch.adam_state import Moments
from quatrain.frameworks.torch.rng import generator, generator_at
from quatrain.models.active_dynamics import losses
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.seq_vae import elbo, posterior
from quatrain.models.active_dynamics.seq_vae.encoder import Belief
from quatrain.models.active_dynamics.seq_vae.network import SeqVae, init
from quatrain.models.active_dynamics.seq_vae.posterior import REFRESH_EVERY, Posterior
from quatrain.replay import windows
from quatrain.replay.windows import Ring, Windows


class Row(NamedTuple):
    """Everything that changes in one row's learner; and `bootstrap`, how often each window counts for each member."""

    params: dict[str, Tensor]
    optimizer: Moments
    hidden: Float[Tensor, "1 hidden"]
    belief: Belief
    posterior: Posterior
    bootstrap: Float[Tensor, "start member"]
    batch: UInt8[Tensor, " state"]
    elbo: UInt8[Tensor, " state"]
    updates: Int64[Tensor, ""]


@dataclass
class Worker:
    """One row at work; `observe`, `restart` and `learn` change it in place."""

    config: ActiveDynamicsConfig
    network: SeqVae
    optimizer: Optimizer
    hidden: Float[Tensor, "1 hidden"]
    belief: Belief
    posterior: Posterior
    bootstrap: Float[Tensor, "start member"]
    batch: Generator
    elbo: Generator
    updates: int


def fresh(config: ActiveDynamicsConfig, emission: Emission, seed: int) -> Row:
    """Before the first transition; all of it depends on the seed alone."""
    own, *others = np.random.SeedSequence(seed).spawn(4)
    network = init(config, emission, int(own.generate_state(1)[0]))
    batch, of_elbo, of_bootstrap = (generator(purpose) for purpose in others)
    params = {name: param.detach().clone() for name, param in network.named_parameters()}
    return Row(
        params=params,
        optimizer=adam_state.fresh(params),
        hidden=network.encoder.first(1).detach(),
        belief=Belief(*(one.detach().clone() for one in network.first)),
        posterior=posterior.prior(network),
        bootstrap=bootstrap(config, of_bootstrap),
        batch=batch.get_state(),
        elbo=of_elbo.get_state(),
        updates=torch.tensor(0),
    )


def bootstrap(config: ActiveDynamicsConfig, draws: Generator) -> Float[Tensor, "start member"]:
    """How often each member of an ensemble sees the window that begins with a transition: Poisson(1); else once."""
    starts, members = config.train.transitions, config.network.seq_vae.members
    ones = torch.ones(starts, members)
    return torch.poisson(ones, draws) if members > 1 else ones


def at_work(config: ActiveDynamicsConfig, emission: Emission, row: Row) -> Worker:
    """At work where it was; of the row nothing is changed."""
    network = network_of(config, emission, row.params)
    return Worker(
        config=config,
        network=network,
        optimizer=optimizer_of(config, network, row.optimizer),
        hidden=row.hidden,
        belief=row.belief,
        posterior=row.posterior,
        bootstrap=row.bootstrap,
        batch=generator_at(row.batch),
        elbo=generator_at(row.elbo),
        updates=int(row.updates),
    )


def network_of(
    config: ActiveDynamicsConfig, emission: Emission, params: dict[str, Tensor]
) -> SeqVae:
    """With these weights."""
    network = init(config, emission, 0)
    network.load_state_dict(params)
    return network


def optimizer_of(config: ActiveDynamicsConfig, network: SeqVae, known: Moments) -> Optimizer:
    """One for the whole run, which goes on from the moments that are known."""
    train = config.train.seq_vae
    rate, decay = train.learning_rate, train.weight_decay
    if train.optimizer == "sgd":
        return SGD(network.parameters(), lr=rate, weight_decay=decay, fused=True)
    optimizer = Adam(network.parameters(), lr=rate, weight_decay=decay, fused=True)
    adam_state.restore(optimizer, network, known)
    return optimizer


def snapshot(worker: Worker) -> Row:
    """As the worker is now, in tensors that stay so."""
    return Row(
        params={name: param.detach().clone() for name, param in worker.network.named_parameters()},
        optimizer=adam_state.snapshot(worker.optimizer, worker.network),
        hidden=worker.hidden,
        belief=worker.belief,
        posterior=worker.posterior,
        bootstrap=worker.bootstrap,
        batch=worker.batch.get_state(),
        elbo=worker.elbo.get_state(),
        updates=torch.tensor(worker.updates),
    )


@torch.no_grad()
def observe(
    worker: Worker, observation: Float[Tensor, " obs"], action: Float[Tensor, " action"]
) -> Belief:
    """The belief about the state after a transition, of the carried state of the encoder: as of all of the episode."""
    network = worker.network
    worker.hidden = network.encoder.step(torch.cat([observation, action])[None], worker.hidden)
    worker.belief = network.encoder.belief(worker.hidden[0])
    worker.posterior = posterior.noted(network, worker.posterior, worker.belief.mean)
    return worker.belief


@torch.no_grad()
def restart(worker: Worker, ended: Bool[Tensor, ""]) -> None:
    """Where `ended`, an episode begins, of which nothing was seen. Nothing is read back from a GPU."""
    if ended.is_cpu and not ended:
        return
    worker.hidden = worker.hidden * ~ended
    before = worker.network.first
    worker.belief = Belief(
        *(torch.where(ended, new, old) for new, old in zip(before, worker.belief, strict=True))
    )


def ready(worker: Worker, ring: Ring, row: int) -> bool:
    """Whether there are enough windows to begin; once begun, nothing is asked."""
    return (
        worker.updates > 0
        or int(windows.valid(ring)[row]) >= worker.config.train.seq_vae.min_windows
    )


@threads.single_threaded(if_small=True)
def learn(worker: Worker, ring: Ring, row: int) -> dict[str, Tensor]:
    """Gradient steps on windows of the replay -> metrics of the last of them; {} while there are too few windows."""
    found: dict[str, Tensor] = {}
    train = worker.config.train.seq_vae
    if ready(worker, ring, row):
        for _ in range(train.updates):
            sampled = windows.sample(ring, row, train.batch_size, train.length, worker.batch)
            found = update(worker, sampled, ring.stored)
    if int(ring.written) % REFRESH_EVERY == 0:
        worker.posterior = posterior.refreshed(worker.network, ring, row)
    return found


def update(worker: Worker, sampled: Windows, transitions: int) -> dict[str, Tensor]:
    """One step of the clipped gradient, in place."""
    loss, metrics = objective(worker, sampled, transitions)
    params = worker.optimizer.param_groups[0]["params"]
    for param in params:
        param.grad = None
    loss.backward()
    limit = worker.config.train.seq_vae.max_grad_norm
    norm = nn.utils.clip_grad_norm_(params, torch.inf if limit is None else limit, foreach=True)
    worker.optimizer.step()
    worker.updates += 1
    return metrics | {"grad_norm": norm}


class Objective(NamedTuple):
    """A loss, and what is noted of it."""

    loss: Float[Tensor, ""]
    metrics: dict[str, Tensor]


def objective(worker: Worker, sampled: Windows, transitions: int) -> Objective:
    """The loss of some windows: means over members, of each over the windows it sees, as often as it sees them."""
    network, train = worker.network, worker.config.train.seq_vae
    beta = losses.beta_at(train, worker.updates)
    scene = elbo.encode(network, sampled, train.burn_in)
    draws = elbo.draw(network.members, train.samples, train.horizons, scene, worker.elbo)
    if train.mask > 0 and beta > 0:
        draws = elbo.masked(draws, train.mask, worker.elbo)
    scored = elbo.score(network, scene, draws, network.horizon_mask_weights)
    terms = {
        name: _mean(worker, sampled, getattr(scored, name)) for name in losses.TERMS["seq_vae"][:-1]
    }
    terms["weight_prior"] = network.weight_prior()
    scales = losses.weights(train.window, transitions, beta)
    assert terms.keys() == scales.keys() == set(losses.TERMS["seq_vae"])
    loss = torch.stack([scales[name] * terms[name] for name in losses.TERMS["seq_vae"]]).sum()
    with torch.no_grad():
        exact = (
            elbo.evidence_bound(network, scene, draws) if draws.kept is not None else scored.bound
        )
        noted = {name: term.detach() for name, term in terms.items()} | {"elbo_exact": exact.mean()}
    others = {"loss": loss.detach(), "beta": network.nothing + beta}
    return Objective(loss, in_units(worker.config, noted, transitions) | others)


def _mean(
    worker: Worker, sampled: Windows, term: Float[Tensor, "*member batch"]
) -> Float[Tensor, ""]:
    """Over windows and members, each as often as the member sees the window; without an ensemble that is once."""
    if worker.network.members == 1:
        return term.mean()
    seen = worker.bootstrap.index_select(0, sampled.starts % len(worker.bootstrap))
    return (seen.T * term).mean()


def in_units(
    config: ActiveDynamicsConfig, terms: dict[str, Tensor], transitions: int
) -> dict[str, Tensor]:
    """Nats per time of a window and channel, or dimension of the state; the prior's per transition in the replay."""
    times, channels, d = config.train.seq_vae.window, config.env.observation.channels, config.env.d
    units = {
        "ell": times * channels,
        "kl_first": times * d,
        "kl_steps": times * d,
        "weight_prior": transitions,
    }
    units["elbo_exact"] = times * channels
    return {name: term / units[name] for name, term in terms.items()}
