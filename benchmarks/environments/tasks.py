"""tasks.yaml -> environments of others, and what they are learned with"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter
from ruamel.yaml import YAML

PPO = "actor_critic"
WORLDS = 8
"""Environments of iqn in the presets."""


class Task(NamedTuple):
    """Holds an environment by the keys of `env`, and how long each learner learns there.

    zoo: settings of stable-baselines3's PPO; None: it is not compared. seeds: of each side.
    """

    name: str
    preset: str
    transitions: Mapping[str, int]
    zoo: Mapping[str, Any] | None = None
    env: Mapping[str, Any] = {}
    seeds: int = 3

    @property
    def keys(self) -> dict[str, Any]:
        """Returns `env` of a config."""
        return {"kind": "gymnasium", "id": self.name, **self.env}

    def length(self, learner: str) -> dict[str, int]:
        """Returns `train` of a config; iqn counts turns of its environments."""
        count = self.transitions[learner]
        return {"transitions": count} if learner == PPO else {"turns": count // WORLDS}


def read() -> dict[str, Task]:
    """Returns the tasks by name, in their order."""
    text = Path(__file__).with_suffix(".yaml").read_text()
    tasks = TypeAdapter(list[Task]).validate_python(YAML(typ="safe").load(text))
    return {task.name: task for task in tasks}
