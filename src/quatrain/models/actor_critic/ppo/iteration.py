"""trainer -> one iteration of proximal policy optimisation: rollout, advantages, epochs of gradient
steps.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from quatrain.models.actor_critic import losses
from quatrain.models.actor_critic.ppo import metrics, rollout
from quatrain.models.actor_critic.ppo.acting import round_up_width, sees_cells
from quatrain.models.actor_critic.ppo.policy import Params
from quatrain.models.actor_critic.ppo.trainer import Trainer
from quatrain.replay.rollouts import buffer, gae

SCALE_RATE = 0.05  # of the scale of values, per iteration
SMALLEST_STD = 1e-3


def run_iteration(trainer: Trainer) -> dict[str, float]:
    """Runs one iteration: collects a rollout, computes advantages, takes gradient steps. Changes
    the trainer in place.

    Raises:
        TrainingDiverged: something is not finite.
    """
    rates = scheduled_rates(trainer)
    collected = rollout.collect_rollout(
        trainer.actor,
        trainer.rollout_state,
        trainer.rollout,
        trainer.process_group,
    )
    metrics.check_rewards(trainer)
    transitions = compute_advantages(trainer)
    if trainer.config.train.value_norm == "running":
        normalise_values(trainer, transitions.returns)
    explained = losses.explained_variance(transitions.value, transitions.returns)
    updated = learn(trainer, transitions, rates)
    trainer.rollout_state = collected.state
    trainer.iterations += 1
    rates["explained_variance"] = float(explained)
    return metrics.iteration_metrics(trainer, collected, updated, rates)


def scheduled_rates(trainer: Trainer) -> dict[str, float]:
    """Returns learning rate and weight of the entropy, which change linearly with transitions, and
    the discount, of which 1 − γ changes geometrically: 'How to Discount Deep Reinforcement
    Learning' (2015).
    """
    train = trainer.config.train
    done = trainer.iterations / train.steps
    return {
        "learning_rate": train.learning_rate * (1 - done * (1 - train.lr_final_fraction)),
        "entropy_coef": train.entropy_start + done * (train.entropy_end - train.entropy_start),
        "discount": 1 - (1 - train.discount) ** (1 - done) * (1 - train.discount_end) ** done,
    }


def compute_advantages(trainer: Trainer) -> buffer.Transitions:
    """Returns the transitions of the rollout with returns, and advantages normalised over all
    ranks.
    """
    train = trainer.config.train
    group = trainer.process_group
    collected = trainer.rollout
    weights = trainer.actor.world.weights
    total = trainer.config.network.value_heads == "total"
    trace = gae.Trace(
        rewards=collected.components @ weights if total else collected.components,
        values=collected.value,
        next_values=collected.next_value,
        terminated=collected.terminated,
        truncated=collected.truncated,
    )
    discount = scheduled_rates(trainer)["discount"]
    estimate = gae.advantages(trace, discount, train.gae_lambda, train.gae)
    advantage = estimate.advantage if total else estimate.advantage @ weights
    of_ranks = gae.normalise(group.all_gather(advantage[None]))
    return buffer.to_transitions(collected, of_ranks[group.rank], estimate.returns)


def normalise_values(trainer: Trainer, returns: Float[Tensor, "transitions *component"]) -> None:
    """Moves the scale of normalised values towards mean and deviation of the returns of all ranks.

    The first iterations weigh alike, later ones with SCALE_RATE. The deviation is that of returns
    around the mean of their own rollout. The running second moment of 'Learning values across many
    orders of magnitude' (NeurIPS 2016) also counts how far that mean has drifted, so that values
    learn more slowly while returns rise: with it one of four seeds fails on two ridges
    (docs/results.md).
    """
    network = trainer.network
    of_ranks = trainer.process_group.all_gather(returns)
    rate = max(1 / (trainer.iterations + 1), SCALE_RATE)
    mean = torch.lerp(network.value_mean, of_ranks.mean(0), rate)
    variance = torch.lerp(network.value_std.square(), of_ranks.var(0, correction=0), rate)
    network.rescale_values(mean, variance.sqrt().clamp(min=SMALLEST_STD))


def learn(
    trainer: Trainer, transitions: buffer.Transitions, rates: dict[str, float]
) -> metrics.UpdateResult:
    """Takes gradient steps on minibatches for `epochs` passes, or until the KL divergence exceeds
    `target_kl`.
    """
    config = trainer.config.train
    for param_group in trainer.optimizer.param_groups:
        param_group["lr"] = rates["learning_rate"]
    on_cpu = transitions.n.is_cpu
    width = _width(trainer, transitions)
    size = config.minibatch_size // trainer.process_group.size
    approx_kl = 0.0
    measured: list[Tensor] = []
    for place, index in _shuffled_indices(trainer, len(transitions.n), size):
        batch = buffer.minibatch(transitions, index, width)
        loss, row = objective(trainer, batch, rates["entropy_coef"])
        # On a GPU, reading the KL divergence waits for the device: it is read once per epoch.
        if on_cpu or place == 0:
            approx_kl = float(row[metrics.MINIBATCH_METRICS.index("approx_kl")])
        if approx_kl > config.target_kl:
            break
        measured.append(gradient_step(trainer, loss * len(index) / size, row))
    rows = torch.stack(measured or [row]).cpu()
    metrics.check_finite(trainer, rows, trainer.updates - len(rows))
    return metrics.UpdateResult(rows, approx_kl, approx_kl > config.target_kl)


def _width(trainer: Trainer, transitions: buffer.Transitions) -> int | None:
    """Returns the width of all minibatches; None where each has widths of its own."""
    if not sees_cells(trainer.config):
        return 0
    if transitions.n.is_cpu and not trainer.config.train.compile:
        return None
    return round_up_width(trainer.actor, int(transitions.n.max()))


def _shuffled_indices(trainer: Trainer, count: int, size: int) -> Iterator[tuple[int, Tensor]]:
    """Yields indices of minibatches for all epochs, with the place of each in its epoch."""
    for _ in range(trainer.config.train.epochs):
        yield from enumerate(buffer.minibatch_indices(count, size, trainer.order))


def objective(
    trainer: Trainer,
    batch: buffer.Minibatch,
    entropy_coef: float,
) -> tuple[Float[Tensor, ""], Float[Tensor, " metric"]]:
    """Computes the loss of a minibatch, and its metrics in the order of MINIBATCH_METRICS."""
    config = trainer.config
    policy = trainer.actor.policy
    output = trainer.actor.forward(*batch.groups)
    params = policy.distribution(output.raw)
    ratio = losses.ratio(policy.log_prob(params, batch.raw_action), batch.log_prob)
    value_losses = losses.value(
        output.value,
        batch.value,
        batch.returns,
        value_weights(trainer),
        config.train.value_clip,
    )
    terms = {
        "loss_policy": losses.policy(ratio, batch.advantage, config.train.clip).mean(),
        "loss_value": value_losses.mean(),
        "loss_entropy": losses.entropy(policy.entropy(params)).mean(),
    }
    coefs = {
        "loss_policy": 1.0,
        "loss_value": config.train.value_coef,
        "loss_entropy": entropy_coef,
    }
    assert terms.keys() == coefs.keys() == set(losses.TERMS)
    loss = torch.stack([coefs[name] * terms[name] for name in losses.TERMS]).sum()
    return loss, _minibatch_metrics(trainer, batch, params, ratio, terms | {"loss": loss})


def value_weights(trainer: Trainer) -> Float[Tensor, "*component"]:
    """Returns the weights of squared errors of values: those of `losses.component_weights`, where a
    total is one component of weight 1. Values that are not normalised are weighted with |w_c|.
    """
    weights = trainer.actor.world.weights
    if trainer.config.network.value_heads == "total":
        weights = torch.ones(())
    if trainer.config.train.value_norm == "none":
        return weights.abs()
    return losses.component_weights(weights, trainer.network.value_std)


@torch.no_grad()
def _minibatch_metrics(
    trainer: Trainer,
    batch: buffer.Minibatch,
    params: Params,
    ratio: Float[Tensor, " minibatch"],
    terms: dict[str, Float[Tensor, ""]],
) -> Float[Tensor, " metric"]:
    policy = trainer.actor.policy
    measured = terms | {
        "grad_norm": terms["loss"] * 0,  # `gradient_step` fills it in
        "entropy": -terms["loss_entropy"],
        "approx_kl": trainer.process_group.all_reduce_mean(
            policy.kl(batch.dist_params.unbind(1), params).mean()
        ),
        "clip_fraction": losses.clip_fraction(ratio, trainer.config.train.clip),
        "ratio_max_dev": (ratio - 1).abs().max(),
    }
    return torch.stack([measured[name].detach() for name in metrics.MINIBATCH_METRICS])


def gradient_step(
    trainer: Trainer,
    loss: Float[Tensor, ""],
    row: Float[Tensor, " metric"],
) -> Float[Tensor, " metric"]:
    """Takes one step along the clipped gradient, in place, and returns the row with the gradient's
    norm.

    Raises:
        TrainingDiverged: on a CPU, before the step, where something is not finite.
    """
    trainer.optimizer.zero_grad()
    loss.backward()
    params = trainer.optimizer.param_groups[0]["params"]  # all, without a walk through the modules
    trainer.process_group.average_gradients(params)
    row[metrics.MINIBATCH_METRICS.index("grad_norm")] = nn.utils.clip_grad_norm_(
        params,
        trainer.config.train.max_grad_norm,
    )
    if row.is_cpu:
        metrics.check_finite(trainer, row[None], trainer.updates)
    trainer.optimizer.step()
    trainer.updates += 1
    return row
