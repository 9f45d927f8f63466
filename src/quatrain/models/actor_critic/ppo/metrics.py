"""measurements of an iteration -> metrics by name, and checks that they are finite."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from torch import Tensor

from quatrain.models.actor_critic.ppo.learner import Learner
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
    learner: Learner,
    collected: Mapping[str, float],
    updated: UpdateResult,
    rates: Mapping[str, float],
) -> dict[str, float]:
    means = dict(zip(MINIBATCH_METRICS, updated.metrics.mean(0).tolist(), strict=True))
    means.pop("ratio_max_dev")
    return {
        "transitions": float(learner.iterations * learner.train.batch),
        **collected,
        **means,
        "approx_kl": updated.approx_kl,
        "ratio_first_max_dev": float(updated.metrics[0, MINIBATCH_METRICS.index("ratio_max_dev")]),
        "kl_stop": float(updated.stopped),
        "updates": float(learner.updates),
        **rates,
    }


def stack_entries(entries: Entries) -> dict[str, Float[np.ndarray, "..."]]:
    """Returns the metrics since the last yield, as `Progress.metrics` holds them."""
    names = entries[0][0]
    return by_seed(
        {name: np.array([[seed[name] for seed in entry] for entry in entries]) for name in names}
    )


def check_finite(
    learner: Learner,
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
                iteration = learner.iterations + 1
                raise TrainingDiverged(
                    f"actor_critic: {name} is {value} at iteration {iteration}, transition "
                    f"{iteration * learner.train.batch:,} (update {update:,}); "
                    "lower actor_critic.train.learning_rate"
                )
