"""trainer -> its next rollout of colonies, and what is recorded of it."""

import torch

from quatrain.envs.colony.rules import PARAMETERS, REASONS
from quatrain.models.actor_critic.ppo import rollout
from quatrain.models.actor_critic.ppo.rollout import LENGTH, RETURN, RolloutResult
from quatrain.models.actor_critic.ppo.trainer import Trainer
from quatrain.progress import TrainingDiverged


def collect(trainer: Trainer) -> dict[str, float]:
    """Fills the trainer's rollout and moves its colonies, in place; returns metrics.

    Raises:
        TrainingDiverged: a reward is not finite.
    """
    collected = rollout.collect_rollout(trainer.actor, trainer.rollout_state, trainer.rollout)
    check_rewards(trainer)
    trainer.rollout_state = collected.state
    return _rollout_metrics(trainer, collected)


def check_rewards(trainer: Trainer) -> None:
    """Checks that all rewards of the rollout are finite.

    Raises:
        TrainingDiverged: names the component and the colony.
    """
    components = trainer.rollout.components
    if components.isfinite().all():
        return
    time, colony, component = (~components.isfinite()).nonzero()[0].tolist()
    name, _ = trainer.actor.world.rules.reward_weights[component]
    raise TrainingDiverged(
        f"actor_critic: reward component {name} of colony {colony} is "
        f"{components[time, colony, component]} at iteration {trainer.iterations + 1}; "
        "lower its weight or actor_critic.env.action.bounds"
    )


def _rollout_metrics(trainer: Trainer, collected: RolloutResult) -> dict[str, float]:
    """Returns metrics of the rollout; of episodes, those of the last rollout in which any ended."""
    rollout = trainer.rollout
    policy = trainer.policy
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
