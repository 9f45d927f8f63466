"""algorithm, seed -> a line of JSON: stable-baselines3 with rl-baselines3-zoo's settings

Hyperparameters: github.com/DLR-RM/rl-baselines3-zoo, hyperparams/dqn.yml and ppo.yml, CartPole-v1.
The best weights of evaluations while training are judged, as this project's are.
"""

import json
import sys
import time
from typing import Any

import numpy as np
import torch
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

GOAL = 475.0
EPISODES = 100
EVALUATION_EPISODES = 20
EVALUATIONS = 12
TRANSITIONS = {"sb3_dqn": 50_000, "sb3_ppo": 100_000}
# Seeds of environments: of evaluations while training, and of the held-out episodes.
VALIDATION, HELD_OUT = 1_000_000, 2_000_000


class KeepBest(BaseCallback):
    """Evaluates the greedy policy at intervals, and keeps the best weights."""

    def __init__(self, every: int, seed: int) -> None:
        super().__init__()
        self.every = every
        self.seed = seed
        self.best_return = -np.inf
        self.weights: dict[str, Any] = {}
        self.solved: float | None = None
        self.next = every

    def _on_step(self) -> bool:
        if self.num_timesteps >= self.next:
            self.next += self.every
            self.evaluate()
        return True

    def evaluate(self) -> None:
        mean = held_out_returns(self.model, self.seed, EVALUATION_EPISODES).mean()
        if mean >= self.best_return:
            self.best_return = mean
            self.weights = {
                name: value.clone() for name, value in self.model.policy.state_dict().items()
            }
        if self.solved is None and mean >= GOAL:
            self.solved = time.process_time()


def held_out_returns(model: Any, seed: int, episodes: int) -> np.ndarray:
    envs = make_vec_env("CartPole-v1", n_envs=1, seed=seed)
    returns, _ = evaluate_policy(model, envs, episodes, return_episode_rewards=True)
    return np.array(returns)


def make(learner: str, seed: int) -> Any:
    if learner == "sb3_dqn":
        return DQN(
            "MlpPolicy",
            make_vec_env("CartPole-v1", n_envs=1, seed=seed),
            learning_rate=2.3e-3,
            batch_size=64,
            buffer_size=100_000,
            learning_starts=1000,
            gamma=0.99,
            target_update_interval=10,
            train_freq=256,
            gradient_steps=128,
            exploration_fraction=0.16,
            exploration_final_eps=0.04,
            policy_kwargs={"net_arch": [256, 256]},
            seed=seed,
            device="cpu",
        )
    return PPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=8, seed=seed),
        n_steps=32,
        batch_size=256,
        gae_lambda=0.8,
        gamma=0.98,
        n_epochs=20,
        ent_coef=0.0,
        learning_rate=lambda left: left * 0.001,
        clip_range=lambda left: left * 0.2,
        seed=seed,
        device="cpu",
    )


def train(learner: str, seed: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    model = make(learner, seed)
    total = TRANSITIONS[learner]
    best = KeepBest(total // EVALUATIONS, VALIDATION + seed)
    model.learn(total, callback=best)
    seconds = time.process_time()
    last = held_out_returns(model, HELD_OUT + seed, EPISODES).mean()
    model.policy.load_state_dict(best.weights)
    return {
        "return_mean": float(held_out_returns(model, HELD_OUT + seed, EPISODES).mean()),
        "last_return_mean": float(last),
        "solved_seconds": best.solved,
        "seconds": seconds,
        "transitions": total,
    }


if __name__ == "__main__":
    print(json.dumps(train(sys.argv[1], int(sys.argv[2]))))
