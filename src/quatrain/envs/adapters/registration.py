"""Ids of Gymnasium -> entry points, which are imported when an environment is made."""

import gymnasium

FOLDER = "quatrain.envs.adapters"
# id -> module of this folder, and Gymnasium's limit of an episode where rules have none.
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
                entry_point=f"{FOLDER}.{module}:make_env",
                vector_entry_point=f"{FOLDER}.{module}:make_vector_env",
                max_episode_steps=max_episode_steps,
            )
