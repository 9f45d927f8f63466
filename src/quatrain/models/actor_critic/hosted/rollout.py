"""a trainer -> its next rollout, stepped on the host, and what is recorded of it"""

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

from quatrain.envs.host.envs import Turn
from quatrain.models.actor_critic.hosted.acting import to_actions, to_graphs
from quatrain.models.actor_critic.hosted.trainer import HostTrainer
from quatrain.models.actor_critic.ppo.iteration import run_iteration
from quatrain.replay.rollouts import buffer


def run_hosted_iteration(trainer: HostTrainer) -> dict[str, float]:
    """Runs one iteration, in place; the scale of observations follows after it.

    Raises:
        TrainingDiverged: something is not finite.
        DataError: an environment raised.
    """
    metrics = run_iteration(trainer, collect)
    if trainer.config.network.observation_scale == "running":
        trainer.array_network.measure(trainer.rollout.graph.flatten(0, 1))
    return metrics


@torch.no_grad()
def collect(trainer: HostTrainer) -> dict[str, float]:
    """Fills the trainer's rollout and moves its environments, in place; returns metrics."""
    final_obs = []
    ended = []
    for time in range(trainer.train.horizon):
        turn = _step(trainer, time)
        final_obs.append(turn.next_obs[turn.truncated, 0])
        ended.append(_end_episodes(trainer, turn))
    last_value = _value(trainer, trainer.envs.obs[:, 0])
    buffer.fill_next_values(trainer.rollout, last_value, _value(trainer, np.concatenate(final_obs)))
    episodes = np.concatenate(ended)
    if len(episodes):
        trainer.episode_means = episodes.mean(0)
    mean_return, length = trainer.episode_means.tolist()
    return {"return": mean_return, "length": length, "episodes": float(len(episodes))}


def _value(trainer: HostTrainer, obs: np.ndarray) -> Tensor:
    return trainer.forward(to_graphs(obs)).value


def _step(trainer: HostTrainer, time: int) -> Turn:
    policy = trainer.policy
    graphs = to_graphs(trainer.envs.obs[:, 0])
    output = trainer.forward(graphs)
    params = policy.distribution(output.raw)
    raw_action = policy.sample(params, trainer.draws)
    turn = trainer.envs.step(to_actions(policy, raw_action))
    buffer.write(
        trainer.rollout,
        time,
        buffer.Step(
            graphs=graphs,
            raw_action=raw_action,
            log_prob=policy.log_prob(params, raw_action),
            dist_params=torch.stack(params, 1),
            value=output.value,
            components=torch.tensor(turn.rewards),
            terminated=torch.tensor(turn.terminated),
            truncated=torch.tensor(turn.truncated),
        ),
    )
    return turn


def _end_episodes(trainer: HostTrainer, turn: Turn) -> Float32[np.ndarray, "episode 2"]:
    """Adds the step to the running episodes, in place; returns those that end with it."""
    trainer.running += np.stack([turn.rewards[:, 0], np.ones(len(turn.rewards), np.float32)], 1)
    over = turn.terminated | turn.truncated
    ended = trainer.running[over]
    trainer.running[over] = 0
    return ended
