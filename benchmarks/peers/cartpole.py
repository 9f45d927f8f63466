"""seeds -> a row: CPU seconds until PPO holds CartPole's pole, the start of a process included

Ours, actor_critic, has the settings of presets/gymnasium.yaml, stable-baselines3 those of
rl-baselines3-zoo, rejax those of its own configs/gymnax/cartpole.yaml. Each run is a process with
one thread: `python -m benchmarks.peers.cartpole LIBRARY SEED` prints its seconds.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.rows import OURS, Row, Times
from benchmarks.timing import NotComparable

GOAL, EVERY = 475.0, 8192
"""Mean return that counts as held, of greedy episodes every so many transitions."""
EPISODES, MOST, SEEDS = 20, 300_000, 3
NOTE = "CPU seconds of one thread until greedy episodes return 475, start and compilation included"
ZOO = {
    "n_steps": 32,
    "batch_size": 256,
    "gae_lambda": 0.8,
    "gamma": 0.98,
    "n_epochs": 20,
    "ent_coef": 0.0,
    "learning_rate": lambda left: left * 0.001,
    "clip_range": lambda left: left * 0.2,
}
ENVIRONMENTS, PUBLISHED = 8, 100_000
"""Of ZOO; transitions over which its schedules run."""
REJAX = {
    "agent_kwargs": {"activation": "tanh"},
    "num_envs": 5,
    "num_steps": 100,
    "num_epochs": 5,
    "num_minibatches": 5,
    "learning_rate": 0.00075,
    "max_grad_norm": 0.5,
}


def rows() -> list[Row]:
    """Trains with several seeds, one after another."""
    sides = {
        library: Times([seconds(library, seed) for seed in range(SEEDS)]) for library in LIBRARIES
    }
    return [Row("PPO on CartPole-v1 to a return of 475", "s", sides, note=NOTE)]


def seconds(library: str, seed: int) -> float:
    """Trains in a process of its own.

    Raises:
        NotComparable: it does not hold the pole.
    """
    print(f"  CartPole-v1, {library}, seed {seed}", file=sys.stderr, flush=True)
    variables = {"OMP_NUM_THREADS": "1", "NPROC": "1", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "benchmarks.peers.cartpole", library, str(seed)]
    done = subprocess.run(command, env=os.environ | variables, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise NotComparable(f"{library}, seed {seed}: no return of {GOAL:g} on CartPole-v1")
    return float(done.stdout.split()[-1])


def train_ours(seed: int) -> bool:
    from pipeline.runtime.stage import prepare_process
    from pipeline.storage.params_file import read_params
    from quatrain.devices import on_device
    from quatrain.registry import load

    params = read_params(Path.cwd(), "gymnasium").model_copy(update={"threads": 1})
    prepare_process(params)
    with on_device(params, "torch"):
        config = params.actor_critic.model_copy(update={"seeds": 1})
        modules = load("actor_critic")
        dataset = modules.collect.collect(config, seed)
        progress = modules.train.train(config, dataset, seed + 100)
        greedy = (each.metrics["validation_return"] for each in progress)
        return any(len(returns) and returns[-1] >= GOAL for returns in greedy)


def train_stable_baselines3(seed: int) -> bool:
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import EvalCallback, StopTrainingOnRewardThreshold
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(1)
    env = make_vec_env("CartPole-v1", n_envs=ENVIRONMENTS, seed=seed)
    others = make_vec_env("CartPole-v1", seed=seed + 1_000_000)
    model = PPO("MlpPolicy", env, seed=seed, device="cpu", **ZOO)
    stop, turns = StopTrainingOnRewardThreshold(GOAL), EVERY // ENVIRONMENTS
    watching = EvalCallback(others, stop, n_eval_episodes=EPISODES, eval_freq=turns, verbose=0)
    model.learn(PUBLISHED, callback=watching)
    return watching.best_mean_reward >= GOAL


def five_values() -> Any:
    """Returns gymnax 1.0's CartPole-v1, which tells two kinds of end apart, as rejax takes it."""
    from gymnax.environments.classic_control.cartpole import CartPole

    class FiveValues(CartPole):  # type: ignore[misc]
        def step(self, *arguments: Any) -> tuple[Any, ...]:
            observed, state, reward, terminated, truncated, about = super().step(*arguments)
            return observed, state, reward, terminated | truncated, about

    return FiveValues()


def train_rejax(seed: int) -> bool:
    import jax
    import rejax
    from rejax.evaluate import evaluate

    env = five_values()
    algorithm = rejax.PPO.create(env=env, **REJAX)
    iterations = EVERY // (REJAX["num_envs"] * REJAX["num_steps"])

    @jax.jit
    def advance(state: Any) -> Any:
        def iterate(_: int, state: Any) -> Any:
            return algorithm.train_iteration(state)

        return jax.lax.fori_loop(0, iterations, iterate, state)

    @jax.jit
    def score(state: Any, key: jax.Array) -> jax.Array:
        def act(observed: jax.Array, _: jax.Array) -> jax.Array:
            distribution = algorithm.actor.apply(
                state.actor_ts.params, observed[None], method="_action_dist"
            )
            return distribution.mode()[0]

        return evaluate(act, key, env, env.default_params, EPISODES)[1].mean()

    state = jax.jit(algorithm.init_state)(jax.random.key(seed))
    for number in range(MOST // EVERY):
        state = advance(state)
        if score(state, jax.random.key(1_000_000 + number)) >= GOAL:
            return True
    return False


LIBRARIES: dict[str, Callable[[int], bool]] = {
    OURS: train_ours,
    "stable-baselines3": train_stable_baselines3,
    "rejax": train_rejax,
}

if __name__ == "__main__":
    reached = LIBRARIES[sys.argv[1]](int(sys.argv[2]))
    print(time.process_time())
    sys.exit(not reached)
