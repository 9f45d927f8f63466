"""trainers, validation colonies -> returns of their deterministic policies, and the best weights"""

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float

from quatrain.envs.colony.episodes import episodes
from quatrain.envs.colony.rules import SUCCESS
from quatrain.models.actor_critic.collect import InitialColonies, make_colonies
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.ppo.acting import deterministic_policy
from quatrain.models.actor_critic.ppo.learner import score_if_due
from quatrain.models.actor_critic.ppo.state import Best
from quatrain.models.actor_critic.ppo.trainer import Trainer
from quatrain.progress import by_seed

NAMES = ("validation_return", "validation_success")


def validate_if_due(
    trainers: Sequence[Trainer], initial: InitialColonies
) -> Mapping[str, Float[np.ndarray, "..."]]:
    """Evaluates all learners if that is due, and keeps the weights of each that were best so far,
    in place (`learner.score_if_due`).

    Returns the metrics of the evaluation as `Progress.metrics` holds them: no entry if none was
    due.
    """
    scores = score_if_due(trainers, lambda trainer: validate(trainer, initial), len(NAMES))
    if len(scores):
        _warn_half_way(trainers, scores[0, :, 1])
    return by_seed(dict(zip(NAMES, np.moveaxis(scores, 2, 0), strict=True)))


@torch.no_grad()
def validate(trainer: Trainer, initial: InitialColonies) -> tuple[float, float]:
    """Returns the mean return, undiscounted, and the share of successes of one episode of each
    colony.
    """
    world = trainer.actor.world
    colonies = make_colonies(world.rules, initial)
    total = torch.zeros((), dtype=torch.float64)
    successes = torch.zeros((), dtype=torch.int64)
    for step in episodes(world, colonies, deterministic_policy(trainer.actor)):
        total += step.reward.double().sum()
        successes += (step.transition.reason == SUCCESS).sum()
    return float(total) / len(initial.n), int(successes) / len(initial.n)


def _warn_half_way(trainers: Sequence[Trainer], successes: Float[np.ndarray, " learner"]) -> None:
    """Warns once, in the first evaluation of the second half of the training, of learners that have
    no success in this evaluation nor with their best weights.
    """
    config = trainers[0].config
    train = config.train
    done = trainers[0].iterations
    before = (done - 1) // train.evaluate_every * train.evaluate_every
    if before < train.steps / 2 <= done:
        best_successes = [
            max(success, _success(trainer.best))
            for trainer, success in zip(trainers, successes, strict=True)
        ]
        warn_without_success(config, "validation", done * train.batch, best_successes)


def _success(best: Best) -> float:
    return float(best.validation_success or 0)


def warn_without_success(
    config: ActorCriticConfig,
    colonies: str,
    transitions: int,
    successes: Sequence[float],
) -> None:
    """Warns of learners without a success: which, after how many transitions, and what may help."""
    failing = [str(index) for index, success in enumerate(successes) if success == 0]
    if failing:
        warnings.warn(
            f"actor_critic: after {transitions:,} transitions no {colonies} colony reaches "
            f"the goal (learner {', '.join(failing)}): {_advice(config)}",
            stacklevel=2,
        )


def _advice(config: ActorCriticConfig) -> str:
    if "forfeit" in dict(config.env.reward.weighted):
        return "lower actor_critic.train.discount or raise .transitions"
    return (
        "ending early may pay more than moving slowly; lower actor_critic.train.discount, raise "
        ".transitions, or set actor_critic.env.reward.preset: goal_control_safe"
    )
