"""Environments of a user in which what allo learns is known, and the section of a small allo in
them.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

SMALL: dict[str, Any] = {
    "seeds": 1,
    "collect": {"num_envs": 4, "steps_per_env": 250, "held_out_fraction": 0.5},
    "network": {"d": 3, "hidden": 64, "layers": 2},
    "train": {"batch_size": 128, "steps": 3000, "record_every": 1000, "evaluate_every": 1000},
}


class Corridor(gymnasium.Env):
    """Walks along a line; observes the place, and an axis that never changes."""

    observation_space = Box(0, 10, (2,), np.float32)

    def __init__(self, length: int = 7, step: float = 1.0, continuous: bool = False) -> None:
        self.length = length
        self.size = step
        self.action_space = Box(-1, 1, (1,), np.float32) if continuous else Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # noqa: ARG002
        super().reset(seed=seed)
        self.place = float(self.np_random.integers(self.length))
        return self._observed(), {}

    def step(self, action: Any) -> Any:
        move = 2 * int(action) - 1 if isinstance(self.action_space, Discrete) else float(action[0])
        self.place = float(np.clip(self.place + move * self.size, 0, self.length - 1))
        return self._observed(), 0.0, False, False, {}

    def _observed(self) -> np.ndarray:
        return np.array([self.place, 0.1], np.float32)


class Rooms(Corridor):
    """Observes beside the place which of so many layouts this episode has."""

    observation_space = Box(0, np.inf, (2,), np.float32)
    walls = 0

    def __init__(self, layouts: int) -> None:
        super().__init__()
        self.layouts = layouts

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed, options=options)
        self.walls = int(self.np_random.integers(self.layouts))
        return self._observed(), {}

    def _observed(self) -> np.ndarray:
        return np.array([self.place, self.walls], np.float32)


class Screens(Corridor):
    """Shows two images of the place."""

    observation_space = Box(0, 255, (2, 10, 11), np.uint8)

    def _observed(self) -> np.ndarray:
        return screen(int(self.place))


def screen(place: int) -> np.ndarray:
    return np.arange(place, place + 220, dtype=np.uint8).reshape(2, 10, 11)


class Masked(Corridor):
    """Lets steps to the left be taken at even places only, and shows which actions may be."""

    observation_space: Any = Dict(
        {"action_mask": Box(0, 1, (2,), np.int8), "place": Box(0, 10, (1,), np.float32)}
    )

    def _observed(self) -> Any:
        mask = np.array([self.place % 2 == 0 or self.place == 6, 1], np.int8)
        return {"action_mask": mask, "place": np.array([self.place], np.float32)}


def section(name: str, bins: int | None = None, **kwargs: Any) -> dict[str, Any]:
    """Returns the section allo of a small learner in one of these environments."""
    env = {
        "kind": "gymnasium",
        "id": None,
        "import": f"{__name__}:{name}",
        "kwargs": kwargs,
        "max_episode_steps": 20,
        "wrappers": [],
        "vectorization": "sync",
        "path": None,
        "columns": None,
        "bins": bins,
    }
    return SMALL | {"env": env}
