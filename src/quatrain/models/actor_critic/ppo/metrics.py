"""measurements of an iteration -> metrics by name, and checks that they are finite."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from quatrain.envs.colony.rules import PARAMETERS, REASONS
from quatrain.models.actor_critic.ppo.rollout import LENGTH, RETURN, RolloutResult
from quatrain.models.actor_critic.ppo.trainer import Trainer
from quatrain.progress import TrainingDiverged, by_seed

FINITE_METRICS = ("loss_policy", "loss_value", "loss_entropy", "loss", "grad_norm")
MINIBATCH_METRICS = (
    *FINITE_METRICS,
    *("entropy", "approx_kl", "clip_fraction", "ratio_max_dev"),
)
Entries = Sequence[Sequence[Mapping[str, float]]]  # metrics of each iteration and seed


class UpdateResult(NamedTuple):
    """Holds the metrics of the minibatches, the last measured KL divergence, and whether it ended
    the iteration.
    """

    metrics: Float[Tensor, "minibatch metric"]
    approx_kl: float
    stopped: bool


def iteration_metrics(
    trainer: Trainer,
    collected: RolloutResult,
    updated: UpdateResult,
    rates: Mapping[str, float],
) -> dict[str, float]:
    means = dict(zip(MINIBATCH_METRICS, updated.metrics.mean(0).tolist(), strict=True))
    means.pop("ratio_max_dev")
    return {
        "transitions": float(trainer.iterations * trainer.config.train.batch),
        **_rollout_metrics(trainer, collected),
        **means,
        "approx_kl": updated.approx_kl,
        "ratio_first_max_dev": float(updated.metrics[0, MINIBATCH_METRICS.index("ratio_max_dev")]),
        "kl_stop": float(updated.stopped),
        "updates": float(trainer.updates),
        **rates,
    }


def _rollout_metrics(trainer: Trainer, collected: RolloutResult) -> dict[str, float]:
    """Returns metrics of the rollout; of episodes, those of the last rollout in which any ended."""
    rollout = trainer.rollout
    policy = trainer.actor.policy
    action = policy.action(rollout.raw_action.flatten(0, 1))
    episode = collected.state.episode_means
    components = [name for name, _ in trainer.config.env.reward.weighted]
    metrics = {
        "return": episode[RETURN],
        "length": episode[LENGTH],
        "episodes": collected.episodes,
        "nodes_mean": collected.nodes,
        "raw_entropy": policy.raw_entropy(rollout.dist_params.unbind(-2)).mean(),
    }
    if trainer.config.network.policy == "beta":
        metrics["concentration"] = rollout.dist_params.sum(-2).mean()
    for prefix, names, values in (
        ("reason", REASONS[1:], episode[3 : 2 + len(REASONS)]),
        ("reward", components, episode[2 + len(REASONS) :]),
        ("action_mean", PARAMETERS, action.mean(0)),
        ("action_std", PARAMETERS, action.std(0, correction=0)),
    ):
        metrics |= {f"{prefix}/{name}": value for name, value in zip(names, values, strict=True)}
    stacked = torch.stack([value.float() for value in metrics.values()])
    numbers = dict(zip(metrics, stacked.tolist(), strict=True))
    return numbers | {"success": numbers["reason/success"]}


def stack_entries(of_ranks: Sequence[Entries]) -> dict[str, Float[np.ndarray, "..."]]:
    """Returns means over ranks of the metrics since the last yield, as `Progress.metrics` holds
    them.
    """
    metrics = {}
    for name in of_ranks[0][0][0]:
        values = [[[seed[name] for seed in entry] for entry in rank] for rank in of_ranks]
        metrics[name] = np.array(values).mean(0)
    return by_seed(metrics)


def check_rewards(trainer: Trainer) -> None:
    """Checks that all rewards of the rollout are finite.

    Raises:
        TrainingDiverged: names the component and the colony.
    """
    components = trainer.rollout.components
    finite = components.isfinite().all().float()
    if float(trainer.process_group.all_reduce_mean(finite)) == 1:
        return
    if finite:
        raise TrainingDiverged("actor_critic: a reward of another rank is not finite")
    time, colony, component = (~components.isfinite()).nonzero()[0].tolist()
    name, _ = trainer.actor.world.rules.reward[component]
    raise TrainingDiverged(
        f"actor_critic: reward component {name} of colony {colony} is "
        f"{components[time, colony, component]} at iteration {trainer.iterations + 1}; "
        "lower its weight or actor_critic.env.action.bounds"
    )


def check_finite(
    trainer: Trainer,
    metrics: Float[Tensor, "minibatch metric"],
    updates: int,
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
                iteration = trainer.iterations + 1
                raise TrainingDiverged(
                    f"actor_critic: {name} is {value} at iteration {iteration}, transition "
                    f"{iteration * trainer.config.train.batch:,} (update {update:,}); "
                    "lower actor_critic.train.learning_rate"
                )
