"""side, environment, seed -> JSON: mean return of held-out episodes, CPU seconds of the training

`python -m benchmarks.environments.learn SIDE ENVIRONMENT SEED`, in a process of one thread. Each
side validates as it learns, keeps its best weights, and plays the same number of held-out episodes
without exploring. Seconds are those of the training with its validation; held-out episodes are in
none. What an environment is refused with is `{"refused": line}`.
"""

import json
import sys
import time
import warnings
from contextlib import closing
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.environments.tasks import PPO, Task, read
from benchmarks.rows import PEER, RANDOM

EPISODES = 40
"""Held-out ones."""
VALIDATIONS, VALIDATION_EPISODES = 8, 8
"""Of stable-baselines3, about what `evaluate.budget` gives ours."""
HELD_OUT_SEED = 1_000_000


def learn(task: Task, learner: str, seed: int) -> dict[str, Any]:
    """Trains one of ours with the preset of the task."""
    from quatrain.api.configs import make_params
    from quatrain.api.learning import Watch, train, untrained
    from quatrain.api.session import computing

    changes = {"env": task.keys, "seeds": 1, "train": task.length(learner)}
    params = make_params(learner, task.preset, changes, seed=seed, device="cpu", threads=1)
    with computing(params, learner):
        began = time.process_time()
        result = train(untrained(params, learner), Watch())
        seconds = time.process_time() - began
    return {"return": result.evaluate(EPISODES, seed).mean, "cpu": seconds}


def act_at_random(task: Task, seed: int) -> dict[str, Any]:
    """Plays actions that are drawn uniformly."""
    from quatrain.api.configs import make_params
    from quatrain.api.session import computing
    from quatrain.envs.host.envs import MOST_ENVS, HostEnvs, play_range
    from quatrain.envs.host.references import random_policy

    learner = next(iter(task.transitions))
    params = make_params(learner, task.preset, {"env": task.keys}, seed=seed, threads=1)
    config = getattr(params, learner)
    make_envs = getattr(config.world, "Envs", HostEnvs)
    count = min(EPISODES, MOST_ENVS)
    with (
        computing(params, learner),
        closing(make_envs(config.env, count, HELD_OUT_SEED + seed)) as envs,
    ):
        act = random_policy(envs.interface, np.random.default_rng(seed))
        return {"return": float(play_range(envs, lambda: act, 0, EPISODES).returns.mean())}


def learn_peer(task: Task, seed: int) -> dict[str, Any]:
    """Trains PPO of stable-baselines3 with the task's settings of rl-baselines3-zoo."""
    import stable_baselines3
    import torch
    from stable_baselines3.common.callbacks import EvalCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecNormalize

    torch.set_num_threads(1)
    settings = {name: scheduled(value) for name, value in (task.zoo or {}).items()}
    count, is_normalized = settings.pop("n_envs", 1), settings.pop("normalize", False)
    policy = dict(settings.pop("policy_kwargs", {}))
    if "activation_fn" in policy:
        policy["activation_fn"] = getattr(torch.nn, policy["activation_fn"])

    def vectorized(envs: int, first: int, is_training: bool) -> Any:
        envs_of_task = make_vec_env(lambda: make(task), n_envs=envs, seed=first)
        gamma = settings.get("gamma", 0.99)
        if not is_normalized:
            return envs_of_task
        return VecNormalize(
            envs_of_task, training=is_training, norm_reward=is_training, gamma=gamma
        )

    def scored(model: Any, envs: Any) -> float:
        return float(evaluate_policy(model, envs, EPISODES, deterministic=True)[0])

    env, others = vectorized(count, seed, True), vectorized(1, seed + HELD_OUT_SEED, False)
    with TemporaryDirectory() as folder:
        every = max(1, task.transitions[PPO] // VALIDATIONS // count)
        watching = EvalCallback(
            others,
            n_eval_episodes=VALIDATION_EPISODES,
            eval_freq=every,
            best_model_save_path=folder,
            callback_on_new_best=keeping(env, f"{folder}/scale") if is_normalized else None,
            verbose=0,
        )
        began = time.process_time()
        model = stable_baselines3.PPO(
            "MlpPolicy", env, seed=seed, device="cpu", policy_kwargs=policy, **settings
        )
        model.learn(task.transitions[PPO], callback=watching)
        seconds = time.process_time() - began
        best = stable_baselines3.PPO.load(Path(folder) / "best_model", device="cpu")
        held_out = vectorized(1, seed + 2 * HELD_OUT_SEED, False)
        if is_normalized:
            held_out.obs_rms = VecNormalize.load(f"{folder}/scale", held_out.venv).obs_rms
        return {"return": scored(best, held_out), "cpu": seconds}


def scheduled(value: Any) -> Any:
    """Returns what "linear 0.2" stands for: a value that falls to 0."""
    if isinstance(value, str):
        return lambda left: left * float(value.split()[1])
    return value


def make(task: Task) -> Any:
    """Makes the environment as ours is made."""
    import gymnasium

    keys = task.keys
    if keys.get("import"):
        import_module(keys["import"])
    env = gymnasium.make(keys["id"], **keys.get("kwargs", {}))
    for wrapper in keys.get("wrappers", []):
        module, name = wrapper.split(":")
        env = getattr(import_module(module), name)(env)
    return env


def keeping(env: Any, file: str) -> Any:
    """Returns a callback that saves the scale of observations beside the best weights."""
    from stable_baselines3.common.callbacks import BaseCallback

    class Keeping(BaseCallback):
        def _on_step(self) -> bool:
            env.save(file)
            return True

    return Keeping()


def main(side: str, name: str, seed: int) -> dict[str, Any]:
    from quatrain.errors import ConfigError, DataError

    task = read()[name]
    try:
        if side == RANDOM:
            return act_at_random(task, seed)
        return learn_peer(task, seed) if side == PEER else learn(task, side, seed)
    except (ConfigError, DataError) as error:
        return {"refused": " ".join(str(error).split())}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(main(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
