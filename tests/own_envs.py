"""Environments of a user with images, masks of actions, and actions of several indices."""

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

CELLS, PIXELS = 6, 2


class Catch(gymnasium.Env):
    """Shows a ball that falls, and pays 1 for a paddle that is below it in the end.

    layout: axes of the image, such as "hw", "hwc" or "chw", or "dict": with the paddle as a number.
    """

    action_space = Discrete(3)

    def __init__(self, layout: str = "hw") -> None:
        side = CELLS * PIXELS
        shapes = {"hw": (side, side), "hwc": (side, side, 3), "chw": (3, side, side)}
        image = Box(0, 255, shapes.get(layout, shapes["hw"]), np.uint8)
        place = Box(0, CELLS, (1,), np.float32)
        self.observation_space: Any = image
        if layout == "dict":
            self.observation_space = Dict({"a_place": place, "image": image})
        self.layout = layout

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # noqa: ARG002
        super().reset(seed=seed)
        self.row, self.paddle = 0, CELLS // 2
        self.column = int(self.np_random.integers(CELLS))
        return self._observed(), {}

    def step(self, action: Any) -> Any:
        self.row += 1
        self.paddle = int(np.clip(self.paddle + action - 1, 0, CELLS - 1))
        has_ended = self.row == CELLS - 1
        paid = float(has_ended and self.paddle == self.column)
        return self._observed(), paid, has_ended, False, {}

    def _observed(self) -> Any:
        cells = np.zeros((CELLS, CELLS), np.uint8)
        cells[self.row, self.column] = 255
        cells[-1, self.paddle] = 128
        image = cells.repeat(PIXELS, 0).repeat(PIXELS, 1)
        if self.layout == "dict":
            return {"a_place": np.float32([self.paddle]), "image": image}
        if self.layout == "hw":
            return image
        return np.stack([image] * 3, -1 if self.layout == "hwc" else 0)


class Doors(gymnasium.Env):
    """Opens two of five doors in each step, and shows which of both pays; a closed one raises."""

    observation_space = Box(0, 1, (1,), np.float32)
    action_space = Discrete(5, start=1)
    says: ClassVar[Any] = staticmethod(lambda mask: mask)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # noqa: ARG002
        super().reset(seed=seed)
        self.steps = 0
        return self._observed()

    def step(self, action: Any) -> Any:
        assert self.open[action - 1], "the door is closed"
        paid = float(action == 1 + np.flatnonzero(self.open)[self.side])
        self.steps += 1
        observed, info = self._observed()
        return observed, paid, self.steps == 4, False, info

    def _observed(self) -> Any:
        self.open = np.zeros(5, np.int8)
        self.open[self.np_random.choice(5, 2, replace=False)] = 1
        self.side = int(self.np_random.integers(2))
        return np.float32([self.side]), {"action_mask": type(self).says(self.open)}


class Closed(Doors):
    says = staticmethod(lambda mask: 0 * mask)


class Short(Doors):
    says = staticmethod(lambda mask: mask[:3])


class Switches(gymnasium.Env):
    """Shows bits, and pays the share of them that an action of several indices names."""

    observation_space = MultiBinary(3)

    def __init__(self, kind: str = "binary") -> None:
        discrete = MultiDiscrete([2, 3, 4], start=[0, 1, -2])
        self.action_space = MultiBinary(3) if kind == "binary" else discrete
        self.start = getattr(self.action_space, "start", 0)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # noqa: ARG002
        super().reset(seed=seed)
        return self._observed(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        paid = float((action - self.start == self.bits).mean())
        return self._observed(), paid, False, False, {}

    def _observed(self) -> Any:
        self.bits = self.np_random.integers(0, 2, 3).astype(np.int8)
        return self.bits
