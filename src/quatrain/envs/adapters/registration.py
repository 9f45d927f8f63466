"""Ids of Gymnasium -> environments; their modules are imported when one is made."""

from importlib import import_module
from typing import Any

import gymnasium

from quatrain.envs.adapters.simulation import SimulationEnv, SimulationVectorEnv

FOLDER = "quatrain.envs.adapters"
# id -> module of this folder with `simulate`, and Gymnasium's limit of an episode where rules have
# none.
IDS: dict[str, tuple[str, int | None]] = {
    "quatrain/Grid-v0": ("grid", 50),
    "quatrain/TreasureHunt-v0": ("treasurehunt", None),
    "quatrain/Colony-v0": ("colony", None),
    "quatrain/VectorField-v0": ("vector_field", None),
}


def register() -> None:
    """Registers all ids with Gymnasium, also in vector form; does nothing the second time."""
    for name, (module, max_episode_steps) in IDS.items():
        if name not in gymnasium.registry:
            gymnasium.register(
                id=name,
                entry_point=f"{__name__}:make_env",
                vector_entry_point=f"{__name__}:make_vector_env",
                max_episode_steps=max_episode_steps,
                kwargs={"module": module},
            )


def make_env(module: str, render_mode: str | None = None, **settings: Any) -> SimulationEnv:
    """Returns one world; settings are the arguments of `simulate` in its module.

    Raises:
        QuatrainError: a setting is not allowed.
    """
    simulation = import_module(f"{FOLDER}.{module}").simulate(1, **settings)
    return SimulationEnv(simulation, render_mode)


def make_vector_env(
    module: str,
    num_envs: int,
    render_mode: str | None = None,
    max_episode_steps: int | None = None,
    **settings: Any,
) -> SimulationVectorEnv:
    """Returns worlds with the settings of `make_env`, which step together."""
    simulation = import_module(f"{FOLDER}.{module}").simulate(num_envs, **settings)
    return SimulationVectorEnv(simulation, render_mode, max_episode_steps)
