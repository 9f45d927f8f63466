"""seeds -> rows and notes about PPO on colonies: stable-baselines3 against actor_critic

Both learn on the same plates, from the same ten numbers of a colony, and are scored by the same
held-out colonies. stable-baselines3 steps the batched world through the Gymnasium adapter.
"""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor

from benchmarks.harness import Row, read_config
from benchmarks.peers.curves import CURVE, OURS, PEER, Curves, Point, lines_of, rows_of
from quatrain.envs.adapters.colony import ColonyVectorEnv
from quatrain.envs.colony.dynamics import Colonies, World, make_world
from quatrain.envs.colony.episodes import episodes
from quatrain.envs.colony.features import observe
from quatrain.envs.colony.policies import ColonyPolicy, action_bounds
from quatrain.envs.colony.rules import SUCCESS
from quatrain.frameworks.torch.threads import threads
from quatrain.models.actor_critic import train
from quatrain.models.actor_critic.collect import Dataset, collect, make_colonies
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.ppo.acting import Scale, deterministic_policy, make_scale
from quatrain.models.actor_critic.ppo.trainer import load_actor

SEEDS = 5
COLLECT_SEED = 0
ENVIRONMENTS = 64
SETTINGS = {
    "n_steps": 8,
    "batch_size": 256,
    "n_epochs": 4,
    "learning_rate": 1e-3,
    "gamma": 0.995,
}
NOTES = (
    "PPO on colonies: both see the ten numbers of the whole colony, scaled alike, and are scored by"
    " the deterministic policy on the same {colonies} held-out colonies; a controller written by"
    " hand gets {feedback:.2f}, the best constant action {constant:.2f}, random ones {random:.2f}",
    "PPO on colonies: stable-baselines3 steps {environments} colonies as one batch through the"
    " Gymnasium adapter, with {settings}, its other defaults, and actions in -1..1; seconds are CPU"
    " seconds of one thread without the scoring",
)


def report(root: Path) -> tuple[list[Row], list[str]]:
    """Trains both with several seeds."""
    config = read_config(root, None, "actor_critic", {"seeds": 1})
    with threads(1):
        dataset = collect(config, COLLECT_SEED)
        sides = {OURS: ours, PEER: stable_baselines3}
        curves = {
            name: [list(side(config, dataset, seed)) for seed in range(SEEDS)]
            for name, side in sides.items()
        }
    return rows_of(curves), notes_of(dataset, curves)


def notes_of(dataset: Dataset, curves: Curves) -> list[str]:
    """Says what was compared, and the mean returns with 95 % intervals over seeds."""
    references = dataset.held_out.references
    numbers = {
        name: getattr(references, name).mean() for name in ("random", "constant", "feedback")
    }
    settings = ", ".join(f"{name} {value:g}" for name, value in SETTINGS.items())
    notes = [
        note.format(
            colonies=len(references.random),
            environments=ENVIRONMENTS,
            settings=settings,
            **numbers,
        )
        for note in NOTES
    ]
    return [*notes, *lines_of(curves)]


def score(dataset: Dataset, world: World, policy: ColonyPolicy) -> tuple[float, float]:
    """Returns mean return and share of successes on the held-out colonies."""
    initial = dataset.held_out.colonies
    total = successes = 0.0
    for step in episodes(world, make_colonies(world.rules, initial), policy):
        total += float(step.reward.double().sum())
        successes += float((step.transition.reason == SUCCESS).sum())
    return total / len(initial.n), successes / len(initial.n)


def ours(config: ActorCriticConfig, dataset: Dataset, seed: int) -> Iterator[Point]:
    """Trains actor_critic as params.yaml says, and scores what it would keep."""
    world = make_world(config.env.rules, dataset.held_out.plates)
    pending = list(CURVE)
    seconds, begin = 0.0, time.process_time()
    for progress in train.train(config, dataset, seed):
        transitions = progress.step * config.train.batch
        if pending and transitions >= pending[0]:
            seconds += time.process_time() - begin
            actor = load_actor(config, world, progress.state.seeds[0])
            yield Point(
                pending.pop(0), seconds, *score(dataset, world, deterministic_policy(actor))
            )
            begin = time.process_time()


def stable_baselines3(config: ActorCriticConfig, dataset: Dataset, seed: int) -> Iterator[Point]:
    """Trains its PPO in steps between the points of CURVE."""
    scale = make_scale(config, dataset)
    env = ScaledColonies(config, dataset, scale)
    learner = PPO("MlpPolicy", env, seed=seed, device="cpu", verbose=0, **SETTINGS)
    world = make_world(config.env.rules, dataset.held_out.plates)
    act = partial(_act, learner, world, scale)
    seconds = 0.0
    for transitions in CURVE:
        begin = time.process_time()
        learner.learn(transitions - learner.num_timesteps, reset_num_timesteps=False)
        seconds += time.process_time() - begin
        yield Point(transitions, seconds, *score(dataset, world, act))


def _act(learner: PPO, world: World, scale: Scale, _: Tensor, colonies: Colonies) -> Tensor:
    observed = observe(world, colonies, world.rules.max_nodes, graph_only=True).graph
    unit, _state = learner.predict(_scaled(scale, observed.numpy()), deterministic=True)
    return torch.from_numpy(_to_action(world, unit))


def _scaled(scale: Scale, graph: np.ndarray) -> np.ndarray:
    return ((graph - scale.graph_mean.numpy()) / scale.graph_std.numpy()).clip(-10, 10)


def _to_action(world: World, unit: np.ndarray) -> np.ndarray:
    low, high = (bound.numpy() for bound in action_bounds(world.rules))
    return low + (high - low) * (unit.clip(-1, 1) + 1) / 2


class ScaledColonies(VecEnv):
    """Adapts the Gymnasium environment of many colonies to stable-baselines3."""

    def __init__(self, config: ActorCriticConfig, dataset: Dataset, scale: Scale) -> None:
        rules = config.env.rules
        plates = dataset.train.plates
        self.scale = scale
        self.world = make_world(rules, plates)
        self.env = ColonyVectorEnv(rules, plates, ENVIRONMENTS, graph_only=True)
        observed = self.env.single_observation_space["graph"]
        actions = Box(-1, 1, self.env.single_action_space.shape, np.float32)
        super().__init__(ENVIRONMENTS, observed, actions)
        self.unit = np.zeros((ENVIRONMENTS, *actions.shape), np.float32)

    def reset(self) -> np.ndarray:
        return _scaled(self.scale, self.env.reset(seed=self._seeds[0])[0]["graph"])

    def step_async(self, actions: np.ndarray) -> None:
        self.unit = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        observed, reward, terminated, truncated, info = self.env.step(
            _to_action(self.world, self.unit)
        )
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        ended = terminated | truncated
        for index in ended.nonzero()[0]:
            infos[index] = {
                "terminal_observation": _scaled(self.scale, info["final_obs"][index]["graph"]),
                "TimeLimit.truncated": bool(truncated[index]),
            }
        return _scaled(self.scale, observed["graph"]), reward, ended, infos

    def close(self) -> None:
        self.env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:  # noqa: ARG002
        return [getattr(self, attr_name, None)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError(attr_name, value, indices)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> Any:
        raise NotImplementedError(method_name, args, indices, kwargs)

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:  # noqa: ARG002
        return [False] * self.num_envs
