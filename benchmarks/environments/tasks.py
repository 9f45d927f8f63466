"""environments of others, how long each is learned, and what stable-baselines3 learns it with

Settings of stable-baselines3's PPO are those of rl-baselines3-zoo (hyperparams/ppo.yml); of an
environment that it does not have they are the library's own, of which `NEAREST` says so. Ours are
those of a preset, which several environments share.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

PPO, IQN, PEER, RANDOM = "actor_critic", "iqn", "stable-baselines3", "random actions"
IQN_WORLDS = 8
"""Environments of iqn in the presets."""
DEFAULTS: Mapping[str, Any] = {}


class Task(NamedTuple):
    """Holds an environment by the keys of `env`, and the transitions of a training.

    preset: of ours. zoo: settings of stable-baselines3's PPO; None: it is not compared. learners:
    ours that learn here.
    """

    name: str
    preset: str
    transitions: int
    zoo: Mapping[str, Any] | None = None
    learners: tuple[str, ...] = (PPO,)
    env: Mapping[str, Any] = {}
    iqn_transitions: int = 0

    def length(self, learner: str) -> dict[str, int]:
        """Returns `train` of a config; iqn counts turns of its worlds."""
        if learner == PPO:
            return {"transitions": self.transitions}
        return {"turns": (self.iqn_transitions or self.transitions) // IQN_WORLDS}

    @property
    def keys(self) -> dict[str, Any]:
        """Returns `env` of a config."""
        return {"kind": "gymnasium", "id": self.name, **self.env}


def wide(log_std: float = -2.0) -> dict[str, Any]:
    """Returns the zoo's networks for MuJoCo."""
    units = {"pi": [256, 256], "vf": [256, 256]}
    return {"log_std_init": log_std, "ortho_init": False, "activation_fn": "ReLU", "net_arch": units}


LANDER = {
    **{"n_envs": 16, "n_steps": 1024, "batch_size": 64, "n_epochs": 4},
    **{"gae_lambda": 0.98, "gamma": 0.999, "ent_coef": 0.01},
}
GRID_ROOM = {
    **{"normalize": True, "n_envs": 8, "n_steps": 128, "batch_size": 64, "n_epochs": 10},
    **{"gae_lambda": 0.95, "gamma": 0.99, "ent_coef": 0.0, "learning_rate": 2.5e-4},
}
SYMBOLS = {
    **{"import": "minigrid", "wrappers": ["minigrid.wrappers:ImgObsWrapper"]},
    "max_episode_steps": 300,  # more than their own limit, with which they are not registered
}
BOTH = (PPO, IQN)

TASKS = (
    Task(
        "CartPole-v1",
        "gymnasium",
        50_000,
        {
            **{"n_envs": 8, "n_steps": 32, "batch_size": 256, "n_epochs": 20, "ent_coef": 0.0},
            **{"gae_lambda": 0.8, "gamma": 0.98},
            **{"learning_rate": "linear 1e-3", "clip_range": "linear 0.2"},
        },
        BOTH,
    ),
    Task(
        "Acrobot-v1",
        "gymnasium",
        100_000,
        {
            **{"normalize": True, "n_envs": 16, "n_steps": 256, "n_epochs": 4},
            **{"gae_lambda": 0.94, "gamma": 0.99, "ent_coef": 0.0},
        },
        BOTH,
    ),
    Task(
        "Pendulum-v1",
        "gymnasium",
        100_000,
        {
            **{"n_envs": 4, "n_steps": 1024, "n_epochs": 10, "gae_lambda": 0.95, "gamma": 0.9},
            **{"ent_coef": 0.0, "learning_rate": 1e-3, "use_sde": True, "sde_sample_freq": 4},
        },
    ),
    Task(
        "MountainCar-v0",
        "sparse",
        200_000,
        {
            **{"normalize": True, "n_envs": 16, "n_steps": 16, "n_epochs": 4},
            **{"gae_lambda": 0.98, "gamma": 0.99, "ent_coef": 0.0},
        },
    ),
    Task(
        "MountainCarContinuous-v0",
        "sparse",
        50_000,
        {
            **{"normalize": True, "n_envs": 1, "n_steps": 8, "batch_size": 256, "n_epochs": 10},
            **{"gae_lambda": 0.9, "gamma": 0.9999, "ent_coef": 0.00429, "clip_range": 0.1},
            **{"learning_rate": 7.77e-5, "max_grad_norm": 5, "vf_coef": 0.19, "use_sde": True},
            "policy_kwargs": {"log_std_init": -3.29, "ortho_init": False},
        },
    ),
    Task("LunarLander-v3", "gymnasium", 200_000, LANDER, BOTH),
    Task(
        "LunarLanderContinuous-v3",
        "gymnasium",
        200_000,
        LANDER,
        env={"id": "LunarLander-v3", "kwargs": {"continuous": True}},
    ),
    Task(
        "InvertedPendulum-v5",
        "mujoco",
        100_000,
        {
            **{"normalize": True, "n_envs": 1, "n_steps": 32, "batch_size": 64, "n_epochs": 5},
            **{"gae_lambda": 0.9, "gamma": 0.999, "ent_coef": 1.37976e-07, "clip_range": 0.4},
            **{"learning_rate": 0.000222425, "max_grad_norm": 0.3, "vf_coef": 0.19816},
        },
    ),
    Task(
        "Hopper-v5",
        "mujoco",
        200_000,
        {
            **{"normalize": True, "n_envs": 1, "n_steps": 512, "batch_size": 32, "n_epochs": 5},
            **{"gae_lambda": 0.99, "gamma": 0.999, "ent_coef": 0.00229519, "clip_range": 0.2},
            **{"learning_rate": 9.80828e-05, "max_grad_norm": 0.7, "vf_coef": 0.835671},
            "policy_kwargs": wide(),
        },
    ),
    Task(
        "HalfCheetah-v5",
        "mujoco",
        200_000,
        {
            **{"normalize": True, "n_envs": 1, "n_steps": 512, "batch_size": 64, "n_epochs": 20},
            **{"gae_lambda": 0.92, "gamma": 0.98, "ent_coef": 0.000401762, "clip_range": 0.1},
            **{"learning_rate": 2.0633e-05, "max_grad_norm": 0.8, "vf_coef": 0.58096},
            "policy_kwargs": wide(),
        },
    ),
    Task("FrozenLake-v1", "sparse", 100_000, DEFAULTS, BOTH),
    Task("Taxi-v3", "sparse", 200_000, DEFAULTS),
    Task("MiniGrid-Empty-8x8-v0", "sparse", 100_000, GRID_ROOM, BOTH, SYMBOLS),
    Task("MiniGrid-DoorKey-5x5-v0", "sparse", 100_000, GRID_ROOM, env=SYMBOLS),
)
"""What issue of a table: learned by ours and by stable-baselines3."""
