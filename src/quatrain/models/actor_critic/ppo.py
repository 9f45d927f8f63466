"""learner -> one iteration of proximal policy optimisation: rollout, advantages, epochs of gradient
steps, and what is recorded of them
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Generator, Tensor, nn

from quatrain.errors import TrainingDiverged
from quatrain.frameworks.torch import Adam
from quatrain.models.actor_critic import losses
from quatrain.models.actor_critic.config import Config
from quatrain.models.actor_critic.network import Actor, Network
from quatrain.models.actor_critic.policy import BoxPolicy, Params
from quatrain.replay import rollouts
from quatrain.replay.rollouts import Envs, Minibatch, Rollout, Transitions

# The return of weights before their first evaluation: below any other, and finite as files need it.
NOT_EVALUATED = torch.finfo(torch.float32).min
SCALE_RATE = 0.05  # of the scale of values, per iteration
SMALLEST_STD = 1e-3
FINITE_METRICS = ("loss_policy", "loss_value", "loss_entropy", "loss", "grad_norm")
MINIBATCH_METRICS = (*FINITE_METRICS, *("entropy", "approx_kl", "clip_fraction", "ratio_max_dev"))


class Best(NamedTuple):
    """Holds the weights of highest return in a periodic evaluation, with which the policy is
    evaluated and served; without such evaluations the last weights.

    validation_success: None where episodes have no success.
    """

    params: dict[str, Tensor]
    validation_return: Float[Tensor, ""]
    validation_success: Float[Tensor, ""] | None
    iteration: Int64[Tensor, ""]

    @property
    def was_validated(self) -> bool:
        return float(self.validation_return) > NOT_EVALUATED


@dataclass
class Learner:
    """Holds a policy in training, with its environments; an iteration changes it in place."""

    config: Config
    actor: Actor
    network: Network
    optimizer: Adam
    envs: Envs
    scale: Any
    draws: Generator
    order: Generator
    rollout: Rollout
    best: Best
    iterations: int
    updates: int


def run_iteration(learner: Learner) -> dict[str, float]:
    """Runs one iteration: collects a rollout, computes advantages, takes gradient steps. Changes
    the learner in place; returns metrics.

    Raises:
        TrainingDiverged: something is not finite.
    """
    rates = scheduled_rates(learner)
    collected = collect(learner)
    transitions = compute_advantages(learner)
    if learner.config.train.value_norm == "running":
        normalise_values(learner, transitions.returns)
    explained = losses.explained_variance(transitions.value, transitions.returns)
    rows, approx_kl = learn(learner, transitions, rates)
    learner.network.end_iteration(transitions.graph)
    learner.iterations += 1
    rates["explained_variance"] = float(explained)
    return collected | iteration_metrics(learner, rows, approx_kl) | rates


# Rollout.


@torch.no_grad()
def collect(learner: Learner) -> dict[str, float]:
    """Fills the rollout and moves the environments, in place; returns metrics of it.

    Raises:
        TrainingDiverged: a reward is not finite.
    """
    fill_rollout(learner)
    rollout, policy = learner.rollout, learner.actor.policy
    action = policy.action(rollout.raw_action.flatten(0, 1))
    measured = {
        **learner.envs.end_rollout(rollout, action, learner.iterations + 1),
        **policy.metrics(rollout.dist_params.unbind(-2)),
    }
    numbers = torch.stack([torch.as_tensor(value).float() for value in measured.values()])
    return dict(zip(measured, numbers.tolist(), strict=True))


@torch.no_grad()
def fill_rollout(learner: Learner) -> None:
    """Steps the environments `horizon` times; the value behind a truncated episode is that of its
    final state.

    Exploration by numbers is correlated over `noise_hold` steps, which the same random numbers
    draw: as colored noise in PPO (Hollenstein et al., 2024), whatever the distribution. Indices
    are drawn in each step, since held ones would repeat an action.
    """
    envs, rollout, actor = learner.envs, learner.rollout, learner.actor
    hold = learner.config.train.noise_hold if isinstance(actor.policy, BoxPolicy) else 1
    finals = []
    noise = learner.draws.get_state()
    for time in range(learner.config.train.horizon):
        if time % hold == 0:
            noise = learner.draws.get_state()
        learner.draws.set_state(noise)
        finals.append(_step(learner, time))
    last_value = actor.forward(envs.observe()).value
    final = envs.observe_final(finals, rollout.truncated)
    final_value = last_value[:0] if final is None else actor.eager(final).value
    rollouts.fill_next_values(rollout, last_value, final_value)


def _step(learner: Learner, time: int) -> object:
    """Takes a step of all environments and records it; returns their final states."""
    policy = learner.actor.policy
    graphs = learner.envs.observe()
    output = learner.actor.forward(graphs)
    params = policy.distribution(output.raw)
    raw_action = policy.sample(params, learner.draws)
    stepped = learner.envs.step(policy.action(raw_action))
    rollouts.write(
        learner.rollout,
        time,
        graphs,
        raw_action=raw_action,
        log_prob=policy.log_prob(params, raw_action),
        dist_params=torch.stack(params, 1),
        value=output.value,
        components=stepped.components,
        terminated=stepped.terminated,
        truncated=stepped.truncated,
    )
    return stepped.final


# Updates.


def scheduled_rates(learner: Learner) -> dict[str, float]:
    """Returns learning rate and weight of the entropy, which change linearly with transitions, and
    the discount, of which 1 − γ changes geometrically: 'How to Discount Deep Reinforcement
    Learning' (2015).
    """
    train = learner.config.train
    done = learner.iterations / train.steps
    return {
        "learning_rate": train.learning_rate * (1 - done * (1 - train.lr_final_fraction)),
        "entropy_coef": train.entropy_start + done * (train.entropy_end - train.entropy_start),
        "discount": 1 - (1 - train.discount) ** (1 - done) * (1 - train.discount_end) ** done,
    }


def compute_advantages(learner: Learner) -> Transitions:
    """Returns the transitions of the rollout with returns and normalised advantages."""
    rollout, weights = learner.rollout, learner.envs.weights
    total = learner.network.total
    advantage, returns = rollouts.advantages(
        rollout.components @ weights if total else rollout.components,
        rollout.value,
        rollout.next_value,
        rollout.terminated,
        rollout.truncated,
        scheduled_rates(learner)["discount"],
        learner.config.train.gae_lambda,
    )
    if not total:
        advantage = advantage @ weights
    return rollouts.to_transitions(rollout, rollouts.normalise(advantage), returns)


def normalise_values(learner: Learner, returns: Float[Tensor, "transitions *component"]) -> None:
    """Moves the scale of normalised values towards mean and deviation of the returns.

    The first iterations weigh alike, later ones with SCALE_RATE. The deviation is that of returns
    around the mean of their own rollout. The running second moment of 'Learning values across many
    orders of magnitude' (NeurIPS 2016) also counts how far that mean has drifted, so that values
    learn more slowly while returns rise: with it one of four seeds fails on two ridges
    (docs/results.md).
    """
    network = learner.network
    rate = max(1 / (learner.iterations + 1), SCALE_RATE)
    mean = torch.lerp(network.value_mean, returns.mean(0), rate)
    variance = torch.lerp(network.value_std.square(), returns.var(0, correction=0), rate)
    network.rescale_values(mean, variance.sqrt().clamp(min=SMALLEST_STD))


def learn(
    learner: Learner, transitions: Transitions, rates: dict[str, float]
) -> tuple[Float[Tensor, "minibatch metric"], float]:
    """Takes gradient steps on minibatches for `epochs` passes, or until the KL divergence exceeds
    `target_kl`; returns the metrics of the minibatches, and the last KL divergence.
    """
    config = learner.config.train
    learner.optimizer.lr = rates["learning_rate"]
    on_cpu = transitions.n.is_cpu
    width = _width(learner, transitions)
    approx_kl = 0.0
    measured: list[Tensor] = []
    for place, index in _shuffled_indices(learner, len(transitions.n)):
        batch = rollouts.minibatch(transitions, index, width)
        loss, row = objective(learner, batch, rates["entropy_coef"])
        # On a GPU, reading the KL divergence waits for the device: it is read once per epoch.
        if on_cpu or place == 0:
            approx_kl = float(row[MINIBATCH_METRICS.index("approx_kl")])
        if approx_kl > config.target_kl:
            break
        measured.append(gradient_step(learner, loss * len(index) / config.minibatch_size, row))
    rows = torch.stack(measured or [row]).cpu()
    check_finite(learner, rows, learner.updates - len(rows))
    return rows, approx_kl


def _width(learner: Learner, transitions: Transitions) -> int | None:
    """Returns the width of all minibatches; None where each has widths of its own."""
    most = transitions.node.shape[1]
    if not most:
        return 0
    compiled = learner.config.train.compile
    if transitions.n.is_cpu and not compiled:
        return None
    return rollouts.round_up_width(int(transitions.n.max()), most, compiled)


def _shuffled_indices(learner: Learner, count: int) -> Iterator[tuple[int, Tensor]]:
    """Yields indices of minibatches for all epochs, with the place of each in its epoch."""
    size = learner.config.train.minibatch_size
    for _ in range(learner.config.train.epochs):
        yield from enumerate(rollouts.minibatch_indices(count, size, learner.order))


def objective(
    learner: Learner, batch: Minibatch, entropy_coef: float
) -> tuple[Float[Tensor, ""], Float[Tensor, " metric"]]:
    """Computes the loss of a minibatch, and its metrics in the order of MINIBATCH_METRICS."""
    config = learner.config.train
    policy = learner.actor.policy
    output = learner.actor.forward(*batch.groups)
    params = policy.distribution(output.raw)
    ratio = losses.ratio(policy.log_prob(params, batch.raw_action), batch.log_prob)
    value_losses = losses.value(
        output.value, batch.value, batch.returns, value_weights(learner), config.value_clip
    )
    terms = {
        "loss_policy": losses.policy(ratio, batch.advantage, config.clip).mean(),
        "loss_value": value_losses.mean(),
        "loss_entropy": -policy.entropy(params).mean(),
    }
    coefs = {"loss_policy": 1.0, "loss_value": config.value_coef, "loss_entropy": entropy_coef}
    assert terms.keys() == coefs.keys() == set(losses.TERMS)
    loss = torch.stack([coefs[name] * terms[name] for name in losses.TERMS]).sum()
    return loss, _minibatch_metrics(learner, batch, params, ratio, terms | {"loss": loss})


def value_weights(learner: Learner) -> Float[Tensor, "*component"]:
    """Returns the weights of squared errors of values: those of `losses.component_weights`, where a
    total is one component of weight 1. Values that are not normalised are weighted with |w_c|.
    """
    weights = learner.envs.weights
    if learner.network.total:
        weights = torch.ones(())
    if learner.config.train.value_norm == "none":
        return weights.abs()
    return losses.component_weights(weights, learner.network.value_std)


@torch.no_grad()
def _minibatch_metrics(
    learner: Learner,
    batch: Minibatch,
    params: Params,
    ratio: Float[Tensor, " minibatch"],
    terms: dict[str, Float[Tensor, ""]],
) -> Float[Tensor, " metric"]:
    policy = learner.actor.policy
    measured = terms | {
        "grad_norm": terms["loss"] * 0,  # `gradient_step` fills it in
        "entropy": -terms["loss_entropy"],
        "approx_kl": policy.kl(batch.dist_params.unbind(1), params).mean(),
        "clip_fraction": losses.clip_fraction(ratio, learner.config.train.clip),
        "ratio_max_dev": (ratio - 1).abs().max(),
    }
    return torch.stack([measured[name].detach() for name in MINIBATCH_METRICS])


def gradient_step(
    learner: Learner, loss: Float[Tensor, ""], row: Float[Tensor, " metric"]
) -> Float[Tensor, " metric"]:
    """Takes one step along the clipped gradient, in place, and returns the row with the gradient's
    norm.

    Raises:
        TrainingDiverged: on a CPU, before the step, where something is not finite.
    """
    learner.optimizer.zero_grad()
    loss.backward()
    row[MINIBATCH_METRICS.index("grad_norm")] = nn.utils.clip_grad_norm_(
        learner.optimizer.params, learner.config.train.max_grad_norm
    )
    if row.is_cpu:
        check_finite(learner, row[None], learner.updates)
    learner.optimizer.step()
    learner.updates += 1
    return row


# Metrics.


def iteration_metrics(
    learner: Learner, rows: Float[Tensor, "minibatch metric"], approx_kl: float
) -> dict[str, float]:
    means = dict(zip(MINIBATCH_METRICS, rows.mean(0).tolist(), strict=True))
    means.pop("ratio_max_dev")
    train = learner.config.train
    return means | {
        "transitions": float(learner.iterations * train.batch),
        "approx_kl": approx_kl,
        "ratio_first_max_dev": float(rows[0, MINIBATCH_METRICS.index("ratio_max_dev")]),
        "kl_stop": float(approx_kl > train.target_kl),
        "updates": float(learner.updates),
    }


def check_finite(
    learner: Learner, metrics: Float[Tensor, "minibatch metric"], updates: int
) -> None:
    """Checks that FINITE_METRICS are finite; `updates` gradient steps precede the first of these
    minibatches.

    Raises:
        TrainingDiverged: names the first metric that is not, the iteration, the update, and the key
            to lower.
    """
    for update, values in enumerate(metrics[:, : len(FINITE_METRICS)].tolist(), updates + 1):
        for name, value in zip(FINITE_METRICS, values, strict=True):
            if not math.isfinite(value):
                iteration = learner.iterations + 1
                raise TrainingDiverged(
                    f"actor_critic: {name} is {value} at iteration {iteration}, transition "
                    f"{iteration * learner.config.train.batch:,} (update {update:,}); "
                    "lower actor_critic.train.learning_rate"
                )
