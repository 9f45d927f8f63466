"""learner -> one iteration of proximal policy optimisation: rollout, advantages, epochs of gradient
steps.
"""

from collections.abc import Callable, Iterator
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from quatrain.models.actor_critic import losses
from quatrain.models.actor_critic.ppo import metrics
from quatrain.models.actor_critic.ppo.acting import round_up_width
from quatrain.models.actor_critic.ppo.learner import Learner
from quatrain.models.actor_critic.ppo.policy import Params
from quatrain.replay.rollouts import buffer, gae

SCALE_RATE = 0.05  # of the scale of values, per iteration
SMALLEST_STD = 1e-3

AnyLearner = TypeVar("AnyLearner", bound=Learner)


def run_iteration(
    learner: AnyLearner, collect: Callable[[AnyLearner], dict[str, float]]
) -> dict[str, float]:
    """Runs one iteration: collects a rollout, computes advantages, takes gradient steps. Changes
    the learner in place.

    Args:
        learner: whose environments `collect` knows.
        collect: fills `learner.rollout`, and returns metrics of it.

    Raises:
        TrainingDiverged: something is not finite.
    """
    rates = scheduled_rates(learner)
    collected = collect(learner)
    transitions = compute_advantages(learner)
    if learner.train.value_norm == "running":
        normalise_values(learner, transitions.returns)
    explained = losses.explained_variance(transitions.value, transitions.returns)
    updated = learn(learner, transitions, rates)
    learner.iterations += 1
    rates["explained_variance"] = float(explained)
    return metrics.iteration_metrics(learner, collected, updated, rates)


def scheduled_rates(learner: Learner) -> dict[str, float]:
    """Returns learning rate and weight of the entropy, which change linearly with transitions, and
    the discount, of which 1 − γ changes geometrically: 'How to Discount Deep Reinforcement
    Learning' (2015).
    """
    train = learner.train
    done = learner.iterations / train.steps
    return {
        "learning_rate": train.learning_rate * (1 - done * (1 - train.lr_final_fraction)),
        "entropy_coef": train.entropy_start + done * (train.entropy_end - train.entropy_start),
        "discount": 1 - (1 - train.discount) ** (1 - done) * (1 - train.discount_end) ** done,
    }


def compute_advantages(learner: Learner) -> buffer.Transitions:
    """Returns the transitions of the rollout with returns and normalised advantages."""
    train = learner.train
    collected = learner.rollout
    weights = learner.weights
    total = learner.network.total
    trace = gae.Trace(
        rewards=collected.components @ weights if total else collected.components,
        values=collected.value,
        next_values=collected.next_value,
        terminated=collected.terminated,
        truncated=collected.truncated,
    )
    discount = scheduled_rates(learner)["discount"]
    estimate = gae.advantages(trace, discount, train.gae_lambda, train.gae)
    advantage = estimate.advantage if total else estimate.advantage @ weights
    return buffer.to_transitions(collected, gae.normalise(advantage), estimate.returns)


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
    learner: Learner, transitions: buffer.Transitions, rates: dict[str, float]
) -> metrics.UpdateResult:
    """Takes gradient steps on minibatches for `epochs` passes, or until the KL divergence exceeds
    `target_kl`.
    """
    config = learner.train
    for param_group in learner.optimizer.param_groups:
        param_group["lr"] = rates["learning_rate"]
    on_cpu = transitions.n.is_cpu
    width = _width(learner, transitions)
    approx_kl = 0.0
    measured: list[Tensor] = []
    for place, index in _shuffled_indices(learner, len(transitions.n)):
        batch = buffer.minibatch(transitions, index, width)
        loss, row = objective(learner, batch, rates["entropy_coef"])
        # On a GPU, reading the KL divergence waits for the device: it is read once per epoch.
        if on_cpu or place == 0:
            approx_kl = float(row[metrics.MINIBATCH_METRICS.index("approx_kl")])
        if approx_kl > config.target_kl:
            break
        measured.append(gradient_step(learner, loss * len(index) / config.minibatch_size, row))
    rows = torch.stack(measured or [row]).cpu()
    metrics.check_finite(learner, rows, learner.updates - len(rows))
    return metrics.UpdateResult(rows, approx_kl, approx_kl > config.target_kl)


def _width(learner: Learner, transitions: buffer.Transitions) -> int | None:
    """Returns the width of all minibatches; None where each has widths of its own."""
    most = transitions.node.shape[1]
    if not most:
        return 0
    if transitions.n.is_cpu and not learner.compiled:
        return None
    return round_up_width(int(transitions.n.max()), most, learner.compiled)


def _shuffled_indices(learner: Learner, count: int) -> Iterator[tuple[int, Tensor]]:
    """Yields indices of minibatches for all epochs, with the place of each in its epoch."""
    size = learner.train.minibatch_size
    for _ in range(learner.train.epochs):
        yield from enumerate(buffer.minibatch_indices(count, size, learner.order))


def objective(
    learner: Learner,
    batch: buffer.Minibatch,
    entropy_coef: float,
) -> tuple[Float[Tensor, ""], Float[Tensor, " metric"]]:
    """Computes the loss of a minibatch, and its metrics in the order of MINIBATCH_METRICS."""
    config = learner.train
    policy = learner.policy
    output = learner.forward(*batch.groups)
    params = policy.distribution(output.raw)
    ratio = losses.ratio(policy.log_prob(params, batch.raw_action), batch.log_prob)
    value_losses = losses.value(
        output.value,
        batch.value,
        batch.returns,
        value_weights(learner),
        config.value_clip,
    )
    terms = {
        "loss_policy": losses.policy(ratio, batch.advantage, config.clip).mean(),
        "loss_value": value_losses.mean(),
        "loss_entropy": losses.entropy(policy.entropy(params)).mean(),
    }
    coefs = {
        "loss_policy": 1.0,
        "loss_value": config.value_coef,
        "loss_entropy": entropy_coef,
    }
    assert terms.keys() == coefs.keys() == set(losses.TERMS)
    loss = torch.stack([coefs[name] * terms[name] for name in losses.TERMS]).sum()
    return loss, _minibatch_metrics(learner, batch, params, ratio, terms | {"loss": loss})


def value_weights(learner: Learner) -> Float[Tensor, "*component"]:
    """Returns the weights of squared errors of values: those of `losses.component_weights`, where a
    total is one component of weight 1. Values that are not normalised are weighted with |w_c|.
    """
    weights = learner.weights
    if learner.network.total:
        weights = torch.ones(())
    if learner.train.value_norm == "none":
        return weights.abs()
    return losses.component_weights(weights, learner.network.value_std)


@torch.no_grad()
def _minibatch_metrics(
    learner: Learner,
    batch: buffer.Minibatch,
    params: Params,
    ratio: Float[Tensor, " minibatch"],
    terms: dict[str, Float[Tensor, ""]],
) -> Float[Tensor, " metric"]:
    policy = learner.policy
    measured = terms | {
        "grad_norm": terms["loss"] * 0,  # `gradient_step` fills it in
        "entropy": -terms["loss_entropy"],
        "approx_kl": policy.kl(batch.dist_params.unbind(1), params).mean(),
        "clip_fraction": losses.clip_fraction(ratio, learner.train.clip),
        "ratio_max_dev": (ratio - 1).abs().max(),
    }
    return torch.stack([measured[name].detach() for name in metrics.MINIBATCH_METRICS])


def gradient_step(
    learner: Learner,
    loss: Float[Tensor, ""],
    row: Float[Tensor, " metric"],
) -> Float[Tensor, " metric"]:
    """Takes one step along the clipped gradient, in place, and returns the row with the gradient's
    norm.

    Raises:
        TrainingDiverged: on a CPU, before the step, where something is not finite.
    """
    learner.optimizer.zero_grad()
    loss.backward()
    params = learner.optimizer.param_groups[0]["params"]  # all, without a walk through the modules
    row[metrics.MINIBATCH_METRICS.index("grad_norm")] = nn.utils.clip_grad_norm_(
        params,
        learner.train.max_grad_norm,
    )
    if row.is_cpu:
        metrics.check_finite(learner, row[None], learner.updates)
    learner.optimizer.step()
    learner.updates += 1
    return row
